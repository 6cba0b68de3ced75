"""What was acknowledged, across kills of the provider (`kill -9`) while jobs report and agents send telemetry.

At the end the database is read. A second of a rank that was acknowledged and is not there is lost, and so is a reading
of telemetry; one that is there twice was counted twice. Jobs and agents send again what was not acknowledged, as
sidecars and agents do. The recovery time goes from the kill to the first report that is acknowledged after it; the
provider is started again at once, which is what a service manager does.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from evaluation.figures import Figures
from evaluation.ingest.load import SIGNALS, Agents, Job, Jobs
from evaluation.ingest.site import RANKS, IngestSite, Size, ingest_site, run_id
from pharoah_provider.storage.duckdb import DuckStorage

KILLS, QUICK_KILLS = 20, 4
SIZE = Size(runs=400, organisations=20, nodes=40)
CALLS_AT_ONCE = 2
LOADED_SECONDS = 1.0, 2.5
"""The provider is killed at a random time within these after the first acknowledgement."""
RECOVERY_SECONDS = 60.0
"""A provider that has acknowledged nothing for so long has not recovered."""
SECONDS_QUERY = """
    SELECT run_id, rank, min(second) AS first, max(second) AS last, sum(times) AS seconds
    FROM (
        SELECT *, second - row_number() OVER (PARTITION BY run_id, rank ORDER BY second) AS stretch
        FROM (
            SELECT run_id, rank, second, count(*) AS times
            FROM (
                SELECT run_id, rank, unnest(range(first_second, last_second + 1)) AS second
                FROM (SELECT * FROM report_spans UNION ALL BY NAME SELECT * FROM open_report_spans)
            )
            GROUP BY ALL
        )
    )
    GROUP BY run_id, rank, stretch
"""
"""Stretches of seconds that are stored of each rank without a gap, and how many seconds there are in all spans of a
stretch: more than it is long when some of them are there twice. Totals alone would show nothing where one second is
there twice and another is missing."""
READINGS_QUERY = """
    SELECT node, metric, value, sum(readings) AS readings
    FROM (SELECT * FROM telemetry_spans UNION ALL BY NAME SELECT * FROM open_telemetry_spans)
    GROUP BY ALL
"""
"""How often each reading is stored. Its value is the number of its batch."""


@dataclass
class Acknowledgements:
    """How many reports were acknowledged, and when the newest of their calls began."""

    count: int = 0
    newest: float = 0.0
    """Monotonic time."""
    came: asyncio.Event = field(default_factory=asyncio.Event)

    def noted(self, began: float) -> None:
        """A report whose call began then is acknowledged."""
        self.count, self.newest = self.count + 1, max(self.newest, began)
        self.came.set()

    async def of_calls_since(self, since: float) -> float:
        """Wait for one whose call began after `since`, because others may still be on their way; the monotonic time at
        which it came. Raises TimeoutError."""
        async with asyncio.timeout(RECOVERY_SECONDS):
            while self.newest < since:
                self.came.clear()
                await self.came.wait()
        return time.monotonic()


@dataclass(frozen=True)
class Stored:
    """What the database lacks or has too often, in rows."""

    lost: int
    twice: int


def measure(figures: Figures, arguments: argparse.Namespace) -> None:
    """Lose nothing that was acknowledged, and count nothing twice."""
    kills = QUICK_KILLS if arguments.quick else KILLS
    with (
        tempfile.TemporaryDirectory(prefix="pharoah-kills-") as folder,
        ingest_site(Path(folder) / "site", SIZE) as site,
    ):
        asyncio.run(_measure(figures, site, kills, random.Random(arguments.seed)))


async def _measure(figures: Figures, site: IngestSite, kills: int, chance: random.Random) -> None:
    jobs, agents, over = Jobs(site, CALLS_AT_ONCE), Agents(site), asyncio.Event()
    acknowledged = Acknowledgements()
    reporting = asyncio.create_task(jobs.report(over.is_set, 1, restless=True, noted=acknowledged.noted))
    sending = asyncio.create_task(agents.send(over))
    try:
        recoveries = [await _kill(site, acknowledged, chance) for _ in range(kills)]
    finally:
        over.set()
        await asyncio.gather(reporting, sending)
    site.stop()
    storage = DuckStorage(site.database())
    try:
        reports = await stored_reports(storage, jobs.jobs)
        telemetry = await stored_telemetry(storage, agents.acknowledged)
    finally:
        storage.close()
    _report(figures, recoveries, acknowledged.count, agents, reports, telemetry)


async def _kill(site: IngestSite, acknowledged: Acknowledgements, chance: random.Random) -> float:
    """Kill the provider under load and start it again; seconds until it acknowledges a report."""
    await acknowledged.of_calls_since(time.monotonic())
    await asyncio.sleep(chance.uniform(*LOADED_SECONDS))
    killed_at = time.monotonic()
    site.site.kill()
    died_at = time.monotonic()
    restarting = asyncio.create_task(asyncio.to_thread(site.site.restart))
    recovered_at = await acknowledged.of_calls_since(died_at)
    await restarting
    return recovered_at - killed_at


async def stored_reports(storage: DuckStorage, jobs: Sequence[Job]) -> Stored:
    """Seconds of ranks that were acknowledged and are missing, and those that are there twice."""
    stretches = defaultdict[Any, list[dict[str, Any]]](list)
    for row in await storage.select(SECONDS_QUERY):
        stretches[bytes(row["run_id"]), row["rank"]].append(row)
    lost = 0
    for job in jobs:
        for rank in range(RANKS):
            found = stretches.get((run_id(job.number), rank), [])
            held = sum(max(0, min(row["last"] + 1, job.next_second) - row["first"]) for row in found)
            lost += job.next_second - held
    rows = [row for found in stretches.values() for row in found]
    return Stored(lost, sum(int(row["seconds"]) - (row["last"] + 1 - row["first"]) for row in rows))


async def stored_telemetry(storage: DuckStorage, acknowledged: Mapping[str, int]) -> Stored:
    """Readings that were acknowledged and are missing, and those that are there twice. `acknowledged` has the newest
    batch of each node; all batches before it were acknowledged as well."""
    rows = await storage.select(READINGS_QUERY)
    found = Counter((row["node"], row["metric"]) for row in rows if row["value"] <= acknowledged.get(row["node"], 0))
    lost = sum(batch - found[node, metric] for node, batch in acknowledged.items() for metric in SIGNALS)
    return Stored(lost, sum(int(row["readings"]) - 1 for row in rows))


def _report(
    figures: Figures,
    recoveries: Sequence[float],
    reports: int,
    agents: Agents,
    stored: Stored,
    telemetry: Stored,
) -> None:
    """The figures of docs/evaluation/ingest.md."""
    lost, twice = stored.lost + telemetry.lost, stored.twice + telemetry.twice
    batches = sum(agents.acknowledged.values())
    what = f"{len(recoveries)} kills; {reports} reports and {batches} batches of telemetry were acknowledged"
    figures.add("lost_after_ack", lost, "0", lost == 0, what)
    figures.add("lost_seconds_of_ranks", stored.lost, "0", stored.lost == 0)
    figures.add("lost_readings_of_telemetry", telemetry.lost, "0", telemetry.lost == 0)
    figures.add("rows_stored_twice", twice, "0", twice == 0)
    figures.add("recovery_seconds_median", median(recoveries), interval="from the kill to the first acknowledgement")
    figures.add("recovery_seconds_longest", max(recoveries))
