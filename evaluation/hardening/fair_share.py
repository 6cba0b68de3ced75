"""Verdicts of others while one tenant, one agent or one stranger does its worst.

A real provider process with TLS, and four tenants of four organisations, each with a connection and a certificate of
its own. They ask for verdicts in private mode at a steady light rate. Meanwhile one attacker after the other floods the
provider from a process of its own, at the lowest priority (`floods`, `stranger_floods`). Each figure is the 95th
percentile of the seconds that a verdict took during the worst flood of that role, over the same percentile during the
control.

The control is a process of the same priority for each core, which computes without a pause and calls nobody. They take
at least the CPU time that any flood takes for itself, so that the ratio is about the provider and not about a machine
with few cores.
The percentile without any other process is printed beside it.
"""

from __future__ import annotations

import asyncio
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from evaluation.figures import Figures
from evaluation.hardening.flooded_site import (
    DENIED_CALLER,
    USERS,
    WORST_AGENT,
    WORST_TENANT,
    FloodedSite,
    site_with_certificates,
)
from evaluation.hardening.floods import AGENT, TENANT
from evaluation.hardening.stranger_floods import STRANGER
from pharoah._errors import UnknownReason
from pharoah.sidecar.exchange_client import ExchangeClient
from pharoah.sidecar.provider_connection import ProviderConnection
from pharoah_protocol.rpc import Stub
from pharoah_protocol.v1 import GetEpochRequest
from tests.harness.exchange import KNOWN
from tests.harness.loopback import ticket

BOUND_RATIO = 3.0
PERIOD_SECONDS = 0.4
"""Each of the four tenants asks so often: ten verdicts a second, about a fifth of the provider's time."""
BEGIN_SECONDS = 1.0
"""What is asked for in the first second of a flood is counted apart: its calls arrive at once, and gRPC takes each of
them before anybody can see whose it is (docs/adr/0023-nobody-uses-the-provider-up.md)."""
FLOOD_SECONDS, QUICK_FLOOD_SECONDS = 12.0, 4.0
"""How long each flood is measured; at 10 verdicts a second the first has 120 of them. The short form has
the three floods of each role in `QUICK`."""
QUICK = ("epochs", "reports", "telemetry", "cell_results", "connects", "health_flood", "handshakes", "rapid_reset")
CALM_SECONDS = 1.5
"""Between two floods: budgets of the attackers are full again, so that each begins with its burst."""
ATTACKERS = {"stranger": DENIED_CALLER, "tenant": WORST_TENANT, "agent": WORST_AGENT}
"""Role to the caller that floods. Some floods of strangers show no certificate at all (`stranger_floods`)."""


@dataclass
class Verdicts:
    """What the tenants measured: seconds of each verdict, and how many failed."""

    seconds: list[float] = field(default_factory=list)
    failed: int = 0
    at_begin: float = 0.0
    """The longest one among those that were asked for when the flood began."""

    @property
    def p95(self) -> float:
        """A verdict that failed counts as one of thirty seconds: the tenant went without."""
        return float(np.quantile([*self.seconds, *[30.0] * self.failed], 0.95))


class Askers:
    """The tenants; they ask as long as the context lasts, into the phase that is set."""

    def __init__(self, site: FloodedSite, seed: int) -> None:
        self._site, self._random = site, random.Random(seed)
        self.phase = Verdicts()
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Askers:
        self._tasks = [asyncio.create_task(self._ask(user)) for user in USERS]
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _ask(self, user: str) -> None:
        settings = self._site.settings(user)
        provider = ProviderConnection(settings)
        try:
            client = ExchangeClient(provider, settings)
            await asyncio.sleep(self._random.uniform(0, PERIOD_SECONDS))
            while True:
                began, phase = time.monotonic(), self.phase
                try:
                    await client.ask(KNOWN, ticket("n1"))
                    phase.seconds.append(time.monotonic() - began)
                except UnknownReason:
                    phase.failed += 1
                await asyncio.sleep(
                    max(0.0, began + self._random.uniform(0.8, 1.2) * PERIOD_SECONDS - time.monotonic())
                )
        finally:
            await provider.channel.close(None)


