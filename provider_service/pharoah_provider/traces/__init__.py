"""Traces of jobs that already ran, read to the same canonical form as a capture.

Kineto (`torch.profiler`), PyTorch execution traces and Chakra; plain, gzip, or several in a tar archive. Reading is
streamed: memory grows with the operators of a trace, not with its size. Standard library only.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from pathlib import Path
from typing import Any

from pharoah_archetypes.canonical import Skeleton, canonicalize
from pharoah_provider.traces import chakra, execution, kineto
from pharoah_provider.traces.calls import Call, steps_of, typical
from pharoah_provider.traces.files import DocumentEntry, Reader, TraceError, entries, members

__all__ = ["Trace", "TraceError", "read_traces"]


class TraceKind(StrEnum):
    """The tool that wrote a trace."""

    KINETO = "kineto"
    EXECUTION = "execution"
    """PyTorch's execution trace observer."""
    CHAKRA = "chakra"


_LISTS = {"traceEvents": TraceKind.KINETO, "nodes": TraceKind.EXECUTION, "workload_graph": TraceKind.CHAKRA}
"""The key of the list that holds the operators."""
_FACTS = {"distributedInfo", "deviceProperties"}


@dataclass(frozen=True)
class Trace:
    """What one trace says about a job."""

    source: str
    """File, and its name within an archive."""
    kind: TraceKind
    steps: tuple[Skeleton, ...]
    """One for each step; empty when nothing in it has structure."""
    follows_values: bool
    """Whether the trace records which operator reads the output of another; without it, gates and cross attention are
    not found."""
    rank: int | None = None
    world_size: int | None = None
    gpu: str = ""

    @cached_property
    def skeleton(self) -> Skeleton | None:
        """The step that occurs most often, which is the one to compare."""
        name = typical(step.archetype for step in self.steps)
        return next((step for step in self.steps if step.archetype == name), None)


def read_traces(path: Path, unread: list[TraceError] | None = None) -> Iterator[Trace]:
    """Every trace in a file or archive. Raises TraceError, with the byte, where one is damaged or foreign. With the
    list `unread` the error about a trace is put there, and the other traces of its archive are read."""
    for source, stream in members(path):
        try:
            trace = _read(Reader(source, stream))
        except TraceError as error:
            if unread is None:
                raise
            unread.append(error)
        else:
            yield trace


def _read(reader: Reader) -> Trace:
    if reader.peek(64).lstrip()[:1] in (b"{", b"["):
        return _from_json(reader)
    return _trace(TraceKind.CHAKRA, reader, chakra.protobuf_nodes(reader), {})


def _from_json(reader: Reader) -> Trace:
    facts: dict[str, Any] = {}
    pairs = _until_list(reader, facts)
    first = next(pairs, None)
    if first is None:
        raise reader.fault(f"no list of {', '.join(_LISTS)}: neither Kineto nor an execution trace nor Chakra")
    kind = TraceKind.KINETO if first.key == "" else _LISTS[first.key]
    nodes = (entry for _, entry in _chain(first, pairs))
    return _trace(kind, reader, map(chakra.json_node, nodes) if kind is TraceKind.CHAKRA else nodes, facts)


def _until_list(reader: Reader, facts: dict[str, Any]) -> Iterator[DocumentEntry]:
    """Entries of the list that holds the operators; on the way, facts about the run."""
    for key, entry in entries(reader):
        if key in _LISTS or key == "":
            if not isinstance(entry, dict):
                raise reader.fault(f"an entry of {key or 'the list'} is no object")
            yield DocumentEntry(key=key, value=entry)
        elif key in _FACTS and isinstance(entry, dict):
            facts.setdefault(key, entry)


def _chain(first: DocumentEntry, rest: Iterable[DocumentEntry]) -> Iterator[DocumentEntry]:
    yield first
    yield from rest


def _trace(kind: TraceKind, reader: Reader, nodes: Iterable[dict[str, Any]], facts: dict[str, Any]) -> Trace:
    try:
        calls = {TraceKind.KINETO: kineto, TraceKind.EXECUTION: execution, TraceKind.CHAKRA: chakra}[kind].calls_of(
            nodes
        )
    except (KeyError, TypeError, ValueError, IndexError, AttributeError) as fault:
        if isinstance(fault, TraceError):
            raise
        raise reader.fault(f"no {kind} entry before here: {type(fault).__name__}: {fault}") from None
    except OverflowError as fault:
        raise reader.fault(str(fault)) from None
    skeletons = (canonicalize(operators) for operators in steps_of(calls))
    run = facts.get("distributedInfo", {})
    return Trace(
        reader.source,
        kind,
        tuple(skeleton for skeleton in skeletons if skeleton.forward or skeleton.backward),
        _follows_values(calls),
        run.get("rank"),
        run.get("world_size"),
        str(facts.get("deviceProperties", {}).get("name", "")),
    )


def _follows_values(calls: Iterable[Call]) -> bool:
    return any(call.reads for call in calls)
