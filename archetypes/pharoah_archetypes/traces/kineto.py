"""Kineto: what `torch.profiler` exports (Chrome trace format, `export_chrome_trace`, dynolog)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pharoah_archetypes.traces.calls import MOST_CALLS, TOO_MANY, Call
from pharoah_archetypes.traces.notes import Tensor, notes_of

_KEPT = {"cpu_op", "user_annotation", "operator", "Operator"}
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

Event = tuple[float, float, int, object, Call]
"""Begin, minus duration, number, thread, and the call: what is around comes before what is in it."""


def calls_of(events: Iterable[dict[str, Any]]) -> list[Call]:
    """The calls of the processor side, nested by time within each thread, in the order they began.

    Raises KeyError, TypeError or ValueError for an event that is none; OverflowError for more than MOST_CALLS.
    """
    kept: list[Event] = []
    for event in events:
        if event.get("ph") == "X" and event.get("cat") in _KEPT:
            call = _call(event)
            number = int(event.get("args", {}).get("External id", 0))
            kept.append((call.start, -float(event.get("dur", 0)), number, event["tid"], call))
            if len(kept) > MOST_CALLS:
                raise OverflowError(TOO_MANY)
    kept.sort(key=lambda event: event[:3])
    return _nested(kept)


def range_of(name: str) -> str:
    """The operator that a backend's range around a collective stands for; any other name as it is."""
    backend, colon, collective = name.partition(":")
    return _COLLECTIVES.get(collective, name) if colon and backend in _BACKENDS else name


def _call(event: dict[str, Any]) -> Call:
    arguments = event.get("args", {})
    name = str(event["name"])
    call = Call(range_of(name), float(event["ts"]), recorded="Sequence number" in arguments)
    kinds = arguments.get("Input type") or ()
    if kinds:
        shapes = arguments.get("Input Dims") or ()
        tensors = [
            Tensor(tuple(shape), kind)
            for shape, kind in zip(shapes, kinds, strict=False)
            if kind and kind not in ("Scalar", "ScalarList", "GenericList", "TensorList")
            and all(isinstance(size, int) for size in shape)
        ]  # fmt: skip
        call.notes = notes_of(name.replace("::", ".", 1), tensors, None, {})
    return call


def _nested(events: list[Event]) -> list[Call]:
    """Set each call's parent: the shortest call of its thread that was running when it began."""
    running: dict[object, list[tuple[float, int]]] = {}
    for at, (begin, negative, _, thread, call) in enumerate(events):
        stack = running.setdefault(thread, [])
        # Old traces have whole microseconds: what begins as another ends is in it only if it takes no time.
        while stack and (stack[-1][0] < begin or (stack[-1][0] == begin and negative)):
            stack.pop()
        call.parent = stack[-1][1] if stack else -1
        stack.append((begin - negative, at))
    return [call for *_, call in events]
