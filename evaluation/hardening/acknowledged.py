"""Outcomes that were acknowledged, across kills of the provider and cancelled calls.

A real provider process, and tenants of four organisations whose runs join, report, and end with an outcome under a
pseudonym of their own. In the first part the provider is killed (`kill -9`) again and again while many runs end; what
was not acknowledged is sent again after the restart, as a sidecar does. In the second part the calls are cancelled
after a random time and sent again. At the end the database is read: an outcome that was acknowledged and is not there
is lost; one that is there twice, or beside no end of its run, counts as lost as well.
"""

from __future__ import annotations

import asyncio
import random
import secrets
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field, replace
from pathlib import Path

import grpc.aio

from evaluation.figures import Figures
from evaluation.hardening.flooded_site import FACTS, NODES, USERS, FloodedSite, flooded_site, ticket, token
from pharoah_learning.release import Release, identity
from pharoah_protocol.pseudonyms import PSEUDONYM_BYTES, period_at
from pharoah_protocol.rpc import Stub
from pharoah_protocol.v1 import EndRunRequest, EndState, JoinRunRequest, ReportRequest
from pharoah_protocol.vocabulary import EndState as StoredEnd
from pharoah_provider.domain import Run
from pharoah_provider.storage.duckdb import DuckStorage
from tests.harness.exchange import ROW

KILLS, QUICK_KILLS = 40, 6
CANCELS, QUICK_CANCELS = 400, 60
RUNS_AT_ONCE = 8
"""Runs that end while the provider is killed."""
REPORTED_SECONDS = 1800
"""Every run reports half an hour before it ends, so that it is long enough for its outcome to be counted."""
BATCH_SECONDS = 900
CALL_SECONDS = 5.0
LONGEST_DELAY_SECONDS = 0.02
"""A call is cancelled, and the provider killed, at a random time up to this after the calls began."""


@dataclass
class Ended:
    """Runs, and which of their ends were acknowledged."""

    pseudonyms: dict[bytes, bytes] = field(default_factory=dict)
    """By run."""
    acknowledged: set[bytes] = field(default_factory=set)
    attempts: int = 0
    """Calls that were begun, cancelled ones included."""


class Tenants:
    """Joins runs, reports and ends them, as four tenants in turn."""

    def __init__(self, site: FloodedSite, seed: int) -> None:
        self._site, self._random = site, random.Random(seed)
        self.ended = Ended()
        self._user_of: dict[bytes, str] = {}
        """By run."""

    def delay(self) -> float:
        return self._random.uniform(0.0, LONGEST_DELAY_SECONDS)

    async def join(self, channel: grpc.aio.Channel) -> bytes:
        """A run that has reported for a while; nothing of its end was sent yet."""
        number, run_id = len(self._user_of), secrets.token_bytes(16)
        user = self._user_of[run_id] = USERS[number % len(USERS)]
        node = NODES[number % len(NODES)]
        self.ended.pseudonyms[run_id] = secrets.token_bytes(PSEUDONYM_BYTES)
        stub, metadata = Stub(channel, "Runs"), _bearer(user)
        await stub.JoinRun(
            JoinRunRequest(run_id=run_id, ticket=ticket(node), ranks=1), timeout=CALL_SECONDS, metadata=metadata
        )
        began = time.time() - REPORTED_SECONDS
        for first in range(0, REPORTED_SECONDS, BATCH_SECONDS):
            levels = [0] * BATCH_SECONDS
            request = ReportRequest(
                run_id=run_id, attempt=1, first_second=first, first_ended_at=began + first + 1, step_levels=levels,
                memory_levels=levels,
            )  # fmt: skip
            await stub.Report(request, timeout=CALL_SECONDS, metadata=metadata)
        return run_id

    async def end(self, channel: grpc.aio.Channel, run_id: bytes) -> None:
        """Send the end of a run; note when it is acknowledged. Raises AioRpcError."""
        request = EndRunRequest(
            run_id=run_id, state=EndState.END_STATE_FAILED, period=period_at(time.time()),
            pseudonym=self.ended.pseudonyms[run_id],
        )  # fmt: skip
        self.ended.attempts += 1
        metadata = _bearer(self._user_of[run_id])
        await Stub(channel, "Runs").EndRun(request, timeout=CALL_SECONDS, metadata=metadata)
        self.ended.acknowledged.add(run_id)


