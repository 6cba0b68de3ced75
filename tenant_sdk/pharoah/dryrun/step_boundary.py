"""Where a step begins and ends in a dry run: between two steps of the optimizer that steps first."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NoReturn

import torch

from pharoah.capture import recorder as capture
from pharoah.capture.single_step import computes_inside
from pharoah.dryrun.dry_recorder import DryRecorder
from pharoah.dryrun.redirect import was_compiled
from pharoah.dryrun.result import DryRun
from pharoah.dryrun.settings import settings_of
from pharoah.dryrun.step_cost import StepCostBuilder
from pharoah_archetypes import Fingerprint


class Finished(BaseException):
    """The step is over. A BaseException, so that no `except Exception` in a script catches it."""

    def __init__(self, fingerprint: Fingerprint) -> None:
        super().__init__()
        self.fingerprint = fingerprint


class Window:
    """A step reaches from one step of the first optimizer to its next, as it does when a running job is captured.

    With several optimizers (adversarial training, one for each kind of parameter) everything between belongs to the
    step. With one optimizer, the second step is over as soon as its forward pass has turned out equal to the first.
    """

    def __init__(
        self, recorder: DryRecorder, report: Callable[[DryRun, bool], None], failed: Callable[[str], None]
    ) -> None:
        """`report` gets a result and whether it is final; `failed` gets the reason why there is none."""
        self._recorder = recorder
        self._cost = StepCostBuilder(recorder)
        self._report = report
        self._failed = failed
        self._first: torch.optim.Optimizer | None = None
        self._optimizers: list[torch.optim.Optimizer] = []
        self._gradients: list[tuple[torch.nn.Parameter, torch.Tensor]] = []
        """Parameters and their gradients, taken off while an optimizer steps."""
        self.optimizers_made = 0
        self._update_may_begin: int | None = None
        """How many operators had been recorded when the script began to read gradients."""
        self._provisional: Fingerprint | None = None
        self._beginnings: list[object] = []
        """What was recorded in each window before its first backward pass."""

    def made(self) -> None:
        """An optimizer was constructed."""
        self.optimizers_made += 1

    @property
    def in_optimizer(self) -> bool:
        """Whether an optimizer steps."""
        return self._recorder.in_optimizer

    def update_may_begin(self) -> None:
        """A gradient is read: what is computed from now on belongs to an update, if the script makes one itself."""
        if self._update_may_begin is None:
            self._update_may_begin = len(self._recorder.records)

    def begin_by_hand(self, optimizer: torch.optim.Optimizer) -> None:
        """An update that the script does itself begins; what it has computed from gradients is no part of a forward
        pass."""
        del self._recorder.records[self._update_may_begin :]
        self.begin(optimizer, (optimizer,), {})

    def end_by_hand(self, optimizer: torch.optim.Optimizer) -> None:
        """The update that the script does itself has ended; the optimizer has its parameters by now."""
        del self._recorder.records[self._update_may_begin :]
        self._cost.note_roles(optimizer)
        self.end(optimizer)

    def differentiate(self) -> None:
        """A backward pass begins."""
        self._update_may_begin = None
        if len(self._beginnings) > (self._provisional is not None):
            return  # not the first one of its window
        records = self._recorder.records
        skeleton = capture.skeleton_of(records)
        self._cost.differentiate()
        self._beginnings.append((skeleton.text, skeleton.features, capture.activation_bytes(records)))
        if self._provisional and self.optimizers_made == 1 and self._beginnings[0] == self._beginnings[1]:
            self._finish(self._provisional)

    def begin(self, optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
        """An optimizer begins a step."""
        self._recorder.in_optimizer = True
        closure = computes_inside(args, kwargs)
        self._recorder.in_update = not closure  # with one, forward and backward are still to come
        if closure:
            return
        if optimizer is self._first:
            self._close()
        by_torch = type(optimizer).step.__module__.startswith("torch.optim")
        self._cost.update(optimizer, by_torch)
        if by_torch:
            self._take_gradients_off(optimizer)

    def _take_gradients_off(self, optimizer: torch.optim.Optimizer) -> None:
        """Take the gradients off: an update changes values only, and torch's optimizers skip parameters without one."""
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self._gradients.append((parameter, parameter.grad))
                    parameter.grad = None

    def end(self, optimizer: torch.optim.Optimizer, *_: object) -> None:
        """An optimizer has stepped."""
        for parameter, gradient in self._gradients:
            parameter.grad = gradient
        self._gradients.clear()
        self._cost.updated()
        self._recorder.in_optimizer = self._recorder.in_update = False
        if self._first is None:
            self._first = optimizer
        if all(optimizer is not known for known in self._optimizers):
            self._optimizers.append(optimizer)
        if optimizer is self._first:
            self._close()

    def _close(self) -> None:
        """A window ends."""
        try:
            fingerprint = self._fingerprint()
        except ValueError as reason:
            self._failed(str(reason))  # reported at once: nothing catches the exceptions of a thread
            raise
        self._cost.end()
        if self._provisional:
            self._finish(fingerprint)
        self._provisional = fingerprint
        self._report(self._found(fingerprint), False)
        self._recorder.records.clear()

    def _finish(self, fingerprint: Fingerprint) -> NoReturn:
        self._report(self._found(fingerprint), True)
        raise Finished(fingerprint)

    def _found(self, fingerprint: Fingerprint) -> DryRun:
        return DryRun(
            fingerprint,
            self._cost.cost(),
            settings_of(self._optimizers, self._recorder.loaders),
        )

    def _fingerprint(self) -> Fingerprint:
        if self._recorder.broken:
            raise ValueError(f"recording stopped: {self._recorder.broken}")
        return capture.fingerprint(self._recorder.records, self._optimizers, compiled=was_compiled())


def before(owner: Any, name: str, event: Callable[[], None]) -> None:
    """Call `event` before every call of a function of `owner`."""
    original = getattr(owner, name)

    @functools.wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        event()
        return original(*args, **kwargs)

    setattr(owner, name, call)
