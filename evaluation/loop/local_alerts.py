"""Alerts of the tenant's own machine: faults of many kinds under real jobs, and healthy jobs that look like sick ones.

Every job is a real training script under `pharoah run`, without any consent. Two jobs run at a time, each on a core of
its own, where their faults do not touch each other. A fault begins when the job's usual step is known.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass
from functools import partial
from math import inf, nan
from pathlib import Path
from queue import Empty, SimpleQueue
from statistics import median
from typing import Any

from evaluation.figures import OUTPUT, Figures
from evaluation.loop.side_by_side import Stop, side_by_side
from evaluation.loop.simple_rules import RULES, windows
from evaluation.loop.step_times import Span, Step, slowed, steps_of
from evaluation.loop.watched_faults import SCRIPT, Fault, Started, faults
from pharoah_protocol.vocabulary import Resource
from tests.harness.jobs import Job
from tests.harness.site import Site, running_site

FOLDER = OUTPUT / "local_alerts"
START_SECONDS = 120.0
"""How long a job may take until it steps: it is dry-run first."""
WAIT_SECONDS = 90.0
"""How long an alert is waited for. A fault in the time of steps stays for so long in any case: simple rules have the
same time as the alert, which they would not have if it ended the fault."""
WRITING_SECONDS = 5.0
"""A fault stays for so much longer, because the job writes the times of twenty steps at a time."""
LEAK_SECONDS = 900.0
"""How long a leak is waited for until it ends the job."""
MEMORY_LIMIT_BYTES = 1_000_000_000
DISK_BYTES = 64 << 20
UNLIKE_SLOW = ("leak", "disk_filling", "stopped_rank", "throttled_from_start")
"""Faults that cannot be seen by comparing steps with those before."""
NODES = ("n1", "n2")
MIN_INJECTIONS = 40


@dataclass(frozen=True)
class Episode:
    """One fault, and what came of it."""

    kind: str
    dose: float
    resource: str
    began: float
    """Unix seconds."""
    slowed: float
    """Steps during the fault over those before, by the job's own clock."""
    delay: float
    """Seconds until an alert; NaN without one."""
    named: str
    """The resource that the alert names."""
    where: str
    failed_at: float
    """Unix seconds at which the job failed of it; NaN when it did not."""
    failure_from: float
    failure_until: float
    early: int
    """Alerts before the fault."""
    simple: dict[str, float]
    """Seconds until each simple rule raised; NaN when it did not."""

    @property
    def found(self) -> bool:
        return self.delay == self.delay


def measure(figures: Figures, arguments: argparse.Namespace) -> None:
    """Inject all faults."""
    shutil.rmtree(FOLDER, ignore_errors=True)
    planned = faults(arguments.quick)
    random.Random(arguments.seed).shuffle(planned)
    with running_site(FOLDER / "site", profiles()) as site:
        one = partial(_episode, site)
        episodes = _beside_each_other([fault for fault in planned if not fault.alone], NODES, one)
        for number, fault in enumerate(fault for fault in planned if fault.alone):
            node = "both" if fault.ranks > 1 else "n1"
            episodes.append(one(node, f"alone-{number}", fault, Stop()))
        _figures(figures, episodes, arguments.quick)


def profiles() -> dict[str, dict[str, Any]]:
    """Two nodes with a core each, and one with both."""
    cores = sorted(os.sched_getaffinity(0))[:2]
    limits = {"threads": 1, "memory_limit_bytes": MEMORY_LIMIT_BYTES}
    single = {node: {"cpus": [core], **limits} for node, core in zip(NODES, cores, strict=True)}
    return {**single, "both": {"cpus": cores, "threads": 1}}


def _beside_each_other(
    planned: Sequence[Fault], nodes: Sequence[str], one: Callable[[str, str, Fault, Stop], Episode]
) -> list[Episode]:
    """One job on each node at a time. `one` makes an episode on a node, with a name and a fault."""
    waiting = SimpleQueue[tuple[int, Fault]]()
    for numbered in enumerate(planned):
        waiting.put(numbered)

    def work(node: str, stop: Stop) -> list[Episode]:
        done = []
        while (taken := _next(waiting)) is not None:
            stop.check()
            number, fault = taken
            done.append(one(node, str(number), fault, stop))
        return done

    return [episode for of_node in side_by_side(work, nodes, len(nodes)) for episode in of_node]


def _next(waiting: SimpleQueue[tuple[int, Fault]]) -> tuple[int, Fault] | None:
    try:
        return waiting.get_nowait()
    except Empty:
        return None


def _episode(site: Site, node: str, name: str, fault: Fault, stop: Stop) -> Episode:
    folder = FOLDER / name
    folder.mkdir(parents=True)
    with _small_disk(folder / "disk") if fault.kind == "disk_filling" else nullcontext():
        started = _start(site, node, folder, fault)
        try:
            return _observed(started, fault, stop)
        finally:
            started.job.process.terminate()
            started.job.wait()


def _start(site: Site, node: str, folder: Path, fault: Fault | None) -> Started:
    files = {"--alerts": "alerts.jsonl", "--trigger": "trigger", "--durations": "durations"}
    options = [word for option, file in files.items() for word in (option, str(folder / file))]
    words = [sys.executable, str(SCRIPT), "--seconds", "2000", *options, *(fault.options if fault else ())]
    if fault and fault.checkpoints:
        words += ["--checkpoints", str(folder)]
    if fault and fault.ranks > 1:
        launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={fault.ranks}"]
        words = [*launcher, *words[1:]]
    if (folder / "disk").exists():
        words = ["env", "-C", str(folder / "disk"), *words]
    return Started(site, node, folder, fault, Job(site, node, words, folder / "job", "--gate", "off"))


