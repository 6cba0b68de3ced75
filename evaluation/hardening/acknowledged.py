"""Outcomes that were acknowledged, across kills of the provider and cancelled calls.

A real provider process on a Unix socket, and tenants of four organisations whose runs last, report, and end with an
outcome under a pseudonym of their own. Some runs end while the provider is killed (`kill -9`); what was not
acknowledged is sent again after the restart, as a sidecar does. The calls of others are cancelled after a random time
and sent again. At the end the database is read: an outcome that was acknowledged and is not there is lost; one that is
there twice, or beside no end of its run, counts as lost as well.

Runs vote as those of the product do (ADR 21): each has gone on for a minute by the provider's clock, has reported every
second of it, and has had a pseudonym evaluated. They grow together, in waves, because that minute is the longest part.
"""

from __future__ import annotations

import asyncio
import random
import secrets
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import grpc.aio

from evaluation.figures import Figures
from evaluation.hardening.flooded_site import NODES, USERS, FloodedSite, site_on_a_socket
from pharoah_protocol.pseudonyms import PSEUDONYM_BYTES, period_at
from pharoah_protocol.rpc import Stub
from pharoah_protocol.v1 import EndRunRequest, EndState, EvaluatePseudonymRequest, JoinRunRequest, ReportRequest
from pharoah_protocol.vocabulary import EndState as StoredEnd
from pharoah_protocol.voprf import protocol
from pharoah_provider.domain import Run
from pharoah_provider.shared_votes import MIN_SECONDS
from pharoah_provider.storage.duckdb import DuckStorage
from tests.harness.loopback import ticket

KILLS, QUICK_KILLS = 40, 6
CANCELS, QUICK_CANCELS = 400, 60
RUNS_AT_ONCE = 8
"""Runs that end while the provider is killed."""
MAX_RUNS_OF_A_WAVE = 160
"""A wave of twenty kills takes about a minute, so that no run is silent for so long that the provider takes it for lost
(`watched_runs.LOST_SECONDS`, 180 s)."""
MARGIN_SECONDS = 1.0
"""Runs wait for a little longer than they must: the reports have whole seconds."""
CALL_SECONDS = 5.0
CANCEL_SECONDS, KILL_SECONDS = 0.02, 0.15
"""A call is cancelled, and the provider killed, at a random time up to this after the calls began: one end takes about
0.013 s on 2 cores, and of eight that begin together the first takes 0.04 s and the last up to 0.13 s."""


@dataclass
class Ended:
    """Runs, and which of their ends were acknowledged."""

    requests: dict[bytes, EndRunRequest] = field(default_factory=dict)
    """By run."""
    acknowledged: set[bytes] = field(default_factory=set)
    attempts: int = 0
    """Calls that were begun, cancelled ones included."""
    acknowledged_before_kill: int = 0
    """Ends of runs during which the provider was killed, and which it had acknowledged before."""


