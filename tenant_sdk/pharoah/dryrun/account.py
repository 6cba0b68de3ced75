"""The cost of a step, put together from what the ledger saw of the first two.

A dry run ends as soon as the second forward pass has turned out to be the first one again, and torch's own updates are
not computed at all: what is missing is repeated from what was seen.
"""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch

from pharoah.cost.step import ACTIVATION, GRADIENT, OTHER, PARAMETER, STATE, Memory, Operation, StepCost, Transfer
from pharoah.dryrun.ledger import Work, local
from pharoah.dryrun.update import Updates
from pharoah.profile import data_segment

if TYPE_CHECKING:
    from pharoah.dryrun.fake import DryRecorder


class Account:
    """Told where passes and updates begin and end.

    The first window reaches from the script's start to the end of the first update, the second one from there to the
    beginning of that optimizer's next.
    """

    def __init__(self, recorder: DryRecorder) -> None:
        self._ledger = recorder.ledger
        self._updates = Updates(recorder)
        self._forward: list[Work] = []
        """Of each window, up to its first backward pass."""
        self._backward: list[Work] = []
        """Of each window, from there on; without the update that ends the first."""
        self._update = Work()
        self._differentiated = self._update_began = 0
        """Positions in the events of the first window."""
        self._ends: list[int] = []
        """Positions where windows end."""
        self._steps_began = 0
        self._roles: dict[int, str] = {}

    def differentiate(self) -> None:
        """The first backward pass of a window begins."""
        self._forward.append(self._ledger.cut())
        self._differentiated = self._differentiated or len(self._ledger.events)

    def update(self, optimizer: torch.optim.Optimizer, pretended: bool) -> None:
        """An optimizer begins to step; a pretended one does nothing by itself."""
        self._steps_began = len(self._ledger.events)
        if not self._update_began:
            self._update_began = self._steps_began
            self._backward.append(self._ledger.cut())
        for parameter in (p for group in optimizer.param_groups for p in group["params"] if p.grad is not None):
            self._roles[self._ledger.number_of(local(parameter))] = PARAMETER
            self._roles[self._ledger.number_of(local(parameter.grad))] = GRADIENT
            for value in optimizer.state.get(parameter, {}).values():
                if isinstance(value, torch.Tensor):
                    self._roles[self._ledger.number_of(local(value))] = STATE
        if pretended:
            self._updates.enter(optimizer)

    def updated(self) -> None:
        """It has stepped: what it made and keeps is its state."""
        if not self._update_began:
            return  # the step was computed inside, by a closure
        events = self._ledger.events
        made = range(_allocations(events[: self._steps_began]) + 1, self._ledger.allocations + 1)
        freed = {-event for event in events[self._steps_began :] if event < 0}
        self._roles |= {number: STATE for number in made if number not in freed}

    def end(self) -> None:
        """A window ends."""
        self._ends.append(len(self._ledger.events))
        windows = len(self._ends)
        self._forward += [Work()] * (windows - len(self._forward))
        if len(self._backward) < windows:
            self._backward.append(self._ledger.cut())
            self._update_began = self._update_began or self._ends[0]
        else:
            self._update = self._ledger.cut()

    def cost(self) -> StepCost:
        """Of the last step seen; called at the end of a window, or at the first backward pass of the second."""
        work = self._forward[-1] + self._backward[-1] + self._update
        return StepCost(
            operations=tuple(Operation(*row, times) for row, times in work.operations.items()),
            transfers=tuple(Transfer(*row, times) for row, times in work.transfers.items()),
            memory=self._memory(),
            process_bytes=data_segment(),
            uncounted=tuple(sorted(self._ledger.uncounted)),
        )

    def _memory(self) -> Memory:
        life = _Life(self._ledger.events, dict.fromkeys(self._ledger.activations, ACTIVATION) | self._roles)
        first, now = self._ends[0], len(self._ledger.events)
        update, forward = (self._update_began, first), (first, now)
        if len(self._ends) == 2:
            return life.continued(first, [update], [forward, update])
        if len(self._forward) == 1:
            return life.memory(first)
        backward = (self._differentiated, self._update_began)
        return life.continued(first, [backward, update], [forward, backward, update])


def _allocations(events: Sequence[int]) -> int:
    return sum(event > 0 for event in events)


class _Life:
    """Events, continued with repetitions of parts of themselves."""

    def __init__(self, events: array[int], roles: dict[int, str]) -> None:
        self.events = array("q", events)
        self._sizes = [0, *(event for event in events if event > 0)]
        self._roles = [roles.get(number, OTHER) for number in range(len(self._sizes))]
        self._seen = len(events)
        alive = dict.fromkeys(range(1, len(self._sizes)))
        for event in events:
            if event < 0:
                alive.pop(-event)
        self._alive: dict[int, list[int]] = defaultdict(list)
        """Size to the allocations that may be freed, the youngest last."""
        for number in alive:
            self._live(number)
        self._accumulates = any(self._roles[number] == GRADIENT for number in alive)

    def _live(self, number: int) -> None:
        if self._roles[number] not in (PARAMETER, STATE):
            self._alive[self._sizes[number]].append(number)

    def repeat(self, start: int, end: int) -> None:
        """Do again what happened between two positions.

        What was made and kept there before is there already: parameters, optimizer state, gradients that are added to.
        What was made before and freed there is matched by size.
        """
        number = _allocations(self.events[:start])
        again: dict[int, int] = {}
        """Allocations that are made there to their repetitions."""
        for event in self.events[start:end]:
            if event < 0:
                self._free(-event, again.pop(-event, 0) or self._alike(-event))
                continue
            number += 1
            if self._roles[number] in (PARAMETER, STATE):
                continue
            again[number] = self._allocate(number)
            if self._roles[number] == GRADIENT and self._accumulates:
                self._free(number, again.pop(number))
        for copy in again.values():
            self._live(copy)

    def _allocate(self, original: int) -> int:
        self.events.append(self._sizes[original])
        self._sizes.append(self._sizes[original])
        self._roles.append(self._roles[original])
        return len(self._sizes) - 1

    def _alike(self, original: int) -> int:
        """The youngest of the same size that was there before; 0 when there is none."""
        candidates = self._alive[self._sizes[original]]
        return candidates.pop() if candidates else 0

    def _free(self, original: int, copy: int) -> None:
        if copy:
            self._roles[copy] = self._roles[original]
            self.events.append(-copy)

    def continued(self, first: int, second: Sequence[tuple[int, int]], third: Sequence[tuple[int, int]]) -> Memory:
        """With what is missing of the second step, and the third one."""
        for part in second:
            self.repeat(*part)
        end = len(self.events)
        for part in third:
            self.repeat(*part)
        return self.memory(first, end)

    def memory(self, *steps: int) -> Memory:
        return Memory(self.events, "".join(self._roles[1:]), steps)
