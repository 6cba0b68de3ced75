"""Computes a saved step again, and compares the bits with those of other times. It imports torch."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable

import torch

from pharoah.replay.arguments import find_computed, read, tensors
from pharoah.replay.digests import digest_of, node_class, switch
from pharoah.replay.operators import UnknownName, operator_of
from pharoah.replay.results import NodeResult, RepeatOutcome
from pharoah.replay.step_file import Computation, Load, SavedStep, StepFileError, StepReader

MIN_REPEATS = 3
MAX_OUTCOMES = 16
"""Ways in which repeats came out that are kept with their digests. A step may have thousands of operators, and a faulty
node may compute something new in each of its repeats for a day."""


def gpus_of(step: SavedStep) -> list[int | None]:
    """Where a step is to be computed again: each GPU that torch sees, or the processors (None) where it used no GPU.

    A GPU that computes wrong need not be the first one.
    """
    return [*range(torch.cuda.device_count())] if step.node_class.gpu else [None]


def repeat(
    reader: StepReader,
    node: str,
    seconds: float,
    clock: Callable[[], float] = time.monotonic,
    *,
    gpu: int | None = None,
) -> NodeResult:
    """Compute a step again and again for some seconds, three times at least, on one GPU where it uses any.

    Raises StepFileError where this node cannot compute it, or is of another class, so that its bits say nothing.
    """
    step = reader.step
    _check_operators(reader)
    if gpu is not None:
        torch.cuda.set_device(gpu)
    here = node_class(bool(step.node_class.gpu))
    if differs := step.node_class.difference(here):
        raise StepFileError(
            f"{reader.path}: the step and this node are of different classes ({differs}); their bits differ for good "
            "reasons. Replay it on a node of the same class, with the same variables"
        )
    with switch(step.switches):
        began = clock()
        outcomes = _Outcomes()
        while outcomes.repeats < MIN_REPEATS or clock() - began < seconds:
            outcomes.add(_once(reader))
    return NodeResult(step.id, node, outcomes.sort(), gpu)


def _check_operators(reader: StepReader) -> None:
    """Raise StepFileError, before anything is computed, for a name that stands in no table."""
    for name in {event.operator for event in reader.step.computations}:
        try:
            operator_of(name)
        except UnknownName as error:
            raise StepFileError(f"{reader.path}: {error}; made with another release of torch?") from None


class _Outcomes:
    """Counts how repeats came out."""

    def __init__(self) -> None:
        self.repeats = 0
        self._kept: Counter[tuple[str, ...]] = Counter()

    def add(self, digests: tuple[str, ...]) -> None:
        self.repeats += 1
        if digests in self._kept or len(self._kept) < MAX_OUTCOMES:
            self._kept[digests] += 1

    def sort(self) -> list[RepeatOutcome]:
        """The most frequent first; all that were not kept are the last one."""
        found = [RepeatOutcome(list(digests), repeats) for digests, repeats in self._kept.most_common()]
        others = self.repeats - self._kept.total()
        return [*found, RepeatOutcome([], others)] if others else found


def _once(reader: StepReader) -> tuple[str, ...]:
    """The digests of one repeat."""
    storages: dict[int, torch.UntypedStorage] = {}
    found: list[str] = []
    ends = _last_uses(reader.step)
    for at, event in enumerate(reader.step.events):
        if isinstance(event, Load):
            content = torch.frombuffer(reader.load(event.entry) or bytearray(1), dtype=torch.uint8)
            storages[event.storage] = content.to(event.device, copy=True).untyped_storage()  # aligned as torch does
        else:
            found.append(_compute(event, storages, reader))
        for number in ends.get(at, ()):
            storages.pop(number, None)
    return tuple(found)


def _compute(event: Computation, storages: dict[int, torch.UntypedStorage], reader: StepReader) -> str:
    try:
        args, kwargs = read(event.args, storages), {name: read(one, storages) for name, one in event.kwargs.items()}
        operator = operator_of(event.operator)
        with torch.set_grad_enabled(event.grad):
            result = operator(*args, **kwargs)
    except Exception as error:
        raise StepFileError(f"{reader.path}: {event.operator} cannot be computed here: {error}") from error
    returned = list(tensors(result))
    storages.update({n: one.untyped_storage() for n, one in zip(event.results, returned, strict=True)})
    return digest_of(find_computed(operator, args, kwargs, result)) if event.digest else ""


def _last_uses(step: SavedStep) -> dict[int, list[int]]:
    """By event: the storages that no later event needs."""
    last: dict[int, int] = {}
    for at, event in enumerate(step.events):
        numbers = [event.storage] if isinstance(event, Load) else [*event.reads, *event.results]
        last.update(dict.fromkeys(numbers, at))
    ends: dict[int, list[int]] = {}
    for number, at in last.items():
        ends.setdefault(at, []).append(number)
    return ends