def _observed(started: Started, fault: Fault, stop: Stop) -> Episode:
    stop.wait_until((started.folder / "durations").exists, START_SECONDS)
    stop.sleep(fault.after_seconds)
    span = _injected(started, fault, stop)
    if fault.kind == "leak":
        stop.wait_until(lambda: started.job.returncode is not None, LEAK_SECONDS)
    steps = steps_of(started.folder / "durations")
    ended = fault.kind == "leak" and started.job.returncode is not None and bool(steps)
    episode = _judged(fault, span, started.alerts(), steps, steps[-1].ended_at if ended else nan)
    shown = f"{episode.delay:.0f} s, {episode.named} at {episode.where}" if episode.found else "MISSED"
    print(f"  {fault.kind} {fault.dose:g} on {started.node}, steps x{episode.slowed:.2f}: {shown}", flush=True)
    return episode


def _injected(started: Started, fault: Fault, stop: Stop, now: Callable[[], float] = time.time) -> Span:
    """The time in which a fault is to be found. It acts until it is found or not waited for any more; a fault in the
    time of steps acts to the end of the wait."""
    began, longest = now(), LEAK_SECONDS if fault.kind == "leak" else WAIT_SECONDS
    (started.folder / "trigger").touch()
    with fault.beside(started, fault.dose) if fault.beside else nullcontext():
        stop.wait_until(lambda: _in_time(started.alerts(), Span(began, inf)), longest)
        if fault.kind not in UNLIKE_SLOW:
            stop.sleep(began + longest + WRITING_SECONDS - now())
        return Span(began, min(now(), began + longest))


def _in_time(alerts: Sequence[dict[str, Any]], span: Span) -> list[dict[str, Any]]:
    return [alert for alert in alerts if span.since <= alert["at"] <= span.until]


def _judged(
    fault: Fault, span: Span, alerts: Sequence[dict[str, Any]], steps: Sequence[Step], failed_at: float
) -> Episode:
    """What alerts and simple rules made of the same time."""
    alert = next(iter(_in_time(alerts, span)), None)
    return Episode(
        kind=fault.kind,
        dose=fault.dose,
        resource=fault.resource,
        began=span.since,
        slowed=slowed(steps, span.since, span.until),
        delay=alert["at"] - span.since if alert else nan,
        named=alert["resource"] if alert else "",
        where=alert["node_alias"] if alert else "",
        failed_at=failed_at,
        failure_from=alert["failure_from"] if alert else 0.0,
        failure_until=alert["failure_until"] if alert else 0.0,
        early=sum(one["at"] < span.since for one in alerts),
        simple={name: _first(rule, steps, span) for name, rule in RULES.items() if name != "peer_similarity"},
    )


def _first(rule: Callable[..., Iterator[float]], steps: Sequence[Step], span: Span) -> float:
    found = windows(steps)
    return next((at - span.since for at in rule(found, found) if span.since < at <= span.until), nan)


@contextmanager
def _small_disk(folder: Path) -> Iterator[None]:
    """A file system in memory that fills up within minutes. Mounting needs root."""
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "pharoah", str(folder)], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def _figures(figures: Figures, episodes: Sequence[Episode], quick: bool) -> None:
    figures.details["episodes"] = [asdict(episode) for episode in episodes]
    slow = [one for one in episodes if not one.slowed < 1.1 or one.kind in UNLIKE_SLOW]  # NaN: no step ended
    enough = quick or len(episodes) >= MIN_INJECTIONS
    figures.add("injections", len(episodes), f">= {MIN_INJECTIONS} unless --quick", enough)
    figures.add("early_alerts", sum(one.early for one in episodes), interval="before the faults")
    figures.ratio("detected_ratio", sum(one.found for one in slow), len(slow), 0.95)
    found = [one for one in slow if one.found]
    figures.ratio("resource_named_ratio", sum(one.named == one.resource for one in found), len(found), 0.9)
    delays = [one.delay for one in found if one.kind != "leak"]
    figures.add("detect_p50_seconds", median(delays) if delays else nan)
    throttled = [one for one in episodes if one.kind.startswith("throttled")]
    right = sum(one.where.endswith("rank 1") and one.named == Resource.COMPUTE for one in throttled)
    figures.ratio("throttled_worker_named_ratio", right, len(throttled), 0.95)
    for name in ("rolling_z_score", "fixed_ratio"):
        rows = [one for one in slow if one.kind not in UNLIKE_SLOW and one.slowed >= 1.1]  # rules need whole steps
        figures.ratio(f"detected_by_{name}_ratio", sum(one.simple[name] == one.simple[name] for one in rows), len(rows))
    leaks = [one for one in episodes if one.kind == "leak" and one.found and one.failed_at == one.failed_at]
    leads = [(one.failed_at - one.began - one.delay) / 60 for one in leaks]
    shown = ", ".join(f"{one.dose:g} B/s: {lead:.1f}" for one, lead in zip(leaks, leads, strict=True))
    figures.add("leak_alert_lead_minutes", median(leads) if leads else nan, interval=shown)
    inside = sum(one.failure_from <= one.failed_at <= one.failure_until for one in leaks)
    figures.ratio("leak_forecast_inside_ratio", inside, len(leaks), 0.9)
    kinds: dict[str, list[Episode]] = defaultdict(list)
    for one in episodes:
        kinds[one.kind].append(one)
    figures.details["kinds"] = {kind: f"{sum(o.found for o in some)} of {len(some)}" for kind, some in kinds.items()}