class Tenants:
    """Joins runs, reports and ends them, as four tenants in turn."""

    def __init__(self, site: FloodedSite, seed: int) -> None:
        self._site, self._random = site, random.Random(seed)
        self._access = {user: site.access(user) for user in USERS}
        self.ended = Ended()
        self._user_of: dict[bytes, str] = {}
        """By run."""

    def delay(self, longest_seconds: float) -> float:
        return self._random.uniform(0.0, longest_seconds)

    def channel(self, *options: tuple[str, int]) -> grpc.aio.Channel:
        """A connection for all of them; what they send says who calls."""
        return self._access[USERS[0]].aio_channel(*options)

    async def grown(self, count: int) -> list[bytes]:
        """So many runs that may vote; nothing of their ends was sent yet."""
        async with self.channel() as channel:
            joined = {await self._join(channel): time.time() for _ in range(count)}
            await asyncio.sleep(MIN_SECONDS + MARGIN_SECONDS)
            for run_id, joined_at in joined.items():
                await self._report(channel, run_id, joined_at)
                await self._name(channel, run_id)
        return list(joined)

    async def end(self, channel: grpc.aio.Channel, run_id: bytes) -> None:
        """Send the end of a run; note when it is acknowledged. Raises AioRpcError."""
        self.ended.attempts += 1
        await self._call(Stub(channel, "Runs").EndRun, self.ended.requests[run_id], run_id)
        self.ended.acknowledged.add(run_id)

    async def _join(self, channel: grpc.aio.Channel) -> bytes:
        number, run_id = len(self._user_of), secrets.token_bytes(16)
        self._user_of[run_id] = USERS[number % len(USERS)]
        node = NODES[number // len(USERS) % len(NODES)]
        request = JoinRunRequest(run_id=run_id, ticket=ticket(node), ranks=1)
        await self._call(Stub(channel, "Runs").JoinRun, request, run_id)
        return run_id

    async def _report(self, channel: grpc.aio.Channel, run_id: bytes, joined_at: float) -> None:
        """Every second since the run has joined, as a sidecar sends them after its provider was away."""
        levels = [0] * int(time.time() - joined_at)
        request = ReportRequest(
            run_id=run_id, attempt=1, first_ended_at=joined_at + 1, step_levels=levels, memory_levels=levels
        )
        await self._call(Stub(channel, "Runs").Report, request, run_id)

    async def _name(self, channel: grpc.aio.Channel, run_id: bytes) -> None:
        """A pseudonym that the provider has evaluated. It cannot see which one that becomes with the second key."""
        period, name = period_at(time.time()), secrets.token_bytes(PSEUDONYM_BYTES)
        request = EvaluatePseudonymRequest(period=period, blinded=protocol.blind(run_id).element)
        await self._call(Stub(channel, "Pseudonyms").EvaluatePseudonym, request, run_id)
        self.ended.requests[run_id] = EndRunRequest(
            run_id=run_id, state=EndState.END_STATE_FAILED, period=period, pseudonym=name
        )

    async def _call(self, method: Callable[..., Awaitable[object]], request: object, run_id: bytes) -> None:
        await method(request, timeout=CALL_SECONDS, metadata=self._access[self._user_of[run_id]].metadata)


async def _undisturbed(_: FloodedSite, tenants: Tenants, runs: Sequence[bytes]) -> None:
    """The control: ends that nothing disturbs."""
    async with tenants.channel() as channel:
        for run_id in runs:
            await tenants.end(channel, run_id)


async def _killed(site: FloodedSite, tenants: Tenants, runs: Sequence[bytes]) -> None:
    """Kill the provider while runs end, start it again, and send again what was not acknowledged."""
    async with tenants.channel(("grpc.enable_retries", 0)) as channel:
        await channel.channel_ready()
        calls = [asyncio.create_task(tenants.end(channel, run_id)) for run_id in runs]
        await asyncio.sleep(tenants.delay(KILL_SECONDS))
        site.kill()
        await asyncio.gather(*calls, return_exceptions=True)
    again = [run_id for run_id in runs if run_id not in tenants.ended.acknowledged]
    tenants.ended.acknowledged_before_kill += len(runs) - len(again)
    await asyncio.to_thread(site.restart)
    await _undisturbed(site, tenants, again)


async def _cancelled(_: FloodedSite, tenants: Tenants, runs: Sequence[bytes]) -> None:
    """Cancel calls that end runs, and send them again."""
    async with tenants.channel() as channel:
        await channel.channel_ready()
        for run_id in runs:
            call = asyncio.create_task(tenants.end(channel, run_id))
            await asyncio.sleep(tenants.delay(CANCEL_SECONDS))
            call.cancel()
            await asyncio.wait({call})
            await tenants.end(channel, run_id)


@dataclass(frozen=True)
class _Part:
    """What is done to some runs."""

    runs: int
    work: Callable[[FloodedSite, Tenants, Sequence[bytes]], Awaitable[None]]


async def _disturbed(site: FloodedSite, tenants: Tenants, parts: Sequence[_Part]) -> None:
    for wave in _waves(parts):
        runs = await tenants.grown(sum(part.runs for part in wave))
        for part in wave:
            await part.work(site, tenants, runs[: part.runs])
            del runs[: part.runs]


def _waves(parts: Sequence[_Part]) -> Iterator[list[_Part]]:
    """The parts in their order, in groups of as many runs as may grow together."""
    wave: list[_Part] = []
    for part in parts:
        if sum(one.runs for one in wave) + part.runs > MAX_RUNS_OF_A_WAVE:
            yield wave
            wave = []
        wave.append(part)
    yield wave


async def _lost(database: Path, ended: Ended) -> set[bytes]:
    """Runs whose acknowledged outcomes are not stored exactly once, beside the end of the run."""
    store = DuckStorage(database)
    try:
        now = period_at(time.time())
        reports = [one for period in (now - 1, now) for one in await store.evidence.outcome_reports(period)]
        stored = Counter((report.run_id, report.name) for report in reports if report.failed)
        lost = set()
        for run_id in ended.acknowledged:
            run = await store.runs.run(run_id)
            once = stored[run_id, ended.requests[run_id].pseudonym.hex()] == 1
            if not (once and run is not None and await _ended_as_failed(store, run)):
                lost.add(run_id)
        return lost
    finally:
        store.close()


async def _ended_as_failed(store: DuckStorage, run: Run) -> bool:
    return await store.runs.end_state(run) is StoredEnd.FAILED


def measure(figures: Figures, quick: bool, seed: int) -> None:
    """Lose nothing that was acknowledged."""
    kills, cancels = (QUICK_KILLS, QUICK_CANCELS) if quick else (KILLS, CANCELS)
    parts = [_Part(1, _undisturbed), *[_Part(RUNS_AT_ONCE, _killed)] * kills, *[_Part(1, _cancelled)] * cancels]
    with tempfile.TemporaryDirectory(prefix="pharoah-acknowledged-") as folder:
        with site_on_a_socket(Path(folder) / "site") as site:
            tenants = Tenants(site, seed)
            asyncio.run(_disturbed(site, tenants, parts))
        ended = tenants.ended
        lost = asyncio.run(_lost(Path(folder) / "site" / "p.duckdb", ended))
    if next(iter(ended.requests)) in lost:
        raise RuntimeError("not even an end that nothing disturbed is counted: these runs are not such as count")
    interval = (
        f"{len(ended.acknowledged)} acknowledged of {ended.attempts} calls; {kills} kills, "
        f"{ended.acknowledged_before_kill} acknowledged just before them; {cancels} cancels"
    )
    figures.add("acked_outcomes_lost", len(lost), "0", not lost, interval)
