"""`python -m evaluation storage`: what a day of reports weighs, and whether old rows are really deleted.

Simulated runs report through the real storage, in the largest batches that the service accepts; only the time between
batches is left out. The same reports are written side by side into the layout without spans: a row per second and rank.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa

from evaluation.figures import Figures
from pharoah_protocol.reports import ratio
from pharoah_provider.domain import Report, Run
from pharoah_provider.services.runs import MAX_BATCH
from pharoah_provider.storage.duckdb import DuckStorage
from pharoah_provider.storage.retention import DAY_SECONDS, RETENTION, RetentionTask, retention

RUNS, RANKS, HOURS = 100, 8, 24
QUICK_RUNS, QUICK_HOURS = 10, 4
BATCH_SECONDS = MAX_BATCH // RANKS
FIRST_SECOND_AT = 1_800_000_000.0
"""Unix seconds at which the simulated day begins."""
TELEMETRY_SECONDS = 60
TIMES = {
    "telemetry": {"telemetry_spans": "last_at", "open_telemetry_spans": "last_at"},
    "reports": {"report_spans": "ended_at", "open_report_spans": "ended_at"},
}
"""Table of the retention to the tables of the database and the column that is their time."""

# What a simulated run does. A healthy run reports level 0 all day (`python -m evaluation loop`); the numbers below are
# assumptions about how often it does not, on the high side.
DISTURBANCES_PER_DAY = 6.0
"""Times at which a rank becomes slow: its level then changes every few seconds."""
DISTURBANCE_SECONDS = 300.0
LEVEL_HOLDS_SECONDS = 5.0
"""Mean time for which a level stays the same while a rank is disturbed."""
MEMORY_CHANGES_PER_DAY = 2.0
PROBES_PER_DAY = 30.0
PROBE_SECONDS = 5
RISK_WINDOWS = 16
"""The risk of a second depends on so many seconds before it, as many as the provider keeps."""


@dataclass
class SimulatedRun:
    """The reports of one run: arrays of shape (seconds, ranks), masks and risks like them."""

    run: Run
    step_levels: np.ndarray
    memory_levels: np.ndarray
    masked: np.ndarray
    risk: np.ndarray

    @classmethod
    def draw(cls, number: int, seconds: int, chance: np.random.Generator) -> SimulatedRun:
        """A run of `seconds` seconds."""
        run = Run(number.to_bytes(16, "big"), "tenant", f"n{number}", 1, RANKS, True, 60.0)
        steps = np.stack([_step_levels(seconds, chance) for _ in range(RANKS)], axis=1)
        memory = np.stack([_memory_levels(seconds, chance) for _ in range(RANKS)], axis=1)
        masked = np.zeros((seconds, 1), dtype=bool)
        for began in _moments(seconds, PROBES_PER_DAY, chance):
            masked[began : began + PROBE_SECONDS] = True
        masked = np.repeat(masked, RANKS, axis=1)
        # Sums of integers: equal seconds have exactly equal risks, as they have in the provider.
        summed = np.cumsum(np.vstack([np.zeros((RISK_WINDOWS, RANKS), dtype=np.int64), steps]), axis=0)
        risk = (summed[RISK_WINDOWS:] - summed[:-RISK_WINDOWS]) / RISK_WINDOWS
        return cls(run, steps, memory, masked, np.where(masked, np.nan, risk))

    def reports(self, first: int, last: int) -> tuple[list[Report], list[bool], list[float]]:
        """The seconds from `first` to before `last`: reports, masks and risks, as the service stores them."""
        rows = [
            Report(second, rank, FIRST_SECOND_AT + second + 1.0, 1.0, RATIOS[step], RATIOS[memory])
            for second in range(first, last)
            for rank, (step, memory) in enumerate(
                zip(self.step_levels[second].tolist(), self.memory_levels[second].tolist(), strict=True)
            )
        ]
        return rows, self.masked[first:last].ravel().tolist(), self.risk[first:last].ravel().tolist()


RATIOS = {level: ratio(level) for level in range(-32, 33)}


def _moments(seconds: int, per_day: float, chance: np.random.Generator) -> list[int]:
    count = chance.poisson(per_day * seconds / DAY_SECONDS)
    return sorted(chance.integers(0, seconds, count).tolist())


def _step_levels(seconds: int, chance: np.random.Generator) -> np.ndarray:
    levels = np.zeros(seconds, dtype=np.int64)
    for began in _moments(seconds, DISTURBANCES_PER_DAY, chance):
        at, end = began, min(seconds, began + int(chance.exponential(DISTURBANCE_SECONDS)))
        while at < end:
            held = 1 + int(chance.exponential(LEVEL_HOLDS_SECONDS))
            levels[at : min(at + held, end)] = chance.integers(2, 7)
            at += held
    return levels


def _memory_levels(seconds: int, chance: np.random.Generator) -> np.ndarray:
    levels = np.zeros(seconds, dtype=np.int64)
    for began in _moments(seconds, MEMORY_CHANGES_PER_DAY, chance):
        levels[began:] += 1
    return levels


class RowPerSecond:
    """The layout that spans replaced, in a database of its own."""

    def __init__(self, path: Path) -> None:
        self._connection = duckdb.connect(str(path))
        self._connection.execute(
            "CREATE TABLE reports (run_id BLOB, attempt INTEGER, row_number BIGINT, rank INTEGER, ended_at DOUBLE, "
            "span_seconds DOUBLE, step_ratio DOUBLE, memory_ratio DOUBLE, masked BOOLEAN, risk DOUBLE)"
        )

    def append(self, runs: list[SimulatedRun], first: int, last: int) -> None:
        """The same seconds of all runs, run by run."""
        seconds, table = np.repeat(np.arange(first, last), RANKS), np.array([RATIOS[n] for n in range(-32, 33)])
        for one in runs:
            size = len(seconds)
            batch = pa.table(
                {
                    "run_id": pa.array([one.run.run_id]).take(pa.array(np.zeros(size, dtype=np.int64))),
                    "attempt": np.ones(size, dtype=np.int32),
                    "row_number": seconds,
                    "rank": np.tile(np.arange(RANKS, dtype=np.int32), last - first),
                    "ended_at": FIRST_SECOND_AT + seconds + 1.0,
                    "span_seconds": np.ones(size),
                    "step_ratio": table[one.step_levels[first:last].ravel() + 32],
                    "memory_ratio": table[one.memory_levels[first:last].ravel() + 32],
                    "masked": one.masked[first:last].ravel(),
                    "risk": one.risk[first:last].ravel(),
                }
            )
            self._connection.register("batch", batch)
            self._connection.execute("INSERT INTO reports BY NAME SELECT * FROM batch")
            self._connection.unregister("batch")

    def close(self) -> int:
        """Write everything to the file; the number of rows."""
        counted = self._connection.execute("SELECT count(*) FROM reports").fetchone()
        self._connection.close()
        return int(counted[0]) if counted else 0


def run(arguments: argparse.Namespace) -> int:
    """Print the figures; returns 1 when a row is kept past its retention."""
    count, hours = (QUICK_RUNS, QUICK_HOURS) if arguments.quick else (RUNS, HOURS)
    chance, figures = np.random.default_rng(arguments.seed), Figures("storage")
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(_measure(Path(folder), count, hours, chance, figures))
    return figures.finish(arguments)


async def _measure(folder: Path, count: int, hours: int, chance: np.random.Generator, figures: Figures) -> None:
    seconds = hours * 3600
    runs = [SimulatedRun.draw(number, seconds, chance) for number in range(count)]
    print(f"{count} runs of {RANKS} ranks, {hours} hours, batches of {BATCH_SECONDS} seconds", flush=True)
    spans, rows = folder / "spans.duckdb", folder / "rows.duckdb"
    storage, old = DuckStorage(spans), RowPerSecond(rows)
    began = time.monotonic()
    for first in range(0, seconds, BATCH_SECONDS):
        last = min(first + BATCH_SECONDS, seconds)
        await asyncio.gather(*(storage.runs.append_reports(one.run, *one.reports(first, last)) for one in runs))
        old.append(runs, first, last)
        if first // 3600 != last // 3600:
            print(f"  hour {last // 3600} of {hours} after {time.monotonic() - began:.0f} s", flush=True)
    stored = await storage.select(
        "SELECT count(*) AS spans, sum(last_second - first_second + 1) AS seconds "
        "FROM (SELECT * FROM report_spans UNION ALL BY NAME SELECT * FROM open_report_spans)"
    )
    storage.close()
    old_rows = old.close()
    figures.add("rank_seconds", old_rows)
    figures.add(
        "seconds_missing_in_spans", old_rows - int(stored[0]["seconds"]), "0", old_rows == int(stored[0]["seconds"])
    )
    figures.add("spans", int(stored[0]["spans"]))
    figures.add("megabytes_with_spans", spans.stat().st_size / 1e6)
    figures.add("megabytes_row_per_second", rows.stat().st_size / 1e6)
    figures.add("size_ratio", spans.stat().st_size / rows.stat().st_size)
    await _old_rows(spans, seconds, figures)


async def _old_rows(path: Path, seconds: int, figures: Figures) -> None:
    """Let half of the reports become older than their retention, and run the daily task."""
    storage = DuckStorage(path)
    at = np.arange(0, seconds, TELEMETRY_SECONDS) + FIRST_SECOND_AT
    await storage.nodes.append_telemetry("n1", at.tolist(), ["m"] * len(at), [""] * len(at), at.tolist())
    middle = FIRST_SECOND_AT + seconds / 2
    kept = 0
    for table in ("telemetry", "reports"):  # the table with the shorter retention first
        now = middle + RETENTION[table].days * DAY_SECONDS
        await RetentionTask(storage, retention({}), partial(float, now), partial(float, 0)).run()
        for name, moment in TIMES[table].items():
            counted = await storage.select(f"SELECT count(*) AS n FROM {name} WHERE {moment} < {middle!r}")
            kept += int(counted[0]["n"])
    left = await storage.select("SELECT count(*) AS n FROM report_spans")
    figures.add("spans_left_within_retention", int(left[0]["n"]))
    figures.add("rows_kept_past_retention", kept, "0", kept == 0)
    storage.close()
