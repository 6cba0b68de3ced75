"""Micro-benchmarks beside runs that did not agree, and time that one tenant has others measured for.

Simulated are the clock, the reports of runs and the answers of agents. Everything behind them is the code that runs:
the intake, the monitor with its counters, consent, budgets, orders and validations, and a DuckDB file. In the last part
the provider, the agents and an unknown program on an agent's core are real processes.

A site has two machines: n1 and its guest n4 on one; n2, its guest n3, and n5 on another core on the other. The attacker
has a node ticket for n2; n1 is the peer of n2. An order takes 2.5 s where its limit allows that, as a validation does
on an idle core of the reference machine (`python -m pharoah_benchmarks.micro`).
"""

from __future__ import annotations

import asyncio
import random
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path

from evaluation.figures import Figures
from evaluation.hardening.unknown_process import beside_unknown
from pharoah_learning.release import BenchmarkBaseline, Release
from pharoah_protocol.incident_states import CONFIRMED
from pharoah_protocol.reports import MAX_LEVEL, ReportedLevels
from pharoah_protocol.vocabulary import EndState
from pharoah_provider.domain import NOT_IDLE, Run, Subject
from pharoah_provider.monitoring.budgets import SHARE
from pharoah_provider.monitoring.consent import SILENCE_SECONDS
from pharoah_provider.monitoring.monitor import SETTLE_SECONDS
from pharoah_serving.errors import ProviderError
from tests.harness.monitored import HEALTHY_SECONDS, HandClock, MonitoredSite, SentOrder, monitored_site

ORDER_SECONDS = 2.5
SLOW_SECONDS = 1.6 * HEALTHY_SECONDS
NODES = {"n1": ("host A", 1), "n4": ("host A", 1), "n2": ("host B", 2), "n3": ("host B", 2), "n5": ("host B", 3)}
"""Node to its host and its core."""
RELEASE = Release(
    1,
    baselines=tuple(
        BenchmarkBaseline(node, benchmark, beside_job, HEALTHY_SECONDS)
        for node in NODES
        for benchmark in ("gemm", "memory")
        for beside_job in (True, False)
    ),
)
WINDOW_SECONDS, LONG_WINDOW_SECONDS = 600.0, 7200.0
"""The shortest windows over which the share of the time is bounded: with healthy answers, and with slow ones."""
HONEST_SECONDS = 300.0
"""How long an honest job on a slow node is waited for."""
MEMORY = Path("/dev/shm")
"""Files in memory: a commit each simulated second would otherwise wait for a disk."""
SLOW_LEVEL, CALM = ReportedLevels(8), ReportedLevels()
"""Twice the baseline, and the baseline."""


@dataclass
class Scene:
    """A site whose provider can be restarted."""

    folder: Path
    time: HandClock = field(default_factory=HandClock)
    in_use: set[str] = field(default_factory=set)
    refusals: dict[str, str] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    ordered: list[SentOrder] = field(default_factory=list)
    _stack: AsyncExitStack = field(default_factory=AsyncExitStack)
    _site: MonitoredSite | None = None

    @property
    def site(self) -> MonitoredSite:
        assert self._site is not None
        return self._site

    async def start(self) -> None:
        """Start the provider, again with the same database."""
        before = self._site
        await self._stack.aclose()
        self._site = site = await self._stack.enter_async_context(
            monitored_site(self.folder, RELEASE, self.time, SETTLE_SECONDS)
        )
        site.ordered, site.order_seconds = self.ordered, ORDER_SECONDS
        site.in_use, site.refusals = self.in_use, self.refusals
        site.seconds.update(self.seconds)
        if before is not None:
            site.continue_after(before)
        for name, (host, core) in NODES.items():
            await site.add_node(name, core, host=host)

    def look_slow(self, node: str, seconds: float = SLOW_SECONDS) -> None:
        """Micro-benchmarks on a node take so long from now on."""
        self.seconds[node] = self.site.seconds[node] = seconds

    async def close(self) -> None:
        await self._stack.aclose()

    async def second(self, reports: Sequence[tuple[Run, ReportedLevels]]) -> None:
        """A second passes, and these runs report."""
        await self.site.passes(1.0)
        for run, levels in reports:
            try:
                await self.site.report(run, [levels])
            except ProviderError:
                continue  # refused, as a provider may do
            await self.site.validated()

    async def end(self, run: Run) -> None:
        """The run of a tenant ends in order."""
        await self.site.storage.runs.end_run(run, EndState.OK, self.time.now)
        self.site.monitor.unwatch(run.run_id)


Attack = Callable[[Scene, int, list[tuple[Run, ReportedLevels]]], Awaitable[None]]
"""Drive the attacker's runs for so many seconds, beside the reports of others."""


async def stays_slow(scene: Scene, seconds: int, others: list[tuple[Run, ReportedLevels]]) -> None:
    """Report twice the baseline once a second, for ever."""
    run = await scene.site.join("n2", tenant="attacker")
    for _ in range(seconds):
        await scene.second([(run, SLOW_LEVEL), *others])
    await scene.end(run)


