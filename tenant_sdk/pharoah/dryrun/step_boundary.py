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
    """The step is over; a BaseException so that no `except Exception` in a script keeps it."""

    def __init__(self, fingerprint: Fingerprint) -> None:
        super().__init__()
        self.fingerprint = fingerprint


class Window:
    """A step reaches from one step of the first optimizer to its next, as it does when a running job is captured.

    With several optimizers (adversarial training, one per parameter kind) what lies between belongs to the step. With
    one, the second step is over as soon as its forward pass has turned out to be the first one again.
    """

    def __init__(
        self, recorder: DryRecorder, seen: Callable[[DryRun, bool], None], failed: Callable[[str], None]
    ) -> None:
        self._recorder = recorder
        self._account = StepCostBuilder(recorder)
        self._seen = seen
        self._failed = failed
        self._first: torch.optim.Optimizer | None = None
        self._optimizers: list[torch.optim.Optimizer] = []
        self._gradients: list[tuple[torch.nn.Parameter, torch.Tensor]] = []
        """Set aside while an optimizer steps."""
        self._made = 0
        self._provisional: Fingerprint | None = None
        self._beginnings: list[object] = []
        """What each window did before its first backward pass."""

    def made(self) -> None:
        """An optimizer was constructed."""
        self._made += 1

    def differentiate(self) -> None:
        """A backward pass begins."""
        if len(self._beginnings) > (self._provisional is not None):
            return  # not the first of its window
        records = self._recorder.records
        skeleton = capture.skeleton_of(records)
        self._account.differentiate()
        self._beginnings.append((skeleton.text, skeleton.features, capture.activation_bytes(records)))
        if self._provisional and self._made == 1 and self._beginnings[0] == self._beginnings[1]:
            self._finish(self._provisional)

    def begin(self, optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
        """An optimizer begins a step."""
        self._recorder.in_optimizer = True
        closure = computes_inside(args, kwargs)
        self._recorder.updating = not closure  # with one, forward and backward are still to come
        if closure:
            return
        if optimizer is self._first:
            self._close()
        pretended = type(optimizer).step.__module__.startswith("torch.optim")
        self._account.update(optimizer, pretended)
        if pretended:
            self._set_aside(optimizer)

    def _set_aside(self, optimizer: torch.optim.Optimizer) -> None:
        """An update changes values only, and torch's own optimizers pass over parameters without gradients."""
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
        self._account.updated()
        self._recorder.in_optimizer = self._recorder.updating = False
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
            self._failed(str(reason))  # said at once: this may be a thread, whose exceptions nobody sees
            raise
        self._account.end()
        if self._provisional:
            self._finish(fingerprint)
        self._provisional = fingerprint
        self._seen(self._found(fingerprint), False)
        self._recorder.records.clear()

    def _finish(self, fingerprint: Fingerprint) -> NoReturn:
        self._seen(self._found(fingerprint), True)
        raise Finished(fingerprint)

    def _found(self, fingerprint: Fingerprint) -> DryRun:
        return DryRun(
            fingerprint,
            self._account.cost(),
            settings_of(self._optimizers, self._recorder.loaders),
        )

    def _fingerprint(self) -> Fingerprint:
        if self._recorder.broken:
            raise ValueError(f"recording stopped: {self._recorder.broken}")
        return capture.fingerprint(self._recorder.records, self._optimizers, compiled=was_compiled())


def before(owner: Any, name: str, event: Callable[[], None]) -> None:
    """Have `event` told whenever a function of `owner` is called."""
    original = getattr(owner, name)

    @functools.wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        event()
        return original(*args, **kwargs)

    setattr(owner, name, call)
