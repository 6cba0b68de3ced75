"""What is lost after a kill is counted second by second and reading by reading, so no duplicate hides a loss."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path

import duckdb
import pytest

from evaluation.ingest.kills import Stored, stored_reports, stored_telemetry
from evaluation.ingest.load import SIGNALS, Job
from evaluation.ingest.site import RANKS, run_id
from pharoah_provider.storage.duckdb import DuckStorage
from tests.harness.database import new_database

ACKNOWLEDGED = 5
"""Seconds of the job, or batches of the node."""
WHOLE = [range(ACKNOWLEDGED)]


def reports_in(path: Path, spans_of_rank: Mapping[int, Sequence[range]]) -> Stored:
    """The job has one rank with these spans; all others have every second. The last span is still open."""
    new_database(path)
    with duckdb.connect(str(path)) as connection:
        for rank in range(RANKS):
            *closed, still_open = spans_of_rank.get(rank, WHOLE)
            for table, spans in (("report_spans", closed), ("open_report_spans", [still_open])):
                for span in spans:
                    connection.execute(
                        f"INSERT INTO {table} (run_id, rank, first_second, last_second) VALUES (?, ?, ?, ?)",
                        [run_id(3), rank, span.start, span.stop - 1],
                    )
    storage = DuckStorage(path)
    try:
        return asyncio.run(stored_reports(storage, [Job(3, 0.0, ACKNOWLEDGED)]))
    finally:
        storage.close()


@pytest.mark.parametrize(
    ("spans", "found"),
    [
        (WHOLE, Stored(0, 0)),
        ([range(2), range(2, 3), range(3, 5)], Stored(0, 0)),
        ([range(5), range(5, 7)], Stored(0, 0)),  # the acknowledgement of two seconds was still on its way
        ([range(2), range(3, 5)], Stored(1, 0)),
        ([range(4)], Stored(1, 0)),
        ([range(1, 5)], Stored(1, 0)),
        ([range(5), range(2, 4)], Stored(0, 2)),
        ([range(2), range(1, 2), range(3, 5)], Stored(1, 1)),  # as many seconds as were acknowledged
        ([range(3), range(4, 7)], Stored(1, 0)),  # more seconds than were acknowledged
    ],
)
def test_every_second_of_a_rank_counts(tmp_path: Path, spans: list[range], found: Stored) -> None:
    assert reports_in(tmp_path / "p.duckdb", {2: spans}) == found


def test_a_job_without_a_row_is_lost_whole(tmp_path: Path) -> None:
    new_database(tmp_path / "p.duckdb")
    storage = DuckStorage(tmp_path / "p.duckdb")
    assert asyncio.run(stored_reports(storage, [Job(3, 0.0, 2)])) == Stored(2 * RANKS, 0)
    assert asyncio.run(stored_telemetry(storage, {"n1": 3})) == Stored(3 * len(SIGNALS), 0)
    storage.close()


def telemetry_in(path: Path, batches: Sequence[int]) -> Stored:
    """One signal of the node has the readings of these batches, and all others those of every batch."""
    new_database(path)
    with duckdb.connect(str(path)) as connection:
        for metric in SIGNALS:
            for value in batches if metric == SIGNALS[1] else range(1, ACKNOWLEDGED + 1):
                connection.execute(
                    "INSERT INTO telemetry_spans (node, metric, device, value, readings) VALUES ('n1', ?, '', ?, 1)",
                    [metric, float(value)],
                )
    storage = DuckStorage(path)
    try:
        return asyncio.run(stored_telemetry(storage, {"n1": ACKNOWLEDGED}))
    finally:
        storage.close()


@pytest.mark.parametrize(
    ("batches", "found"),
    [
        ([1, 2, 3, 4, 5], Stored(0, 0)),
        ([1, 2, 3, 4, 5, 6], Stored(0, 0)),  # the acknowledgement of the last was still on its way
        ([1, 2, 4, 5, 6], Stored(1, 0)),  # as many batches as were acknowledged
        ([1, 2, 2, 4, 5], Stored(1, 1)),
        ([], Stored(5, 0)),
    ],
)
def test_every_reading_of_a_signal_counts(tmp_path: Path, batches: list[int], found: Stored) -> None:
    assert telemetry_in(tmp_path / "p.duckdb", batches) == found