def _bearer(user: str) -> tuple[tuple[str, str], ...]:
    return (("authorization", f"Bearer {token(user)}"),)


async def _killed(site: FloodedSite, tenants: Tenants, kills: int) -> None:
    """Kill the provider while runs end, start it again, and send again what was not acknowledged."""
    for _ in range(kills):
        async with grpc.aio.insecure_channel(site.endpoint, [("grpc.enable_retries", 0)]) as channel:
            runs = [await tenants.join(channel) for _ in range(RUNS_AT_ONCE)]
            calls = [asyncio.create_task(tenants.end(channel, run_id)) for run_id in runs]
            await asyncio.sleep(tenants.delay())
            site.kill()
            await asyncio.gather(*calls, return_exceptions=True)
        await asyncio.to_thread(site.restart)
        async with grpc.aio.insecure_channel(site.endpoint) as channel:
            for run_id in set(runs) - tenants.ended.acknowledged:
                await tenants.end(channel, run_id)


async def _cancelled(site: FloodedSite, tenants: Tenants, cancels: int) -> None:
    """Cancel calls that end runs, and send them again."""
    async with grpc.aio.insecure_channel(site.endpoint) as channel:
        for _ in range(cancels):
            run_id = await tenants.join(channel)
            call = asyncio.create_task(tenants.end(channel, run_id))
            await asyncio.sleep(tenants.delay())
            call.cancel()
            await asyncio.wait({call})
            await tenants.end(channel, run_id)


async def _lost(database: Path, ended: Ended) -> int:
    """Acknowledged outcomes that are not stored exactly once, beside the end of their run."""
    store = DuckStorage(database)
    try:
        now = period_at(time.time())
        reports = [one for period in (now - 1, now) for one in await store.evidence.outcome_reports(period)]
        stored = Counter((report.run_id, report.name) for report in reports if report.failed)
        lost = 0
        for run_id in ended.acknowledged:
            run = await store.runs.run(run_id)
            once = stored[run_id, ended.pseudonyms[run_id].hex()] == 1
            lost += not (once and run is not None and await _ended_as_failed(store, run))
        return lost
    finally:
        store.close()


async def _ended_as_failed(store: DuckStorage, run: Run) -> bool:
    return await store.runs.end_state(run) is StoredEnd.FAILED


async def _control(site: FloodedSite, tenants: Tenants) -> None:
    """One end that nothing disturbs."""
    async with grpc.aio.insecure_channel(site.endpoint) as channel:
        await tenants.end(channel, await tenants.join(channel))


def measure(figures: Figures, quick: bool, seed: int) -> None:
    """Lose nothing that was acknowledged."""
    kills, cancels = (QUICK_KILLS, QUICK_CANCELS) if quick else (KILLS, CANCELS)
    release = Release(1, (replace(ROW, group_id=identity(FACTS)),))
    with tempfile.TemporaryDirectory(prefix="pharoah-acknowledged-") as folder:
        with flooded_site(Path(folder) / "site", release) as site:
            tenants = Tenants(site, seed)
            asyncio.run(_control(site, tenants))
            asyncio.run(_killed(site, tenants, kills))
            asyncio.run(_cancelled(site, tenants, cancels))
        ended = tenants.ended
        lost = asyncio.run(_lost(Path(folder) / "site" / "p.duckdb", ended))
    if lost == len(ended.acknowledged):
        raise RuntimeError("not even an end that nothing disturbed is counted: these runs are not such as count")
    interval = f"{len(ended.acknowledged)} acknowledged of {ended.attempts} calls; {kills} kills, {cancels} cancels"
    figures.add("acked_outcomes_lost", lost, "0", lost == 0, interval)
