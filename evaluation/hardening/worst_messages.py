"""Calls of tenants while one agent, and while four agents, send the worst that they can.

A real provider process on a Unix socket. Tenants of four organisations ask for verdicts, join runs and report. A
campaign runs on the attackers' nodes, so that they have real orders to answer (`worst_agents` lists their ways).

The control has the same tenants and no attacker. Instead processes of the same priority compute, for as much processor
time a second as those of the attackers took for themselves: on a machine with few cores that is what slows calls down,
and it is no work of the provider.
"""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Awaitable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import grpc.aio
import numpy as np

from evaluation.figures import Figures
from evaluation.hardening import honest_results
from evaluation.hardening.flooded_site import USERS, FloodedSite, site_on_a_socket
from pharoah._errors import UnknownReason
from pharoah.sidecar.exchange_client import ExchangeClient
from pharoah.sidecar.provider_connection import ProviderConnection
from pharoah_benchmarks.campaign.cell import DryCell
from pharoah_benchmarks.campaign.plan import parse_plan
from pharoah_protocol.rpc import Stub
from pharoah_protocol.v1 import JoinRunRequest, ReportRequest, RunCampaignRequest
from pharoah_provider.own_fingerprints import OwnFingerprints
from pharoah_provider.storage.duckdb import DuckStorage
from tests.harness.exchange import KNOWN
from tests.harness.loopback import ticket
from tests.harness.worst_messages import fingerprint

ATTACKERS = ("agent/w1", "agent/w2", "agent/w3", "agent/w4")
OPERATOR = "operator/ops"
SECONDS, QUICK_SECONDS = 60.0, 12.0
WARM_SECONDS = 3.0
"""What is asked before a phase is measured: state folders are made, and the attackers begin."""
TIMEOUT_SECONDS = 2.0
"""How long a tenant waits by default: a call that takes longer has failed."""
VERDICT_SECONDS, REPORT_SECONDS, RUN_SECONDS = 0.4, 0.5, 5.0
"""Each tenant asks for verdicts and reports so often, and begins another run so often."""
MAX_RATIO, MAX_SILENCE_SECONDS = 2.0, 1.0
PLAN = """
name = "worst"
repeats = 500
limit_seconds = 1000
[[workload]]
name = "gpt"
settings = { attention = "flash", length = 128 }
[degrade]
workload = "gpt"
settings = { attention = "flash", length = 128 }
seconds = 990
healthy = 500
"""
"""Cells whose results may be of half a megabyte, and degraded ones whose results may be of four."""
CLICK_SECONDS = 1 / 100
"""A unit of processor time in /proc (USER_HZ)."""
_BURN = """\
import os, sys, time
os.nice(19)
share, until = float(sys.argv[1]), time.monotonic() + float(sys.argv[2])
while time.monotonic() < until:
    began, used = time.monotonic(), time.process_time()
    while time.process_time() - used < 0.02 and share > 0:
        pass
    time.sleep(max(0.0, 0.02 / max(share, 1e-3) - (time.monotonic() - began)))
"""


@dataclass
class Calls:
    """What the tenants saw."""

    seconds: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    """By kind of call, of those that were answered."""
    failed: int = 0
    reasons: set[str] = field(default_factory=set)
    times: list[float] = field(default_factory=lambda: [time.monotonic()])
    """When the phase began, when each call was answered, and when the phase ended."""

    def p95(self, kind: str) -> float:
        return float(np.quantile(self.seconds[kind], 0.95)) if self.seconds[kind] else float("inf")

    def longest_silence(self) -> float:
        """The longest time in which no call of anybody was answered."""
        return max(after - before for before, after in pairwise(self.times))

    @property
    def count(self) -> int:
        return sum(map(len, self.seconds.values()))


