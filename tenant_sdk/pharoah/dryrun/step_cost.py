"""The cost of a step, put together from what the ledger recorded of the first two or three.

A dry run ends as soon as the second forward pass has turned out to be the first one again, and torch's own updates are
not computed at all: the missing parts are repetitions of recorded ones.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch

from pharoah.cost.step import ACTIVATION, GRADIENT, KERNEL, PARAMETER, STATE, Memory, Operation, StepCost, Transfer
from pharoah.dryrun.dry_recorder import DryRecorder
from pharoah.dryrun.ledger import Work, local
from pharoah.dryrun.lifetimes import HOST, Lifetimes, count_allocations
from pharoah.dryrun.optimizer_cost import OptimizerCost
from pharoah.dryrun.shared_memory import count_copied_bytes
from pharoah_system.process_memory import data_bytes


class StepCostBuilder:
    """Builds the cost of a step; its methods are called where passes and updates begin and end.

    The first window reaches from the script's start to the end of the first update, the second one from there to the
    beginning of that optimizer's next, and a third one from the end of that to the beginning of the one after it.
    """

    def __init__(self, recorder: DryRecorder) -> None:
        self._ledger = recorder.ledger
        self._updates = OptimizerCost(recorder)
        self._forward: list[Work] = []
        """The work of each window up to its first backward pass."""
        self._backward: list[Work] = []
        """The work of each window from its first backward pass on, without the update that ends the first window."""
        self._update = Work()
        self._differentiated = self._update_began = 0
        """Positions in the events of the first window."""
        self._ends: list[int] = []
        """Positions where windows end."""
        self._beginnings = [0]
        """Positions where windows begin, the next one's included."""
        self._steps_began = 0
        self._roles: dict[int, str] = {}
        self._before_serving = Work()
        """The work before the step of a job that serves."""

    def differentiate(self) -> int:
        """The first backward pass of a window begins. The floating-point operations of the window until then."""
        self._forward.append(self._ledger.cut())
        self._differentiated = self._differentiated or len(self._ledger.events)
        return self._forward[-1].flops

    def update(self, optimizer: torch.optim.Optimizer, by_torch: bool) -> None:
        """An optimizer begins to step. With `by_torch` its cost is that of the stand-ins."""
        self._steps_began = len(self._ledger.events)
        if not self._update_began:
            self._update_began = self._steps_began
            self._backward.append(self._ledger.cut())
        self.note_roles(optimizer)
        if by_torch:
            self._updates.enter(optimizer)

    def note_roles(self, optimizer: torch.optim.Optimizer) -> None:
        """What the parameters of an optimizer, their gradients and its state are."""
        for parameter in (p for group in optimizer.param_groups for p in group["params"] if p.grad is not None):
            self._roles[self._ledger.number_of(local(parameter))] = PARAMETER
            self._roles[self._ledger.number_of(local(parameter.grad))] = GRADIENT
            for value in optimizer.state.get(parameter, {}).values():
                if isinstance(value, torch.Tensor):
                    self._roles[self._ledger.number_of(local(value))] = STATE

    def update_cost(self) -> None:
        """An optimizer has stepped: what it has allocated and kept is its state."""
        if not self._update_began:
            return  # the step was computed inside, by a closure
        events = self._ledger.events
        made = range(count_allocations(events[: self._steps_began]) + 1, self._ledger.allocations + 1)
        freed = {-event for event in events[self._steps_began :] if event < 0}
        self._roles |= {number: STATE for number in made if number not in freed}

    def begin_window(self) -> None:
        """A window begins after an update that belongs to no window: the one of the first window stands for it."""
        self._ledger.cut()
        self._beginnings[-1] = len(self._ledger.events)

    def end(self) -> None:
        """A window ends."""
        self._ends.append(len(self._ledger.events))
        self._beginnings.append(len(self._ledger.events))
        windows = len(self._ends)
        self._forward += [Work()] * (windows - len(self._forward))
        if len(self._backward) < windows:
            self._backward.append(self._ledger.cut())
            self._update_began = self._update_began or self._ends[0]
        else:
            self._update = self._ledger.cut()

    def cost(self) -> StepCost:
        """The cost of the last step. Call it when a window ends or the second backward pass begins."""
        return self._cost(self._forward[-1] + self._backward[-1] + self._update, self._memory())

    def begin_serving(self) -> None:
        """A step of a job that serves begins."""
        work = self._ledger.work
        self._before_serving = Work(work.operations.copy(), work.transfers.copy())

    def serving_cost(self, parameters: Iterable[torch.Tensor]) -> StepCost:
        """The cost of the step that was recorded since `begin_serving`; nothing of it is to be repeated."""
        for parameter in parameters:
            self._roles[self._ledger.number_of(local(parameter))] = PARAMETER
        before, now = self._before_serving, self._ledger.work
        work = Work(now.operations - before.operations, now.transfers - before.transfers)
        return self._cost(work, self._lifetimes().memory())

    def _cost(self, work: Work, memory: Memory) -> StepCost:
        return StepCost(
            operations=tuple(Operation(*row, times) for row, times in work.operations.items()),
            transfers=tuple(Transfer(*row, times) for row, times in work.transfers.items()),
            memory=memory,
            process_bytes=max(0, data_bytes() - count_copied_bytes()),
            uncounted=tuple(sorted(self._ledger.uncounted)),
        )

    def _lifetimes(self) -> Lifetimes:
        roles = dict.fromkeys(self._ledger.activations, ACTIVATION) | self._roles
        roles |= dict.fromkeys(self._ledger.of_kernels, KERNEL)
        if (on_gpu := self._ledger.on_gpu) is not None:
            roles |= {number: HOST for number in range(1, self._ledger.allocations + 1) if number not in on_gpu}
        return Lifetimes(self._ledger.events, roles)

    def _memory(self) -> Memory:
        life = self._lifetimes()
        first, now = self._ends[0], len(self._ledger.events)
        backward = (self._differentiated, self._update_began)
        update = (self._update_began, first)
        missing = [backward, update, (first, now), backward, update]
        if len(self._ends) > 1:
            missing = [update, (self._beginnings[-2], now), update]
        elif len(self._forward) == 1:
            missing = []
        for part in missing:
            life.repeat(*part)
        return life.memory()
