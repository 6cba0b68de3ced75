"""Telemetry as spans: a row for each stretch of equal readings of one signal, and no reading twice.

Signals say whether there is trouble, so most of them read 0 for weeks: a row per reading would be 1.5 billion rows in a
week of 1,250 nodes. An agent sends again what was not acknowledged when its connection was lost; what is dated within
the time that it keeps and not after the newest reading was stored before.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import repeat
from math import isnan
from typing import NamedTuple

import duckdb

from pharoah_provider.storage.duckdb.database import appending, executing_with, reading_with
from pharoah_provider.storage.duckdb.statements import statements

SQL = statements("telemetry")
MAX_GAP_SECONDS = 10.0
"""Readings that are further apart are not one span: an agent sends one every two seconds (`services.agent`)."""
KEPT_SECONDS = 1100.0
"""A reading that is older than the newest one by less than this was sent again: an agent keeps 500 batches of two
seconds (`agent.stream.KEPT_BATCHES`), and a tenth is for its pauses. One that is still older comes from a clock that
was set back, and begins a new span."""


class SignalKey(NamedTuple):
    """One signal of one device of a node."""

    node: str
    metric: str
    device: str


@dataclass(frozen=True)
class TelemetryBatch:
    """What a node has sent at once: columns of equal length, times in unix seconds."""

    node: str
    at: Sequence[float]
    metric: Sequence[str]
    device: Sequence[str]
    value: Sequence[float]


@dataclass(frozen=True)
class TelemetrySpan:
    """Readings of one signal with equal values."""

    value: float
    """NaN where a reading is missing."""
    first_at: float
    last_at: float
    """Unix seconds, by the node's clock."""
    readings: int = 1

    def again(self, at: float) -> bool:
        """Whether a reading of this time was stored before."""
        return self.last_at - KEPT_SECONDS < at <= self.last_at

    def continues(self, at: float, value: float) -> bool:
        """Whether a reading belongs to this span."""
        equal = value == self.value or (isnan(value) and isnan(self.value))
        return equal and 0.0 < at - self.last_at <= MAX_GAP_SECONDS


class SignalSpan(NamedTuple):
    """A span with its signal."""

    key: SignalKey
    span: TelemetrySpan


@dataclass(frozen=True)
class TelemetryChanges:
    """What readings change; `started` and `extended` are open spans."""

    closed: Sequence[SignalSpan]
    started: dict[SignalKey, TelemetrySpan]
    extended: dict[SignalKey, TelemetrySpan]


def extend(before: dict[SignalKey, TelemetrySpan], batches: Iterable[TelemetryBatch]) -> TelemetryChanges:
    """What to commit for batches in the order in which they came, given the open span of each signal."""
    now, closed, started, grown = (
        dict(before),
        list[SignalSpan](),
        set[SignalKey](),
        set[SignalKey](),
    )
    for batch in batches:
        rows = zip(repeat(batch.node), batch.metric, batch.device, batch.at, batch.value, strict=False)
        for node, metric, device, at, value in rows:
            key = SignalKey(node, metric, device)
            span = now.get(key)
            if span is not None and span.again(at):
                continue
            if span is not None and span.continues(at, value):
                now[key] = replace(span, last_at=at, readings=span.readings + 1)
                grown.add(key)
                continue
            if span is not None:
                closed.append(SignalSpan(key, span))
            now[key] = TelemetrySpan(value, at, at)
            started.add(key)
    return TelemetryChanges(closed, {key: now[key] for key in started}, {key: now[key] for key in grown - started})


def write_telemetry(connection: duckdb.DuckDBPyConnection, batches: Sequence[TelemetryBatch]) -> None:
    """Write the batches of several nodes. What is open is read in the same transaction: this thread alone writes."""
    changes = extend(_open_spans(connection, batches), batches)
    if changes.closed:
        appending("telemetry_spans", _columns(changes.closed))(connection)
    if changes.started:
        started = [SignalSpan(*one) for one in changes.started.items()]
        executing_with(SQL["remove_open"], _columns(started))(connection)
        appending("open_telemetry_spans", _columns(started))(connection)
    if changes.extended:
        executing_with(SQL["extend"], _columns([SignalSpan(*one) for one in changes.extended.items()]))(connection)


def _open_spans(
    connection: duckdb.DuckDBPyConnection, batches: Iterable[TelemetryBatch]
) -> dict[SignalKey, TelemetrySpan]:
    """The open spans of the signals in some batches, and of no others: a node may have sent any number of names."""
    keys = {key for one in batches for key in zip(repeat(one.node), one.metric, one.device, strict=False)}
    columns = {name: [key[at] for key in keys] for at, name in enumerate(SignalKey._fields)}
    rows = reading_with(connection, SQL["open_spans"], columns)
    return {SignalKey(*row[:3]): TelemetrySpan(*row[3:]) for row in rows}


def _columns(spans: Sequence[SignalSpan]) -> dict[str, list[object]]:
    """Spans as columns."""
    keys = {name: [getattr(key, name) for key, _ in spans] for name in SignalKey._fields}
    names = ("value", "first_at", "last_at", "readings")
    return {**keys, **{name: [getattr(span, name) for _, span in spans] for name in names}}