async def _during(site: FloodedSite, askers: Askers, kinds: Sequence[str], caller: str, seconds: float) -> Verdicts:
    """What the tenants measure while these floods go on, each in a process of its own."""
    processes = []
    try:
        for kind in kinds:
            arguments = [kind, site.endpoint, site.metrics, str(site.folder / "pki"), caller, str(seconds + 60)]
            command = [sys.executable, "-m", "evaluation.hardening.floods", *arguments]
            processes.append(subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL))
        for process in processes:
            assert process.stdout
            await asyncio.to_thread(process.stdout.readline)  # it has imported what it needs, and begins
        askers.phase = begin = Verdicts()
        await asyncio.sleep(BEGIN_SECONDS)
        askers.phase = phase = Verdicts()
        await asyncio.sleep(seconds)
    finally:
        for process in processes:
            process.kill()
            process.communicate()
    askers.phase = Verdicts()
    await asyncio.sleep(CALM_SECONDS)
    phase.at_begin = max(begin.seconds, default=0.0)
    return phase


async def _grpc_call_seconds(site: FloodedSite) -> float:
    """CPU seconds of the provider per call of the cheapest method, less what its own steps take (about a tenth)."""
    before = _cpu_seconds(site.process.pid)
    calls = 400
    async with site.access(USERS[0]).aio_channel() as channel:
        for _ in range(calls):
            await Stub(channel, "Exchange").GetEpoch(GetEpochRequest(log_size=1), timeout=5)
    return (_cpu_seconds(site.process.pid) - before) / calls


def _cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100


async def _measure(figures: Figures, site: FloodedSite, quick: bool, seed: int) -> None:
    seconds = QUICK_FLOOD_SECONDS if quick else FLOOD_SECONDS
    rows: list[list[str]] = []
    slowest = 0.0
    figures.add("grpc_call_seconds", await _grpc_call_seconds(site))
    async with Askers(site, seed) as askers:
        await asyncio.sleep(2.0)
        askers.phase = alone = Verdicts()
        await asyncio.sleep(2 * seconds)
        control = await _during(site, askers, ["idle"] * len(os.sched_getaffinity(0)), "", 2 * seconds)
        figures.add("verdict_p95_seconds_undisturbed", alone.p95, interval=f"n={len(alone.seconds)}")
        figures.add("verdict_p95_seconds_control", control.p95, interval=f"n={len(control.seconds)}")
        for role, works in (("tenant", TENANT), ("agent", AGENT), ("stranger", STRANGER)):
            names = [work.__name__ for work in works if not quick or work.__name__ in QUICK]
            found: dict[str, Verdicts] = {}
            for name in names:
                verdicts = found[name] = await _during(site, askers, [name], ATTACKERS[role], seconds)
                shown = f"{len(verdicts.seconds)}, {verdicts.failed} failed"
                over = f"{verdicts.p95 / control.p95:.2f}"
                rows.append([role, name, f"{1e3 * verdicts.p95:.0f}", over, f"{1e3 * verdicts.at_begin:.0f}", shown])
                slowest = max(slowest, verdicts.at_begin)
            worst = max(found, key=lambda name: found[name].p95)
            ratio, verdicts = found[worst].p95 / control.p95, found[worst]
            shown = f"{worst}, n={len(verdicts.seconds)}, {verdicts.failed} failed"
            figures.add(f"verdict_p95_ratio_{role}", ratio, f"<= {BOUND_RATIO:g}", ratio <= BOUND_RATIO, shown)
    figures.add("verdict_max_seconds_at_begin", slowest)
    columns = ("by", "flood", "p95 of a verdict, ms", "over the control", "longest at its begin, ms", "verdicts")
    figures.table("Verdicts of others during each flood.", columns, rows)


def measure(figures: Figures, quick: bool, seed: int) -> None:
    """Verdicts of others during every flood."""
    with (
        tempfile.TemporaryDirectory(prefix="pharoah-fair-share-") as folder,
        site_with_certificates(Path(folder) / "site") as site,
    ):
        asyncio.run(_measure(figures, site, quick, seed))