async def calm_then_slow(scene: Scene, seconds: int, others: list[tuple[Run, ReportedLevels]]) -> None:
    """Behave until the levels may be known, then report the largest level."""
    run = await scene.site.join("n2", tenant="attacker")
    for second in range(seconds):
        await scene.second([(run, CALM if second < seconds // 3 else ReportedLevels(MAX_LEVEL)), *others])
    await scene.end(run)


async def ends_and_joins(
    scene: Scene, seconds: int, others: list[tuple[Run, ReportedLevels]], every: int = 6, nodes: Sequence[str] = ("n2",)
) -> None:
    """End the run and join again, each time with another account."""
    passed = 0
    while passed < seconds:
        joined = enumerate(nodes, passed)
        runs = [await scene.site.join(node, tenant=f"attacker/{number}") for number, node in joined]
        for _ in range(every):
            await scene.second([*((run, SLOW_LEVEL) for run in runs), *others])
        for run in runs:
            await scene.end(run)
        passed += every


async def outlasts_settling(scene: Scene, seconds: int, others: list[tuple[Run, ReportedLevels]]) -> None:
    """End and join again just after the run may be measured."""
    await ends_and_joins(scene, seconds, others, every=int(SETTLE_SECONDS) + 12)


async def on_two_nodes(scene: Scene, seconds: int, others: list[tuple[Run, ReportedLevels]]) -> None:
    """Runs on two machines at once."""
    await ends_and_joins(scene, seconds, others, every=900, nodes=("n2", "n1"))


async def restarts(scene: Scene, seconds: int, others: list[tuple[Run, ReportedLevels]]) -> None:
    """The provider is restarted every ten minutes, and the run joins again as a new attempt."""
    run = await scene.site.join("n2", tenant="attacker")
    for second in range(seconds):
        if second % 600 == 599:
            await scene.start()
            run = await scene.site.join("n2", run_id=run.run_id, tenant="attacker")
        await scene.second([(run, SLOW_LEVEL), *others])
    await scene.end(run)


ATTACKS: tuple[Attack, ...] = (
    stays_slow, calm_then_slow, ends_and_joins, outlasts_settling, on_two_nodes, restarts,
)  # fmt: skip


@dataclass(frozen=True)
class Victim:
    """Somebody who has not agreed to micro-benchmarks."""

    what: str
    node: str
    beside_job: bool = False
    reports: bool = True
    with_pharoah: bool = True
    others_first: bool = False
    """Whether another run joined the node before, and has agreed."""


VICTIMS = (
    Victim("another run on the attacker's node", "n2"),
    Victim("a guest on the attacker's core", "n3"),
    Victim("another core of the attacker's machine", "n5"),
    Victim("the peer", "n1"),
    Victim("the second run on the peer", "n1", others_first=True),
    Victim("a guest on the peer's core", "n4"),
    Victim("a silent sidecar on the peer", "n1", beside_job=True, reports=False),
    Victim("a silent sidecar on the attacker's machine", "n5", beside_job=True, reports=False),
    Victim("an unknown process on the peer", "n1", with_pharoah=False),
    Victim("an unknown process on the attacker's machine", "n5", with_pharoah=False),
)


def measure(figures: Figures, quick: bool, seed: int) -> None:
    """All attacks with all victims, the time that one tenant may order, and honest jobs on slow nodes."""
    chance = random.Random(seed)
    with tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None) as folder:
        beside = asyncio.run(_beside_victims(Path(folder), 240 if quick else 360, chance, quick))
        real = beside_unknown(Path(folder, "real"))
        none = beside == 0 and real.benchmarks == 0
        figures.add("benchmarks_beside_silence", beside + real.benchmarks, "0", none)
        figures.add("looks_at_an_unknown_process", real.looks, "> 0", real.looks > 0)
        asyncio.run(_agreed(figures, Path(folder)))
        asyncio.run(_time(figures, Path(folder), 600 if quick else 3600))
        asyncio.run(_honest(figures, Path(folder), 1 if quick else 8, chance))
        asyncio.run(_takes_its_own_core(figures, Path(folder), 1920 if quick else 3 * 3600))


async def _scene(folder: Path, name: str) -> Scene:
    (folder / name).mkdir()
    scene = Scene(folder / name)
    await scene.start()
    return scene


async def _beside_victims(folder: Path, seconds: int, chance: random.Random, quick: bool) -> int:
    """Orders to the machine of a victim, summed over victims and attacks; in the short form one attack for each."""
    count = 0
    for number, victim in enumerate(VICTIMS):
        for attack in [chance.choice(ATTACKS[:3])] if quick else ATTACKS:
            scene = await _scene(folder, f"victim-{number}-{attack.__name__}")
            found = await _beside(scene, victim, attack, seconds, chance)
            await scene.close()
            if found:
                print(f"  {victim.what}, {attack.__name__}: {found} orders", flush=True)
            count += found
    return count


async def _beside(scene: Scene, victim: Victim, attack: Attack, seconds: int, chance: random.Random) -> int:
    """Orders to the machine of one victim while one attack goes on."""
    others: list[tuple[Run, ReportedLevels]] = []
    scene.look_slow("n2")  # the attacker takes its own core, so that a peer is wanted
    # The victim computes from its beginning on, and this is what the agents on its core see.
    on_its_core = {name for name, at in NODES.items() if at == NODES[victim.node]}
    scene.in_use |= on_its_core
    scene.refusals |= {} if victim.with_pharoah else dict.fromkeys(on_its_core, NOT_IDLE)
    if victim.others_first:
        others.append((await scene.site.join(victim.node, tenant="first"), CALM))
    if victim.with_pharoah:
        run = await scene.site.join(victim.node, tenant="victim", beside_job=victim.beside_job)
        others += [(run, CALM)] if victim.reports else []
    for _ in range(chance.randrange(int(2 * SILENCE_SECONDS), int(5 * SILENCE_SECONDS))):
        await scene.second(others)
    await attack(scene, seconds, others)
    host = NODES[victim.node][0]
    return sum(NODES[order.node][0] == host for order in scene.ordered)


async def _agreed(figures: Figures, folder: Path) -> None:
    """The same with a victim that has agreed: the zero above is worth something only if there are orders here."""
    scene = await _scene(folder, "agreed")
    scene.look_slow("n2")
    others = [(await scene.site.join("n1", tenant="other"), CALM)]
    for _ in range(int(SETTLE_SECONDS)):
        await scene.second(others)
    scene.ordered.clear()
    await stays_slow(scene, 420, others)
    await scene.close()
    figures.add("benchmarks_beside_agreement", len(scene.ordered), "> 0", bool(scene.ordered))


async def _time(figures: Figures, folder: Path, seconds: int) -> None:
    """The largest share of any window of ten minutes or more that one tenant had nodes measured for, all healthy."""
    worst = 0.0
    for attack in ATTACKS:
        scene = await _scene(folder, f"time-{attack.__name__}")
        await attack(scene, seconds, [])
        await scene.close()
        share = largest_share(scene.ordered, WINDOW_SECONDS)
        print(f"  {attack.__name__}: {len(scene.ordered)} orders, {share:.4f} of the time", flush=True)
        worst = max(worst, share)
    figures.add("ordered_by_one_tenant_ratio", worst, f"<= {SHARE:g}", worst <= SHARE, f"{seconds / 3600:g} h each")


def largest_share(orders: Sequence[SentOrder], window_seconds: float) -> float:
    """Seconds of orders over the length of the window, for the worst window of at least this length.

    A worst window begins with an order and ends with one, or it is as short as it may be.
    """
    worst = 0.0
    for first, order in enumerate(orders):
        used = 0.0
        for last in orders[first:]:
            used += last.ended_at - last.began_at
            worst = max(worst, used / max(window_seconds, last.ended_at - order.began_at))
    return worst


async def _honest(figures: Figures, folder: Path, jobs: int, chance: random.Random) -> None:
    """A job that was calm for a while, on a node that then becomes slow: how long until it is confirmed."""
    delays = []
    for number in range(jobs):
        scene = await _scene(folder, f"honest-{number}")
        run = await scene.site.join("n2", tenant="honest")
        others = [(await scene.site.join("n1", tenant="other"), CALM)]
        for _ in range(chance.randrange(600, 1800)):
            await scene.second([(run, CALM), *others])
        scene.look_slow("n2")
        began = scene.time.now
        while scene.time.now - began < HONEST_SECONDS and not await _is_confirmed(scene):
            await scene.second([(run, ReportedLevels(6)), *others])
        delays.append(scene.time.now - began if await _is_confirmed(scene) else float("inf"))
        await scene.close()
    figures.ratio("honest_confirmed_within_30_s_ratio", sum(delay <= 30.0 for delay in delays), jobs, 1.0)
    figures.add("honest_confirmed_worst_seconds", max(delays))


async def _is_confirmed(scene: Scene) -> bool:
    return ("n2", CONFIRMED.name) in await scene.site.alerts()


async def _takes_its_own_core(figures: Figures, folder: Path, seconds: int) -> None:
    """A run makes its own node look slow whenever it is measured: others must not hear of it, its time is bounded."""
    scene = await _scene(folder, "takes-its-own-core")
    heard, passed = 0, 0
    while passed < seconds:
        scene.look_slow("n2")
        await stays_slow(scene, 900, [])
        scene.look_slow("n2", HEALTHY_SECONDS)
        for _ in range(60):
            await scene.second([])
        heard += sum(state.state is CONFIRMED for state in scene.site.states["n2"])
        passed += 960
    changes = await scene.site.storage.incidents.changes(Subject.node("n2"), 0.0)
    confirmed = sum(change.state is CONFIRMED for change in changes)
    await scene.close()
    figures.add("own_core_confirmed_for_itself", confirmed)
    figures.add("own_core_heard_by_others", heard, "0", heard == 0)
    share = largest_share(scene.ordered, LONG_WINDOW_SECONDS)
    figures.add("own_core_ordered_ratio_of_two_hours", share, f"<= {SHARE:g}", share <= SHARE)
