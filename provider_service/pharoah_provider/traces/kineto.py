"""Kineto: what `torch.profiler` exports (Chrome trace format, `export_chrome_trace`, dynolog)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from pharoah_provider.traces.calls import MAX_CALLS, TOO_MANY, Call, range_of
from pharoah_provider.traces.notes import Tensor, notes_of

_NOT_TENSORS = {"Scalar", "ScalarList", "GenericList", "TensorList"}
_KEPT = {"cpu_op", "user_annotation", "operator", "Operator"}


class Event(NamedTuple):
    """An event in the order of its first three fields: a call comes before the calls in it."""

    begin: float
    """Microseconds."""
    negative_duration: float
    """Minus the duration in microseconds: of two calls that begin together, the longer one comes first."""
    number: int
    thread: object
    call: Call


def calls_of(events: Iterable[dict[str, Any]]) -> list[Call]:
    """The calls of the processor side, nested by time within each thread, in the order they began.

    Raises KeyError, TypeError or ValueError for an event that is none; OverflowError for more than MAX_CALLS.
    """
    kept: list[Event] = []
    for event in events:
        if event["ph"] == "X" and event.get("cat") in _KEPT:
            call = _call(event)
            number = int(event.get("args", {}).get("External id", 0))
            kept.append(
                Event(
                    begin=call.start,
                    negative_duration=-float(event.get("dur", 0)),
                    number=number,
                    thread=event["tid"],
                    call=call,
                )
            )
            if len(kept) > MAX_CALLS:
                raise OverflowError(TOO_MANY)
    kept.sort(key=lambda event: event[:3])
    return _nest(kept)


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
            if kind and kind not in _NOT_TENSORS
            and all(isinstance(size, int) for size in shape)
        ]  # fmt: skip
        call.notes = notes_of(name.replace("::", ".", 1), tensors, None, {})
    return call


def _nest(events: list[Event]) -> list[Call]:
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
