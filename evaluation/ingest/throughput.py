"""How many rows a second the provider takes in by its whole path, beside bare appends of equal batches.

A row is one second of one rank. The whole path is what a sidecar waits for: gRPC, identity, turns, budgets, checks,
scoring, the commit, and the acknowledgement after it. A bare append is one Arrow table of the same rows and one commit
(`bare_appends`): every message of the real path is acknowledged after a commit that contains it, so the batch
that is equal is the message. The provider commits what waits together, which is part of what is measured; the same rows
in larger bare batches are printed beside it. Spans are part of the real path too: it stores a row for each change.

The provider, the load generator and nothing else share the cores of this machine.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from evaluation.figures import Figures
from evaluation.ingest.bare_appends import rows_per_second
from evaluation.ingest.load import SIGNALS, TELEMETRY_SECONDS, Agents, Jobs, Taken
from evaluation.ingest.site import RANKS, IngestSite, Size, ingest_site, run_id
from pharoah_provider.domain import Report, Run
from pharoah_provider.storage.duckdb import DuckStorage
from tests.harness.until import until

SIZE, QUICK_SIZE = Size(runs=10_000, organisations=100, nodes=1250), Size(runs=500, organisations=20, nodes=60)
SECONDS, QUICK_SECONDS = 20.0, 4.0
"""How long each load lasts."""
CALLS_AT_ONCE = 4
"""Reports of one organisation that are under way at once; the provider works on two of them."""
LIGHT_SHARE = 0.5
"""The load at which latencies are taken, as a share of what was reached: a queue in front of a server that is busy all
the time shows how long the queue is."""
LATE_SECONDS = 10
"""Seconds in one report of sidecars that could not send for so long."""
CONNECT_SECONDS = 120.0
"""Agents that are not connected by then do not come any more."""
MIN_RATIO = 0.5
BARE_BATCHES = (RANKS, 64, 512)
DECODED_AT_ONCE = 256
"""Messages that wait for their commit at the same time where gRPC is left out."""


@dataclass(frozen=True)
class Load:
    """One way in which the jobs report."""

    name: str
    seconds: int
    """How many seconds of a job are in one report."""
    restless: bool = False
    """Whether every second of every rank has another level, so that each is a row in the database."""


LOADS = (
    Load("one second", 1),
    Load("one second, every level changes", 1, restless=True),
    Load(f"{LATE_SECONDS} seconds", LATE_SECONDS),
)


@dataclass(frozen=True)
class Timed:
    """What was acknowledged, and in how many seconds."""

    taken: Taken
    spent: float

    @property
    def reports(self) -> float:
        """Reports per second."""
        return len(self.taken.seconds) / self.spent

    @property
    def rows(self) -> float:
        """Rows per second."""
        return self.taken.rows / self.spent


@dataclass(frozen=True)
class Reached:
    """One load on the whole path, and bare appends of batches as large as its messages."""

    load: Load
    timed: Timed
    bare: float
    """Rows per second."""

    @property
    def ratio(self) -> float:
        """Rows of the whole path for each row of bare appends."""
        return self.timed.rows / self.bare


def measure(figures: Figures, arguments: argparse.Namespace) -> None:
    """The whole path under three loads, then latencies at half of what it reaches."""
    size, seconds = (QUICK_SIZE, QUICK_SECONDS) if arguments.quick else (SIZE, SECONDS)
    with tempfile.TemporaryDirectory(prefix="pharoah-ingest-") as folder:
        _measure(figures, Path(folder), size, seconds)


def _measure(figures: Figures, folder: Path, size: Size, seconds: float) -> None:
    batches = sorted({*BARE_BATCHES, *(load.seconds * RANKS for load in LOADS)})
    before = _bare(folder, batches, seconds)
    with ingest_site(folder / "site", size) as site:
        loads = asyncio.run(_loaded(site, seconds))
    decoded = asyncio.run(_decoded(folder / "decoded.duckdb", seconds))
    after = _bare(folder, batches, seconds)
    bare = {rows: (before[rows] + after[rows]) / 2 for rows in batches}
    reached = [
        Reached(load, timed, bare[load.seconds * RANKS]) for load, timed in zip(LOADS, loads.reached, strict=True)
    ]
    _add_rates(figures, size, reached, decoded)
    figures.add("agents_connected_seconds", loads.connected_seconds, interval=f"all {size.nodes} at once")
    add_latencies(figures, size, loads.light, loads.telemetry)
    _add_tables(figures, reached, bare)


@dataclass(frozen=True)
class Loaded:
    """What was acknowledged under all loads."""

    connected_seconds: float
    """Until a batch of every agent was acknowledged; all of them come within two seconds, as after a restart."""
    reached: Sequence[Timed]
    """By load."""
    light: Timed
    telemetry: Taken
    """Under the light load."""


async def _loaded(site: IngestSite, seconds: float) -> Loaded:
    """All loads one after the other, while the agents send telemetry all the time."""
    jobs, agents, over = Jobs(site, CALLS_AT_ONCE), Agents(site), asyncio.Event()
    began, sending = time.monotonic(), asyncio.create_task(agents.send(over))
    try:
        await until(lambda: len(agents.acknowledged) == site.size.nodes, "all agents to connect", CONNECT_SECONDS)
        connected = time.monotonic() - began
        reached = [await _timed(jobs, load, seconds) for load in LOADS]
        agents.taken = Taken()
        light = await _timed(jobs, LOADS[0], seconds, LIGHT_SHARE * reached[0].reports)
        return Loaded(connected, reached, light, agents.taken)
    finally:
        over.set()
        await sending


def _bare(folder: Path, batches: Sequence[int], seconds: float) -> dict[int, float]:
    """Rows per second of bare appends, by the rows of a batch."""
    return {rows: rows_per_second(folder / "bare.duckdb", rows, seconds / 4) for rows in batches}


async def _timed(jobs: Jobs, load: Load, seconds: float, per_second: float = 0.0) -> Timed:
    """The jobs report for so many seconds."""
    began = time.monotonic()
    taken = await jobs.report(
        lambda: time.monotonic() - began >= seconds, load.seconds, restless=load.restless, per_second=per_second
    )
    return Timed(taken, time.monotonic() - began)


async def _decoded(path: Path, seconds: float) -> float:
    """Rows per second of the storage alone: spans and commits of decoded reports of one second."""
    storage, end = DuckStorage(path), time.monotonic() + seconds
    rows = 0

    async def one(number: int) -> None:
        nonlocal rows
        run, second = Run(run_id(number), "o/a", "n", 1, RANKS, False, 0.0), 0
        await storage.runs.put_run(run)
        while time.monotonic() < end:
            reports = [Report(second, rank, 1.8e9 + second, 1.0, 1.0, 1.0) for rank in range(RANKS)]
            await storage.runs.append_reports(run, reports, [False] * RANKS, [0.0] * RANKS)
            rows, second = rows + RANKS, second + 1

    try:
        await asyncio.gather(*(one(number) for number in range(DECODED_AT_ONCE)))
    finally:
        storage.close()
    return rows / seconds


def _add_rates(figures: Figures, size: Size, reached: Sequence[Reached], decoded: float) -> None:
    """What is taken in, beside what bare appends of equal batches reach."""
    usual, restless, late = reached
    failed = sum(one.timed.taken.failed for one in reached)
    what = f"{size.runs} jobs of {RANKS} ranks, {size.nodes} agents, {failed} calls failed"
    figures.add("ingest_ratio", usual.ratio, f">= {MIN_RATIO}", usual.ratio >= MIN_RATIO, what)
    figures.add("ingest_ratio_every_level_changes", restless.ratio)
    figures.add("ingest_ratio_late_reports", late.ratio, interval=f"{LATE_SECONDS} seconds in a report")
    figures.add("ingest_ratio_without_grpc", decoded / usual.bare, interval="storage alone, decoded reports")
    figures.add("reports_per_second_wanted", size.runs)
    figures.add("reports_per_second_reached", usual.timed.reports)
    figures.add("rows_per_second_wanted", size.runs * RANKS)
    figures.add("rows_per_second_reached", late.timed.rows, interval=f"{LATE_SECONDS} seconds in a report")


def add_latencies(figures: Figures, size: Size, light: Timed, sent: Taken) -> None:
    """How long acknowledgements take while the provider is not busy all the time."""
    load = f"at {LIGHT_SHARE:g} of the reports that are reached"
    figures.add("ack_p50_seconds", light.taken.quantile(0.5), interval=load)
    what = f"{len(light.taken.seconds)} reports, {light.taken.failed} calls failed"
    figures.add("ack_p99_seconds", light.taken.quantile(0.99), interval=what)
    figures.add("telemetry_rows_per_second_wanted", size.nodes * len(SIGNALS) / TELEMETRY_SECONDS)
    figures.add("telemetry_rows_per_second_reached", sent.rows / light.spent, interval=f"{sent.failed} streams failed")
    figures.add("telemetry_ack_p99_seconds", sent.quantile(0.99))


def _add_tables(figures: Figures, reached: Sequence[Reached], bare: Mapping[int, float]) -> None:
    """The same numbers by load, and what larger bare batches reach."""
    columns = ("a report has", "reports/s", "rows/s", "bare appends, rows/s", "ratio", "p50 s", "p99 s")
    rows = []
    for one in reached:
        rates = (f"{one.timed.reports:.0f}", f"{one.timed.rows:.0f}", f"{one.bare:.0f}", f"{one.ratio:.2f}")
        waits = (f"{one.timed.taken.quantile(share):.3f}" for share in (0.5, 0.99))
        rows.append((one.load.name, *rates, *waits))
    figures.table("What is reached while more is sent than the provider takes.", columns, rows)
    figures.table(
        "Bare appends with a commit each, by the size of the batch.",
        ("rows of a batch", "rows/s"),
        [(str(size), f"{rate:.0f}") for size, rate in bare.items()],
    )
