"""Healthy jobs that look like sick ones, watched by the tenant's own machine: alerts that are false.

Four jobs run at a time, two on each core, inside quotas. They pause, evaluate, compile and wait for data
(`train_workload.py --negatives`). Only what jobs really did counts as watched.
"""

from __future__ import annotations

import argparse
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from evaluation.figures import OUTPUT, Figures
from evaluation.loop.local_alerts import NODES, profiles
from evaluation.loop.simple_rules import RULES, windows
from evaluation.loop.step_times import Step, steps_of, watched_seconds
from evaluation.loop.watched_faults import CONTROL_GROUPS
from evaluation.loop.watched_jobs import JOB_UNDER_WATCH, SCRIPT, result_of
from tests.harness.jobs import Job
from tests.harness.site import running_site

FOLDER = OUTPUT / "healthy_jobs"
COMMAND = [*SCRIPT, *JOB_UNDER_WATCH, "--negatives"]
JOB_SECONDS, QUICK_JOB_SECONDS = 4560.0, 120.0
"""How long each of the four jobs trains: five job hours, and a minute more. Of that, a job loads a compiler for ten
seconds before its first step (inside its quota), and what comes after its last step does not count."""
END_SECONDS = 600.0
"""How much longer a job may take to be checked, to begin and to end."""
MIN_HOURS = 5.0
MAX_FALSE_ALERTS = 0.1
"""Per job hour."""
SHARE, CPU_PERIOD_MICROSECONDS = 0.45, 100_000
"""What a job may use of a core, and the period of the kernel's limit."""
SAME_ALERT_SECONDS = 30.0
"""What a simple rule raises less than so long after another time is the same alert."""


def measure(figures: Figures, arguments: argparse.Namespace) -> None:
    """Watch healthy jobs with hard negatives: pauses for checkpoints, evaluation phases, longer sequences, and on each
    core two jobs inside their quotas, which begin one after the other."""
    shutil.rmtree(FOLDER, ignore_errors=True)
    seconds = QUICK_JOB_SECONDS if arguments.quick else JOB_SECONDS
    with _quotas(CONTROL_GROUPS / "cpu") as groups, running_site(FOLDER / "site", profiles()) as site:
        jobs = {}  # they end with the site, and leave the groups empty
        for name, group in groups.items():
            command = _inside(group, [*COMMAND, "--seconds", str(seconds), "--durations", str(FOLDER / name)])
            jobs[name] = Job(site, name.partition("-")[0], command, FOLDER / f"job-{name}", "--gate", "warn")
        ended = {name: job.wait(seconds + END_SECONDS) for name, job in jobs.items()}
    shown = {name: job.output() for name, job in jobs.items()}
    for name, output in shown.items():
        require_watched(name, ended[name], output)
    alerts = sum(output.count("pharoah CONFIRMED") for output in shown.values())
    _figures(figures, alerts, {name: steps_of(FOLDER / name) for name in jobs}, arguments.quick)


def require_watched(name: str, code: int, output: str) -> None:
    """Raises SystemExit for a job whose alerts cannot be counted, because it did not go on to its end or prints nothing
    that it hears."""
    outcome = result_of(output).get("outcome", "none")
    if code != 0 or outcome != "ok":
        raise SystemExit(f"the healthy job {name} ended with {code}, its outcome is {outcome}; see {FOLDER}")
    if "VERDICT" not in output:
        raise SystemExit(f"the job {name} does not print what it hears, so its alerts cannot be counted; see {FOLDER}")


def _figures(figures: Figures, alerts: int, steps: dict[str, list[Step]], quick: bool) -> None:
    hours = sum(watched_seconds(of) for of in steps.values()) / 3600
    figures.add("healthy_job_hours", hours, f">= {MIN_HOURS:g} unless --quick", quick or hours >= MIN_HOURS)
    most = None if quick else MAX_FALSE_ALERTS  # in two minutes one alert is 7.5 in an hour
    figures.rate("false_alerts_per_job_hour", alerts, hours, most)
    names = sorted(steps)
    found = {name: windows(steps[name]) for name in names}
    for rule_name, rule in RULES.items():
        pairs = zip(names, [*names[1:], names[0]], strict=True)
        raised = sum(_alerts_of(rule(found[own], found[other])) for own, other in pairs)
        figures.rate(f"false_alerts_of_{rule_name}_per_job_hour", raised, hours)


@contextmanager
def _quotas(parent: Path) -> Iterator[dict[str, Path]]:
    """A control group for each healthy job, by the job's name: two on each node. Jobs must have ended before it exits.

    Groups that an earlier evaluation has left are used again.
    """
    groups = {f"{node}-{name}": parent / f"pharoah-{node}-{name}" for name in "ab" for node in NODES}
    try:
        for group in groups.values():
            group.mkdir(exist_ok=True)
            (group / "cpu.cfs_quota_us").write_text(str(int(SHARE * CPU_PERIOD_MICROSECONDS)))
        yield groups
    finally:
        for group in filter(Path.exists, groups.values()):
            group.rmdir()


def _inside(group: Path, command: Sequence[str]) -> list[str]:
    return ["sh", "-c", 'echo $$ > "$0/cgroup.procs" && exec "$@"', str(group), *command]


def _alerts_of(raised: Iterator[float]) -> int:
    """How many alerts the times at which a rule raises are."""
    times = list(raised)
    return sum(at - before > SAME_ALERT_SECONDS for before, at in zip([-1e9, *times], times, strict=False))
