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
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass
from math import nan
from pathlib import Path
from statistics import median
from typing import Any

from evaluation.figures import OUTPUT, ROOT, Figures
from evaluation.loop.simple_rules import RULES, Step, windows
from evaluation.loop.watched_faults import CONTROL_GROUPS, SCRIPT, Fault, Started, faults
from evaluation.loop.watched_jobs import wait_until
from pharoah_protocol.vocabulary import Resource
from tests.harness.jobs import Job
from tests.harness.site import Site, running_site

FOLDER = OUTPUT / "local_alerts"
START_SECONDS = 120.0
"""How long a job may take until it steps: it is dry-run first."""
WAIT_SECONDS = 90.0
"""How long an alert is waited for."""
LEAK_SECONDS = 900.0
"""How long a leak is waited for until it ends the job."""
MEMORY_LIMIT_BYTES = 1_000_000_000
DISK_BYTES = 64 << 20
UNLIKE_SLOW = ("leak", "disk_filling", "stopped_rank", "throttled_from_start")
"""Faults that cannot be seen by comparing steps with those before."""
NODES = ("n1", "n2")
TRAIN_WORKLOAD = [sys.executable, str(ROOT / "evaluation" / "scripts" / "train_workload.py")]
HEALTHY = [*TRAIN_WORKLOAD, "gpt", '{"length": 64, "batch": 4}', "--negatives"]
MOST_FALSE_ALERTS = 0.1
"""Per job hour."""
HEALTHY_FOLDER = OUTPUT / "healthy_jobs"
HEALTHY_SECONDS = 4500.0
"""Four jobs at a time: five job hours."""
HEALTHY_SHARE, CPU_PERIOD_MICROSECONDS = 0.45, 100_000
"""What a healthy job may use of a core, and the period of the kernel's limit."""


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
    with running_site(FOLDER / "site", _profiles()) as site:
        episodes = _beside_each_other(site, [fault for fault in planned if not fault.alone], NODES)
        for number, fault in enumerate(fault for fault in planned if fault.alone):
            node = "both" if fault.ranks > 1 else "n1"
            episodes.append(_episode(site, node, f"alone-{number}", fault))
        _figures(figures, episodes)


def _profiles() -> dict[str, dict[str, Any]]:
    """Two nodes with a core each, and one with both."""
    cores = sorted(os.sched_getaffinity(0))[:2]
    limits = {"threads": 1, "memory_limit_bytes": MEMORY_LIMIT_BYTES}
    profiles = {node: {"cpus": [core], **limits} for node, core in zip(NODES, cores, strict=True)}
    return {**profiles, "both": {"cpus": cores, "threads": 1}}


def _beside_each_other(site: Site, planned: Sequence[Fault], nodes: Sequence[str]) -> list[Episode]:
    """One job on each node at a time."""
    waiting, done = list(enumerate(planned)), list[Episode]()
    failures: list[BaseException] = []

    def work(node: str) -> None:
        try:
            while waiting:
                number, fault = waiting.pop()
                done.append(_episode(site, node, str(number), fault))
        except BaseException as failure:  # noqa: BLE001 - it is raised in the main thread
            failures.append(failure)

    threads = [threading.Thread(target=work, args=(node,)) for node in nodes]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    return done


def _episode(site: Site, node: str, name: str, fault: Fault) -> Episode:
    folder = FOLDER / name
    folder.mkdir(parents=True)
    with _small_disk(folder / "disk") if fault.kind == "disk_filling" else nullcontext():
        started = _start(site, node, folder, fault)
        try:
            return _observed(started, fault)
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


def _observed(started: Started, fault: Fault) -> Episode:
    wait_until((started.folder / "durations").exists, START_SECONDS)
    time.sleep(fault.after_seconds)
    early = len(started.alerts())
    began = time.time()
    (started.folder / "trigger").touch()
    leaks = fault.kind == "leak"
    with fault.beside(started, fault.dose) if fault.beside else nullcontext():
        wait_until(lambda: len(started.alerts()) > early, LEAK_SECONDS if leaks else WAIT_SECONDS)
        ended = time.time()
    if leaks:
        wait_until(lambda: started.job.returncode is not None, LEAK_SECONDS)
    alert = next(iter(started.alerts()[early:]), None)
    steps = _steps(started.folder / "durations")
    episode = Episode(
        kind=fault.kind,
        dose=fault.dose,
        resource=fault.resource,
        began=began,
        slowed=_slowed(steps, began, ended),
        delay=alert["at"] - began if alert else nan,
        named=alert["resource"] if alert else "",
        where=alert["node_alias"] if alert else "",
        failed_at=steps[-1].ended_at if leaks and started.job.returncode is not None and steps else nan,
        failure_from=alert["failure_from"] if alert else 0.0,
        failure_until=alert["failure_until"] if alert else 0.0,
        early=early,
        simple={name: _first(rule, steps, began, ended) for name, rule in RULES.items() if name != "peer_similarity"},
    )
    shown = f"{episode.delay:.0f} s, {episode.named} at {episode.where}" if alert else "MISSED"
    print(f"  {fault.kind} {fault.dose:g} on {started.node}, steps x{episode.slowed:.2f}: {shown}", flush=True)
    return episode