class Others:
    """The tenants. They call as long as the context lasts, into the phase that is set."""

    def __init__(self, site: FloodedSite) -> None:
        self._site, self.phase = site, Calls()
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Others:
        self._tasks = [asyncio.create_task(work(user)) for user in USERS for work in (self._ask, self._run)]
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _timed(self, kind: str, call: Awaitable[Any]) -> None:
        phase, began = self.phase, time.monotonic()
        try:
            await call
        except (UnknownReason, grpc.aio.AioRpcError) as error:
            phase.failed += 1
            phase.reasons.add(f"{kind}: {error.details() if isinstance(error, grpc.aio.AioRpcError) else error}"[:120])
        else:
            phase.seconds[kind].append(time.monotonic() - began)
            phase.times.append(time.monotonic())

    async def _ask(self, user: str) -> None:
        settings = replace(self._site.settings(user), timeout_seconds=TIMEOUT_SECONDS)
        provider = ProviderConnection(settings)
        try:
            client = ExchangeClient(provider, settings)
            while True:
                began = time.monotonic()
                await self._timed("verdict", client.ask(KNOWN, ticket("n1")))
                await asyncio.sleep(max(0.0, began + VERDICT_SECONDS - time.monotonic()))
        finally:
            await provider.channel.close(None)

    async def _run(self, user: str) -> None:
        access = self._site.access(user)
        async with access.aio_channel(("grpc.use_local_subchannel_pool", 1)) as channel:
            stub = Stub(channel, "Runs")
            calling = {"timeout": TIMEOUT_SECONDS, "metadata": access.metadata}
            for number in range(1 << 16):
                run_id = f"{user[-8:]}{number:08}".encode()[-16:].rjust(16, b"r")
                join = JoinRunRequest(run_id=run_id, ticket=ticket("n1"), ranks=8)
                await self._timed("join", stub.JoinRun(join, **calling))
                for second in range(int(RUN_SECONDS / REPORT_SECONDS)):
                    report = ReportRequest(
                        run_id=run_id, attempt=1, first_second=second, first_ended_at=time.time(),
                        step_levels=[0] * 8, memory_levels=[0] * 8,
                    )  # fmt: skip
                    await self._timed("report", stub.Report(report, **calling))
                    await asyncio.sleep(REPORT_SECONDS)


@contextmanager
def _processes(commands: list[list[str]], *, wait: bool) -> Iterator[list[subprocess.Popen[str]]]:
    started: list[subprocess.Popen[str]] = []
    try:
        for command in commands:
            process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
            started.append(process)
        if wait:
            for process in started:
                assert process.stdout
                process.stdout.readline()  # it has imported what it needs, and begins
        yield started
    finally:
        for process in started:
            process.kill()
            process.communicate()


def _cpu_seconds(processes: list[subprocess.Popen[str]]) -> float:
    used = 0.0
    for process in processes:
        fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
        used += (int(fields[11]) + int(fields[12])) * CLICK_SECONDS
    return used


async def _measured(others: Others, seconds: float) -> Calls:
    await asyncio.sleep(WARM_SECONDS)
    others.phase = phase = Calls()
    await asyncio.sleep(seconds)
    others.phase = Calls()
    phase.times.append(time.monotonic())
    return phase


async def _attacked(site: FloodedSite, others: Others, count: int, seconds: float) -> tuple[Calls, float, int]:
    """What the tenants saw while so many agents did their worst; processor seconds that each attacker took in a second;
    how many of the cells that were ordered the provider has taken."""
    lasting = str(seconds + 60)
    commands = [
        [sys.executable, "-m", "evaluation.hardening.worst_agents", site.endpoint,
         str(site.entrance.files(who).token), who.partition("/")[2], lasting]
        for who in ATTACKERS[:count]
    ]  # fmt: skip
    done: list[str] = []
    with _processes(commands, wait=True) as processes:
        campaign = asyncio.create_task(_campaigns(site, done))
        try:
            await asyncio.sleep(WARM_SECONDS)  # the agents connect, and the campaign begins
            before, began = _cpu_seconds(processes), time.monotonic()
            calls = await _measured(others, seconds)
            share = (_cpu_seconds(processes) - before) / (time.monotonic() - began) / count
        finally:
            campaign.cancel()
            await asyncio.wait({campaign})
    return calls, share, len(done)


