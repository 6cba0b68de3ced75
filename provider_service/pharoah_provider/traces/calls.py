"""From the calls of a profiler to the operators of a step: the same ones a capture sees from the dispatcher.

Profilers record every level of a call: `aten::linear`, in it `aten::addmm`. A capture sees what autograd cannot take
apart. Which operators torch takes apart is data (`composites.txt`), so both agree.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import NamedTuple

from pharoah_archetypes.operators import BACKWARD, FORWARD, NO_GRAD, OPTIMIZER, RECOMPUTED, Operator, Phase

MAX_CALLS = 5_000_000
TOO_MANY = f"more than {MAX_CALLS:,} operators: trace fewer steps"
_COLLECTIVES = {
    "all_reduce": "c10d::allreduce_",
    "broadcast": "c10d::broadcast_",
    "all_gather": "c10d::allgather_",
    "_all_gather_base": "c10d::_allgather_base_",
    "reduce_scatter": "c10d::reduce_scatter_",
    "_reduce_scatter_base": "c10d::_reduce_scatter_base_",
    "all_to_all": "c10d::alltoall_",
    "send": "c10d::send",
    "recv": "c10d::recv_",
}
"""Ranges that a backend draws around a collective, for releases that do not trace the collective itself."""

_BACKENDS = {"nccl", "gloo", "mpi", "ucc"}
_NO_NOTES: frozenset[str] = frozenset()


@dataclass(slots=True)
class Call:
    """One call of an operator or one named range, as a profiler wrote it down."""

    name: str
    start: float
    """When it began; only the order matters."""
    parent: int = -1
    """Position of the call around it, which comes before it in the list; -1 if there is none."""
    recorded: bool = False
    """Whether autograd was recording."""
    reads: tuple[int, ...] = ()
    writes: tuple[int, ...] = ()
    notes: frozenset[str] = _NO_NOTES


class NumberedCall(NamedTuple):
    """A call with the numbers that a trace uses."""

    number: int
    around: int
    """Number of the call around it; a number that no call has if there is none."""
    call: Call


def in_order(numbered: Iterable[NumberedCall]) -> list[Call]:
    """Calls in the order of their numbers, each with its parent set.

    Raises OverflowError for more than MAX_CALLS.
    """
    calls: dict[int, tuple[int, Call]] = {}
    for number, around, call in numbered:
        calls[number] = around, call
        if len(calls) > MAX_CALLS:
            raise OverflowError(TOO_MANY)
    places = {number: at for at, number in enumerate(sorted(calls))}
    for number, (around, call) in calls.items():
        call.parent = places[around] if around in places and around < number else -1
    return [calls[number][1] for number in places]


def range_of(name: str) -> str:
    """The operator that a backend's range around a collective stands for; any other name as it is."""
    backend, colon, collective = name.partition(":")
    return _COLLECTIVES.get(collective, name) if colon and backend in _BACKENDS else name


def steps_of(calls: Sequence[Call]) -> list[list[Operator]]:
    """The operators of each step. `calls` are in the order they began.

    A step reaches from one of the profiler's own step marks to the next where every one holds an optimizer step, else
    from one step of the first optimizer to its next; a trace without either is one step.
    """
    marks = _marks(calls)
    steps: list[list[Operator]] = [[] for _ in range(len(marks) + 1)]
    for start, operator in _dispatch(calls):
        steps[bisect_right(marks, start)].append(operator)
    # What comes after the last mark is a step cut short, unless there is no mark at all.
    return [step for step in (steps[:-1] if marks else steps) if step]


def typical(names: Iterable[str]) -> str:
    """The most frequent of some names; of equally frequent ones the first."""
    counted = Counter(names)
    return max(counted, key=lambda name: counted[name]) if counted else ""


def _marks(calls: Sequence[Call]) -> list[float]:
    """Where steps end, in order."""
    optimizers = [call for call in calls if call.name.startswith("Optimizer.step#")]
    ends = [call.start for call in optimizers if call.name == optimizers[0].name]
    begins = [call.start for call in calls if call.name.startswith("ProfilerStep#")]
    if begins:
        held = {bisect_right(begins, end) for end in ends}
        if len(begins) <= len(held - {0}):
            # Operators before the first mark belong to no step; the last range ends with the trace.
            return [*begins[1:], float("inf")]
    return ends


def _dispatch(calls: Sequence[Call]) -> Iterable[tuple[float, Operator]]:
    recording = any(call.recorded for call in calls)
    parents = {call.parent for call in calls}
    inside: list[_Place] = []
    for at, call in enumerate(calls):
        around = inside[call.parent] if call.parent >= 0 else _OUTSIDE
        place = _place(call, around)
        name = call.name.replace("::", ".", 1)
        if not around.covered and _is_operator(call.name) and not (name in composites() and at in parents):
            place = _Place(place.phase, place.recorded, covered=True)
            # Only the operators of torch itself show whether autograd recorded them.
            phase = _phase(place, recording and name.startswith("aten."))
            yield call.start, Operator(name, phase, call.reads, call.writes, call.notes)
        inside.append(place)


@dataclass(frozen=True, slots=True)
class _Place:
    """What is known of a call from those around it."""

    phase: Phase = FORWARD
    recorded: bool = False
    covered: bool = False
    """Inside an operator that a capture would see as one."""


_OUTSIDE = _Place()


def _place(call: Call, around: _Place) -> _Place:
    phase = around.phase
    if call.name.startswith("Optimizer.step#"):
        phase = OPTIMIZER
    elif call.name.startswith("autograd::engine::evaluate_function"):
        return _Place(BACKWARD)  # the node's own number says nothing of the operators in it
    recorded = around.recorded or (call.recorded and not (phase == BACKWARD and not _is_operator(call.name)))
    return _Place(phase, recorded, around.covered)


def _phase(place: _Place, recording: bool) -> Phase:
    if place.phase == BACKWARD:
        return RECOMPUTED if place.recorded else BACKWARD
    if place.phase == FORWARD and recording and not place.recorded:
        return NO_GRAD
    return place.phase


def _is_operator(name: str) -> bool:
    """`aten::mm`, `c10d::allreduce_`, `fbgemm::...`; not names of C++ classes and of ranges."""
    space, colons, rest = name.partition("::")
    return bool(colons) and space.isidentifier() and rest.isidentifier() and space not in ("torch", "autograd")


@cache
def composites() -> frozenset[str]:
    """Operators that torch takes apart before autograd sees them (`aten.linear`)."""
    return frozenset(resources.files("pharoah_archetypes").joinpath("composites.txt").read_text().split())
