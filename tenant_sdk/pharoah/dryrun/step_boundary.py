"""Where a step begins and ends in a dry run: between two steps of the optimizer that steps first."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple, NoReturn

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


class _Beginning(NamedTuple):
    """What a window shows before its first backward pass."""

    operators: int
    """How many were recorded."""
    flops: int
    """Floating-point operations, also of what is not recorded because no gradient is computed."""
    found: tuple[object, ...]
    """Its structure, features, and bytes of activations."""

    def does_more(self, first: _Beginning) -> bool:
        """Whether there is work that the first window did not have."""
        return self.operators > first.operators or self.flops > first.flops


class Window:
    """A step reaches from one step of the first optimizer to its next, as it does when a running job is captured.

    With several optimizers (adversarial training, one for each kind of parameter) everything between belongs to the
    step. With one optimizer, the second step is over as soon as its forward pass has turned out equal to the first. If
    it does more before its backward pass than the first one, such as an evaluation after the first update, which many
    scripts make, the third step is the result. So it is with several optimizers, whose first windows begin and end in
    different passes.
    """

    def __init__(
        self, recorder: DryRecorder, report: Callable[[DryRun, bool], None], failed: Callable[[str], None]
    ) -> None:
        """`report` gets a result and whether it is final; `failed` gets the reason why there is none."""
        self._recorder = recorder
        self.cost = StepCostBuilder(recorder)
        self._report = report
        self._failed = failed
        self._first: torch.optim.Optimizer | None = None
        self._optimizers: list[torch.optim.Optimizer] = []
        self._gradients: list[tuple[torch.nn.Parameter, torch.Tensor]] = []
        """Parameters and their gradients, taken off while an optimizer steps."""
        self.optimizers_made = 0
        self._update_may_begin: int | None = None
        """How many operators had been recorded when the script began to read gradients."""
        self._closed: list[DryRun] = []
        """The result of each window that has ended."""
        self._is_between = False
        """Whether a window has ended where an update begins, and the next one begins where it ends."""
        self._is_idle = False
        """Whether an optimizer steps before anything was computed for it, as some scripts do to please a scheduler."""
        self._custom_kernels: dict[str, None] = {}
        """Names of operators that the vocabulary does not have."""
        self._beginnings: list[_Beginning] = []
        """What was recorded in each window before its first backward pass."""

    def note_optimizer(self) -> None:
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
        self.cost.note_roles(optimizer)
        self.end(optimizer)

    def differentiate(self) -> None:
        """A backward pass begins."""
        self._update_may_begin = None
        if len(self._beginnings) > len(self._closed):
            return  # not the first one of its window
        records = self._recorder.records
        skeleton = capture.skeleton_of(records)
        self._custom_kernels |= dict.fromkeys(skeleton.unknown)
        found = (skeleton.text, skeleton.features, capture.activation_bytes(records))
        self._beginnings.append(_Beginning(len(records), self.cost.differentiate(), found))
        if len(self._closed) == self.optimizers_made == 1:
            first, second = self._beginnings
            if second.found == first.found and not second.does_more(first):
                self._finish(self._find(self._closed[0].fingerprint))

    def begin(self, optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
        """An optimizer begins a step."""
        self._recorder.in_optimizer = True
        closure = computes_inside(args, kwargs)
        self._recorder.in_update = not closure  # with one, forward and backward are still to come
        self._is_idle = not (closure or self._first or self._beginnings or _has_gradients(optimizer))
        if closure or self._is_idle:
            return
        if optimizer is self._first:
            self._close()
            self._is_between = True
        by_torch = type(optimizer).step.__module__.startswith("torch.optim")
        self.cost.update(optimizer, by_torch)
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
        self._recorder.in_optimizer = self._recorder.in_update = False
        if self._is_idle:
            return
        self.cost.update_cost()
        if self._first is None:
            self._first = optimizer
        if all(optimizer is not known for known in self._optimizers):
            self._optimizers.append(optimizer)
        if self._is_between and optimizer is self._first:
            self.cost.begin_window()
            self._recorder.records.clear()
            self._is_between = False
        elif optimizer is self._first:
            self._close()

    def _close(self) -> None:
        """A window ends."""
        try:
            fingerprint = self._fingerprint()
        except ValueError as reason:
            self._failed(str(reason))  # reported at once: nothing catches the exceptions of a thread
            raise
        self.cost.end()
        if len(self._beginnings) == len(self._closed):
            self._beginnings.append(_Beginning(0, 0, ()))  # an update without a backward pass
        self._closed.append(self._find(fingerprint))
        if len(self._closed) == 3 or (len(self._closed) == 2 and not self._second_may_be_odd()):
            self._finish(self._closed[-1])
        self._report(self._closed[-1], False)
        self._recorder.records.clear()

    def _second_may_be_odd(self) -> bool:
        """Whether the second window may have done what other steps do not."""
        return self.optimizers_made > 1 or self._beginnings[1].does_more(self._beginnings[0])

    def _finish(self, found: DryRun) -> NoReturn:
        self._report(found, True)
        raise Finished(found.fingerprint)

    def _find(self, fingerprint: Fingerprint) -> DryRun:
        return DryRun(
            fingerprint,
            self.cost.cost(),
            settings_of(self._optimizers, self._recorder.loaders),
            tuple(f"what {name} computes is not known: it counts as a custom kernel" for name in self._custom_kernels),
        )

    def _fingerprint(self) -> Fingerprint:
        if self._recorder.broken:
            raise ValueError(f"recording stopped: {self._recorder.broken}")
        return capture.fingerprint(self._recorder.records, self._optimizers, compiled=was_compiled())


def _has_gradients(optimizer: torch.optim.Optimizer) -> bool:
    return any(parameter.grad is not None for group in optimizer.param_groups for parameter in group["params"])


def before(owner: Any, name: str, event: Callable[[], None]) -> None:
    """Call `event` before every call of a function of `owner`."""
    original = getattr(owner, name)

    @functools.wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        event()
        return original(*args, **kwargs)

    setattr(owner, name, call)
