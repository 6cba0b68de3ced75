"""Rows of many callers that are committed together: the same rows as one by one, and each caller pays its share."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

import duckdb
from hypothesis import given, settings
from hypothesis import strategies as st

from pharoah_provider.domain import Report, Run
from pharoah_provider.storage.duckdb import DuckStorage, database
from pharoah_provider.storage.duckdb.changes import Rows, make_all
from pharoah_provider.storage.duckdb.database import Database
from pharoah_serving.costs import Cost, charging
from tests.harness.database import new_database
from tests.harness.listings import listed

RUNS, RANKS = 3, 2
LEVELS = st.sampled_from([1.0, 1.5])
HISTORIES = st.lists(
    st.lists(st.tuples(LEVELS, LEVELS), min_size=RUNS, max_size=RUNS),
    min_size=1,
    max_size=6,
)
"""For each second, the step ratios of the ranks of each run."""


def reports(second: int, ratios: Sequence[float]) -> list[Report]:
    return [Report(second, rank, 1000.0 + second, 1.0, ratio, 1.0) for rank, ratio in enumerate(ratios)]


async def stored(folder: Path, history: list[list[tuple[float, float]]], together: bool) -> list[dict[str, Any]]:
    """What a storage holds after the history, when the runs report at the same time or one after the other."""
    new_database(folder / "p.duckdb")
    storage = DuckStorage(folder / "p.duckdb")
    runs = [Run(bytes([number]) * 16, "acme", f"n{number}", 1, RANKS, True, 1.0) for number in range(RUNS)]
    try:
        for second, of_runs in enumerate(history):
            work = [
                storage.runs.append_reports(run, reports(second, ratios), [False] * RANKS, [0.0] * RANKS)
                for run, ratios in zip(runs, of_runs, strict=True)
            ]
            if together:
                await asyncio.gather(*work)
            else:
                for one in work:
                    await one
        found = await storage.select(
            "SELECT * FROM report_spans UNION ALL SELECT * FROM open_report_spans ORDER BY ALL"
        )
        assert await listed(storage, "reports")
        return found
    finally:
        storage.close()


@settings(max_examples=15, deadline=None)
@given(HISTORIES)
def test_reports_that_are_committed_together_are_stored_as_one_by_one(history: list[list[tuple[float, float]]]) -> None:
    found = []
    for together in (True, False):
        with TemporaryDirectory() as folder:
            found.append(asyncio.run(stored(Path(folder), history, together)))
    assert found[0] == found[1]
    seconds = sum(row["last_second"] - row["first_second"] + 1 for row in found[0])
    assert seconds == RUNS * RANKS * len(history), "each second of each rank is stored once"


def test_a_report_whose_call_was_cancelled_in_the_queue_is_stored_once_when_it_is_sent_again(tmp_path: Path) -> None:
    run = Run(b"r" * 16, "acme", "n1", 1, 1, True, 1.0)

    async def work() -> list[dict[str, Any]]:
        storage = DuckStorage(tmp_path / "p.duckdb")
        try:
            await storage.runs.put_run(run)
            for second in range(40):
                one = (run, [Report(second, 0, 1000.0 + second, 1.0, 1.0 + second % 2, 1.0)], [False], [0.0])
                call = asyncio.create_task(storage.runs.append_reports(*one))
                for _ in range(second % 6):  # from before it is queued to after it is committed
                    await asyncio.sleep(0)
                call.cancel()
                await asyncio.wait({call})
                if await storage.runs.last_row_number(run.run_id, 1) < second:
                    await storage.runs.append_reports(*one)
            return await storage.select("SELECT * FROM report_spans UNION ALL SELECT * FROM open_report_spans")
        finally:
            storage.close()

    rows = sorted(asyncio.run(work()), key=lambda row: int(row["first_second"]))
    assert [(row["first_second"], row["last_second"]) for row in rows] == [(second, second) for second in range(40)]


def test_rows_are_written_in_one_call_and_never_change_places_with_another_change() -> None:
    calls: list[object] = []

    def write(_: object, contents: Sequence[object]) -> None:
        calls.append(tuple(contents))

    changes = [Rows(write, 1, 1), Rows(write, 2, 1), lambda _: calls.append("alone"), Rows(write, 3, 1)]
    with duckdb.connect() as connection:
        make_all(connection, changes)
    assert calls == [(1, 2), "alone", (3,)]


def test_each_caller_pays_for_its_rows() -> None:
    costs = [Cost(), Cost()]

    def write(_: object, contents: Sequence[object]) -> None:
        sum(range(2_000_000))  # some time of this thread

    with duckdb.connect() as connection:
        make_all(connection, [Rows(write, None, 1, costs[0]), Rows(write, None, 3, costs[1])])
    few, many = (cost.take() for cost in costs)
    assert few > 0 and abs(many / few - 3.0) < 1e-9


def test_each_caller_pays_for_its_share_of_a_commit(tmp_path: Path) -> None:
    """What DuckDB writes, it writes at the commit."""

    async def work() -> float:
        db, cost = Database(tmp_path / "p.duckdb"), Cost()
        with charging(cost), patch.object(database, "measure", lambda change: change):  # the change itself is free
            await db.execute("CREATE TABLE texts (text TEXT)")
        db.close()
        return cost.take()

    assert asyncio.run(work()) > 0


def test_after_a_restart_all_open_spans_go_on_without_a_read_for_each_run(tmp_path: Path) -> None:
    runs = [Run(bytes([number]) * 16, "acme", f"n{number}", 1, 1, True, 1.0) for number in range(4)]

    async def second(storage: DuckStorage, number: int) -> None:
        rows = [Report(number, 0, 1000.0 + number, 1.0, 1.0, 1.0)]
        await asyncio.gather(*(storage.runs.append_reports(run, rows, [False], [0.0]) for run in runs[:3]))

    async def before() -> None:
        storage = DuckStorage(tmp_path / "p.duckdb")
        await asyncio.gather(*(storage.runs.put_run(run) for run in runs))
        await second(storage, 0)
        storage.close()

    async def after() -> list[dict[str, Any]]:
        storage = DuckStorage(tmp_path / "p.duckdb")
        assert len(await storage.runs.active_runs()) == 4
        with patch.object(Database, "query", side_effect=AssertionError("a read for one run")):
            await second(storage, 1)
            assert [await storage.runs.last_row_number(run.run_id, 1) for run in runs] == [1, 1, 1, -1]
        await second(storage, 2)
        await storage.runs.active_runs()  # what was written meanwhile stays known
        await second(storage, 3)
        rows = await storage.select("SELECT first_second, last_second FROM open_report_spans")
        storage.close()
        return rows

    asyncio.run(before())
    assert asyncio.run(after()) == [{"first_second": 0, "last_second": 3}] * 3
