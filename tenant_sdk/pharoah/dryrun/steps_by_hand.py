"""Steps without an optimizer: a script reads the gradients and changes the parameters itself.

`p.data.add_(p.grad, alpha=-lr)`, or `p -= lr * p.grad` without gradients: a parameter whose gradient the script has
read is written to. The update lasts until the next operator with structure, which belongs to the next forward pass.
Where the script has an optimizer, only that one steps.

Runs in the dry-run child only.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from pharoah.capture.operator_notes import storage_of
from pharoah.dryrun.backward_code import is_in_backward
from pharoah.dryrun.step_boundary import Window


class ByHand(torch.optim.Optimizer):
    """Stands for the script's own update. Its name is what the fingerprint states as the optimizer."""

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """The script does it."""


class StepsByHand:
    """Notices updates that a script does itself, and reports them as steps of one optimizer."""

    def __init__(self, window: Window) -> None:
        self._window = window
        self._read: dict[int, torch.Tensor] = {}
        """Parameters whose gradient the script has read, by their storage."""
        self._optimizer: ByHand | None = None
        self.updating = False
        """Whether an update goes on."""

    def read_gradient(self, parameter: torch.Tensor) -> None:
        """The script, or a library, has read the gradient of a tensor that has one.

        A hook that reads it while the backward pass goes on says nothing about an update.
        """
        if not parameter.is_leaf or not parameter.requires_grad or is_in_backward():
            return
        if self.updating:
            self._read.setdefault(storage_of(parameter), parameter)
        elif not self._window.in_optimizer:
            self._read.setdefault(storage_of(parameter), parameter)
            self._window.update_may_begin()

    def wrote(self, tensors: Iterable[torch.Tensor]) -> None:
        """An operator writes to these tensors."""
        if (
            self._window.in_optimizer
            or self.updating
            or not self._read
            or self._window.optimizers_made > (self._optimizer is not None)
        ):
            return
        if any(storage_of(tensor) in self._read for tensor in tensors):
            if self._optimizer is None:
                self._optimizer = ByHand(list(self._read.values()), {})
            self.updating = True
            self._window.begin_by_hand(self._optimizer)

    def finish(self) -> None:
        """An operator of the next forward pass begins, or the script ends."""
        if self.updating and self._optimizer is not None:
            self.updating = False
            self._optimizer.param_groups[0]["params"] = list(self._read.values())
            self._window.end_by_hand(self._optimizer)