def _slowed(steps: Sequence[Step], began: float, ended: float) -> float:
    before = [step.seconds for step in steps if began - 50 < step.ended_at < began]
    during = [step.seconds for step in steps if began + 1 < step.ended_at < ended]
    return (sum(during) / len(during)) / (sum(before) / len(before)) if before and during else nan


def _first(rule: Callable[..., Iterator[float]], steps: Sequence[Step], began: float, ended: float) -> float:
    found = windows(steps)
    return next((at - began for at in rule(found, found) if began < at <= ended + 5), nan)


def _steps(path: Path) -> list[Step]:
    lines = path.read_text().splitlines() if path.exists() else []
    return [Step(*map(float, line.split()[:2])) for line in lines if " " in line]


@contextmanager
def _small_disk(folder: Path) -> Iterator[None]:
    """A file system in memory that fills up within minutes. Mounting needs root."""
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "pharoah", str(folder)], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def _figures(figures: Figures, episodes: Sequence[Episode]) -> None:
    figures.details["episodes"] = [asdict(episode) for episode in episodes]
    slow = [one for one in episodes if not one.slowed < 1.1 or one.kind in UNLIKE_SLOW]  # NaN: no step ended
    figures.add("injections", len(episodes), ">= 40 unless --quick", True)
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


def measure_healthy(figures: Figures, arguments: argparse.Namespace) -> None:
    """Watch healthy jobs with hard negatives: pauses for checkpoints, evaluation phases, longer sequences, and on each
    core two jobs inside their quotas, which begin one after the other."""
    shutil.rmtree(HEALTHY_FOLDER, ignore_errors=True)
    seconds = 120.0 if arguments.quick else HEALTHY_SECONDS
    with running_site(HEALTHY_FOLDER / "site", _profiles()) as site, _quotas() as groups:
        jobs = {}
        for name, group in groups.items():
            command = _inside(group, [*HEALTHY, "--seconds", str(seconds), "--durations", str(HEALTHY_FOLDER / name)])
            jobs[name] = Job(site, name.partition("-")[0], command, HEALTHY_FOLDER / f"job-{name}", "--gate", "warn")
        for job in jobs.values():
            job.wait(seconds + 600)
    shown = {name: job.output() for name, job in jobs.items()}
    if not all("VERDICT" in text for text in shown.values()):
        raise SystemExit(f"a job does not print what it hears, so its alerts cannot be counted; see {HEALTHY_FOLDER}")
    alerts = {name: text.count("pharoah CONFIRMED") for name, text in shown.items()}
    found = {name: windows(_steps(HEALTHY_FOLDER / name)) for name in jobs}
    hours = len(jobs) * seconds / 3600
    figures.add("healthy_job_hours", hours, ">= 5 unless --quick", arguments.quick or hours >= 5)
    most = None if arguments.quick else MOST_FALSE_ALERTS  # in two minutes one alert is 7.5 in an hour
    figures.rate("false_alerts_per_job_hour", sum(alerts.values()), hours, most)
    names = sorted(found)
    for rule_name, rule in RULES.items():
        pairs = zip(names, [*names[1:], names[0]], strict=True)
        raised = sum(_episodes_of(rule(found[own], found[other])) for own, other in pairs)
        figures.rate(f"false_alerts_of_{rule_name}_per_job_hour", raised, hours)


@contextmanager
def _quotas() -> Iterator[dict[str, Path]]:
    """A control group for each healthy job, by the job's name: two on each node."""
    groups = {f"{node}-{name}": CONTROL_GROUPS / "cpu" / f"pharoah-{node}-{name}" for name in "ab" for node in NODES}
    for group in groups.values():
        group.mkdir()
        (group / "cpu.cfs_quota_us").write_text(str(int(HEALTHY_SHARE * CPU_PERIOD_MICROSECONDS)))
    try:
        yield groups
    finally:
        for group in groups.values():
            group.rmdir()


def _inside(group: Path, command: Sequence[str]) -> list[str]:
    return ["sh", "-c", 'echo $$ > "$0/cgroup.procs" && exec "$@"', str(group), *command]


def _episodes_of(raised: Iterator[float]) -> int:
    """Alerts less than half a minute apart are one."""
    times = list(raised)
    return sum(at - before > 30 for before, at in zip([-1e9, *times], times, strict=False))
