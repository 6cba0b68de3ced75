"""Telemetry is stored as stretches of equal readings, each reading once, whatever the clocks of nodes do."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from pathlib import Path

import duckdb
from hypothesis import given
from hypothesis import strategies as st

from pharoah_provider.storage.duckdb import DuckStorage
from pharoah_provider.storage.duckdb.database import migrate
from pharoah_provider.storage.duckdb.telemetry import KEPT_SECONDS, SignalKey, TelemetryBatch, TelemetrySpan, extend
from tests.harness.listings import listed

KEY = SignalKey("n1", "m", "")
NAN = float("nan")


def batch(at: float, value: float, node: str = "n1") -> TelemetryBatch:
    return TelemetryBatch(node, [at], ["m"], [""], [value])


def after(*batches: TelemetryBatch) -> list[TelemetrySpan]:
    """All spans of the first node, oldest first, when each batch is committed alone."""
    open_spans, spans = dict[SignalKey, TelemetrySpan](), list[TelemetrySpan]()
    for one in batches:
        changes = extend(open_spans, [one])
        spans += [span for key, span in changes.closed if key == KEY]
        open_spans |= {**changes.started, **changes.extended}
    return [*spans, open_spans[KEY]]


@given(st.lists(st.sampled_from([0.0, 1.0]), min_size=1, max_size=30), st.data())
def test_readings_that_are_sent_again_are_stored_once(values: list[float], data: st.DataObject) -> None:
    sent = [batch(1000.0 + 2 * at, value) for at, value in enumerate(values)]
    lost_at = data.draw(st.integers(0, len(sent)))
    again_from = data.draw(st.integers(0, lost_at))
    whole, disturbed = after(*sent), after(*sent[:lost_at], *sent[again_from:])
    assert disturbed == whole
    assert sum(span.readings for span in whole) == len(values)
    assert all(before.value != later.value for before, later in pairwise(whole))


@given(st.lists(st.sampled_from([0.0, 1.0]), min_size=2, max_size=20))
def test_batches_that_are_committed_together_are_stored_as_one_by_one(values: list[float]) -> None:
    sent = [batch(1000.0 + 2 * at, value) for at, value in enumerate(values)]
    together = extend({}, sent)
    assert [span for _, span in together.closed] + [{**together.started, **together.extended}[KEY]] == after(*sent)


def test_a_missing_reading_a_gap_and_a_clock_that_was_set_back_begin_a_new_span() -> None:
    one, two = after(batch(1000.0, 0.0), batch(1020.0, 0.0))
    assert (one.last_at, two.first_at) == (1000.0, 1020.0)
    assert [span.readings for span in after(batch(1000.0, NAN), batch(1002.0, NAN), batch(1004.0, 0.0))] == [2, 1]
    back = 1000.0 - KEPT_SECONDS - 1.0
    assert [span.first_at for span in after(batch(1000.0, 0.0), batch(back, 0.0), batch(back + 2, 0.0))] == [
        1000.0,
        back,
    ]


def test_the_listing_has_the_newest_value_and_since_when(tmp_path: Path) -> None:
    async def work() -> None:
        storage = DuckStorage(tmp_path / "p.duckdb")
        try:
            for at, value in ((1000.0, 0.0), (1002.0, 1.0), (1004.0, 1.0), (1004.0, 1.0)):
                for node in ("n1", "n2"):
                    await storage.nodes.append_telemetry(node, [at], ["m"], [""], [value])
            one, other = await listed(storage, "telemetry")
            assert (one["node"], one["value"], one["since"], one["sampled_at"]) == ("n1", 1.0, 1002.0, 1004.0)
            assert {**other, "node": "n1"} == one
            (stored,) = await storage.select("SELECT sum(readings) AS n FROM open_telemetry_spans")
            assert stored["n"] == 4, "the two newest readings of each node"
        finally:
            storage.close()

    asyncio.run(work())


def test_telemetry_of_an_older_release_becomes_spans(tmp_path: Path) -> None:
    with duckdb.connect(str(tmp_path / "p.duckdb")) as connection:
        migrate(connection, before=46)
        rows = [(1000.0, 0.0), (1002.0, 0.0), (1004.0, 1.0), (1006.0, NAN), (1008.0, NAN), (1100.0, NAN)]
        connection.executemany("INSERT INTO telemetry VALUES ('n1', ?, 'm', '', ?)", rows)
        migrate(connection)
        found = connection.execute(
            "SELECT first_at, last_at, readings FROM telemetry_spans ORDER BY first_at"
        ).fetchall()
    assert found == [(1000.0, 1002.0, 2), (1004.0, 1004.0, 1), (1006.0, 1008.0, 2), (1100.0, 1100.0, 1)]