async def _campaigns(site: FloodedSite, done: list[str]) -> None:
    """Campaigns on the nodes of the attackers, one after the other; `done` gets a line for each cell."""
    access = site.access(OPERATOR)
    async with access.aio_channel(("grpc.use_local_subchannel_pool", 1)) as channel:
        stub, campaign_id = Stub(channel, "Operator"), ""
        while True:
            request = RunCampaignRequest(campaign_id=campaign_id) if campaign_id else RunCampaignRequest(campaign=PLAN)
            with contextlib.suppress(grpc.aio.AioRpcError):
                async for progress in stub.RunCampaign(request, metadata=access.metadata):
                    campaign_id = progress.campaign_id
                    if progress.outcome == "ok":
                        done.append(progress.cell)
            await asyncio.sleep(1.0)


async def _controlled(others: Others, count: int, share: float, seconds: float) -> Calls:
    command = [sys.executable, "-c", _BURN, str(share), str(seconds + 60)]
    with _processes([command] * count, wait=False):
        return await _measured(others, seconds)


async def _measure(figures: Figures, site: FloodedSite, quick: bool) -> None:
    seconds = QUICK_SECONDS if quick else SECONDS
    rows, failed, ratios, silences = [], [], [], []
    async with Others(site) as others:
        for count in (1, 4):
            calls, share, ordered = await _attacked(site, others, count, seconds)
            control = await _controlled(others, count, share, seconds)
            kinds = sorted(control.seconds)
            ratio = max(calls.p95(kind) / control.p95(kind) for kind in kinds)
            for name, value, must, holds in (
                ("others_failed_calls", calls.failed, "0", not calls.failed),
                ("others_p95_ratio", ratio, f"<= {MAX_RATIO:g}", ratio <= MAX_RATIO),
                ("others_longest_silence_s", calls.longest_silence(), f"<= {MAX_SILENCE_SECONDS:g}",
                 calls.longest_silence() <= MAX_SILENCE_SECONDS),
            ):  # fmt: skip
                shown = f"n={calls.count}, {ordered} ordered results taken"
                figures.add(f"{name}_{count}_agents", value, must, holds, shown)
            failed.append(calls.failed)
            ratios.append(ratio)
            silences.append(calls.longest_silence())
            for kind in kinds:
                times = f"{1e3 * calls.p95(kind):.0f}", f"{1e3 * control.p95(kind):.0f}"
                rows.append([str(count), kind, *times, f"{len(calls.seconds[kind])}", f"{share:.2f}"])
            rows.append(
                [str(count), "failed", str(calls.failed), str(control.failed), "; ".join(sorted(calls.reasons)), ""]
            )
            figures.add(f"control_longest_silence_s_{count}_agents", control.longest_silence())
    figures.add("others_failed_calls", sum(failed), "0", not any(failed))
    figures.add("others_p95_ratio", max(ratios), f"<= {MAX_RATIO:g}", max(ratios) <= MAX_RATIO)
    worst = max(silences)
    figures.add("others_longest_silence_s", worst, f"<= {MAX_SILENCE_SECONDS:g}", worst <= MAX_SILENCE_SECONDS)
    columns = ("agents", "call", "p95 under attack, ms", "in the control, ms", "calls", "cores of an attacker")
    figures.table("Calls of tenants while agents do their worst.", columns, rows)


def _prepare(folder: Path) -> None:
    """The provider's own dry run of the cell is there already: it would be a load of its own."""

    async def inside() -> None:
        store = DuckStorage(folder / "p.duckdb")
        for cell in parse_plan(PLAN).cells[:1]:
            await store.dry_runs.put(cell, OwnFingerprints(store.dry_runs).software, DryCell(fingerprint("fwd: gemm")))
        store.close()

    asyncio.run(inside())


def measure(figures: Figures, quick: bool, seed: int) -> None:
    """Calls of tenants under the worst messages, and honest results that the same readers refuse."""
    callers = (*USERS, *ATTACKERS, OPERATOR, "agent/n1", "agent/n2")
    with (
        tempfile.TemporaryDirectory(prefix="pharoah-worst-messages-") as folder,
        site_on_a_socket(Path(folder) / "site", callers, _prepare) as site,
    ):
        asyncio.run(_measure(figures, site, quick))
    asyncio.run(honest_results.measure(figures, quick, seed))
