"""Degradations under watched jobs, healthy jobs that look like degraded ones, and what micro-benchmarks cost them."""

from __future__ import annotations

import random
import re
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from math import isnan, log, nan
from pathlib import Path
from statistics import median, stdev
from typing import Any, NamedTuple

from evaluation.figures import OUTPUT, ROOT, Figures
from evaluation.loop import full_information
from pharoah_benchmarks.micro import MICRO_BENCHMARKS
from pharoah_protocol.incident_states import CLEARED, CONFIRMED, INCIDENT_STATES
from pharoah_provider.monitoring.budgets import SHARE
from tests.harness.jobs import Job, start_cpu_stressor
from tests.harness.site import Site

FOLDER = OUTPUT / "loop"
SCRIPT = [sys.executable, str(ROOT / "evaluation" / "scripts" / "train_workload.py")]
JOB_UNDER_WATCH = ["gpt", '{"length": 64, "batch": 4}']
INJECTION_SECONDS = 90.0
READY_SECONDS = 60.0
"""Before a degradation begins. The first windows of a run are its baseline, those of a restless job once more, and what
micro-benchmarks show beside it is learned meanwhile."""
HEARING_SECONDS = 2.0
"""An alert of the provider travels to the job and is printed within a second."""
CLEARING_SECONDS = 60.0
"""How long a job goes on at most after a degradation has ended, until its incident is cleared. A job that comes later
could not clear it, and would hear of it instead of raising another."""
STRONG = 1.5
"""From so many times the usual step on, levels alone must show the provider that a node is slow."""
DETECTED_JOB_SECONDS = 360.0
"""The longest of all waits for one injection: levels, first reports, the alert, and its end."""


@dataclass(frozen=True)
class Injection:
    """One planted degradation, and what came of it."""

    number: int
    node: str
    peer: str
    slowdown: float
    """How much longer steps should take."""
    ramp: float
    """Seconds until the degradation is complete."""
    began: float
    """Unix seconds."""
    delay: float
    """Seconds until the alert was confirmed; NaN when it was not."""
    heard: float
    """Seconds until the job heard of it, from the provider or from its own sidecar; NaN when it did not."""
    seen: float
    """The last reported step time over the baseline."""
    suspected_with_all: float
    """Seconds until a suspicion by an observer with full information."""
    suspected_with_levels: float
    """Seconds until the provider's own suspicion."""
    peer_alerted: bool
    cleared: float
    """Seconds from the end of the degradation until no incident of the node was open; NaN when one stayed open."""

    @property
    def found(self) -> bool:
        return not isnan(self.delay)


def _durations(number: int) -> Path:
    """The file that the job under injection writes its step times to."""
    return FOLDER / f"durations-{number}.txt"


def detection(site: Site, figures: Figures, chance: random.Random, injections: int) -> None:
    """One job on each plain node; one of the two nodes is degraded, the other is the peer."""
    rows: list[Injection] = []
    for number in range(injections):
        node, peer = chance.sample(["n1", "n2"], 2)
        slowdown, ramp = chance.uniform(1.2, 2.0), chance.choice([0.0, 8.0])
        jobs = _watched_pair(site, number, node, peer)
        rows.append(_inject(site, jobs, number, node, peer, slowdown, ramp))
        for job in jobs.values():
            job.process.terminate()
            job.wait()
    figures.details["degradations"] = [asdict(row) for row in rows]
    _detection_figures(figures, rows)


def _watched_pair(site: Site, number: int, node: str, peer: str) -> dict[str, Job]:
    """A job on either node, as soon as the levels of both nodes are measured and both jobs report."""
    options = {node: ("--durations", str(_durations(number))), peer: ()}
    started = time.time()
    jobs = {
        name: watched_job(site, name, FOLDER / f"detect-{number}-{name}", DETECTED_JOB_SECONDS, *options[name])
        for name in (node, peer)
    }
    until(lambda: site.levels_known(started, 2), 90)
    until(lambda: all(_reported_seconds(site, job) >= 5 for job in jobs.values()), 60)
    time.sleep(max(0.0, started + READY_SECONDS - time.time()))
    return jobs


def _inject(
    site: Site, jobs: dict[str, Job], number: int, node: str, peer: str, slowdown: float, ramp: float
) -> Injection:
    """Degrade one node until its alert is confirmed, or for the longest time an injection may take."""
    began = time.time()
    stressor = start_cpu_stressor(site.profiles[node]["cpus"], 1 - 1 / slowdown, ramp)
    try:
        found = until(lambda: _confirmed(site, jobs[node]), INJECTION_SECONDS)
        until(lambda: not isnan(_heard_at(jobs[node], began)), HEARING_SECONDS)
        heard = _heard_at(jobs[node], began)
        confirmed_at = _confirmed(site, jobs[node])
        alerts = [alert for alert in site.listing("alerts") if alert["run"].lower() == _run_of(jobs[node])]
    finally:
        stressor.kill()
        stressor.wait()
    ended = time.time()
    cleared = until(lambda: not _has_open_incident(site, node), CLEARING_SECONDS)
    cleared_after = time.time() - ended if cleared else nan
    row = Injection(
        number=number,
        node=node,
        peer=peer,
        slowdown=slowdown,
        ramp=ramp,
        began=began,
        delay=confirmed_at - began if found else nan,
        heard=heard - began,
        seen=_last_ratio(site, jobs[node], ended),
        suspected_with_all=full_information.suspected_with_all(_durations(number), began) - began,
        suspected_with_levels=full_information.suspected_with_levels(alerts, began) - began,
        peer_alerted=_was_alerted(site, jobs[peer]),
        cleared=cleared_after,
    )
    print(
        f"  {node} planned {slowdown:.2f}x {'ramp' if ramp else 'step'}, seen {row.seen:.2f}x: "
        f"{f'{row.delay:.1f} s' if found else 'MISSED'}{'  (peer alerted too)' if row.peer_alerted else ''}",
        flush=True,
    )
    return row


def _heard_at(job: Job, began: float) -> float:
    """Unix time of the first alert that a job printed after `began`, to the second; NaN without one."""
    for clock in re.findall(r"^(\d\d:\d\d:\d\d) pharoah CONFIRMED", job.output(), re.MULTILINE):
        today = time.strftime("%Y-%m-%d", time.localtime(began))
        at = time.mktime(time.strptime(f"{today} {clock}", "%Y-%m-%d %H:%M:%S"))
        if at >= began - 1:
            return at
    return nan


def _was_alerted(site: Site, job: Job) -> bool:
    """Whether an incident that this job raised was confirmed, also when it is over by now."""
    heard = (CONFIRMED.name, CLEARED.name)
    return any(alert["run"].lower() == _run_of(job) and alert["state"] in heard for alert in site.listing("alerts"))


def _has_open_incident(site: Site, node: str) -> bool:
    """Whether an incident of a node is not over yet."""
    return any(alert["node"] == node and INCIDENT_STATES[alert["state"]].is_open for alert in site.listing("alerts"))


def _last_ratio(site: Site, job: Job, before: float) -> float:
    """The step time over the baseline that a job reported last before a unix time."""
    return float([row for row in reports(site, job) if row["started_at"] < before][-1]["step_ratio"])


def _detection_figures(figures: Figures, rows: list[Injection]) -> None:
    delays = sorted(row.delay for row in rows if row.found)
    seen = [row.seen for row in rows]
    figures.ratio("detected_ratio", len(delays), len(rows), 0.9)
    strong = [row for row in rows if row.seen >= STRONG]
    figures.ratio("detected_strong_ratio", sum(row.found for row in strong), len(strong), 0.95)
    figures.ratio("detected_by_either_ratio", sum(not isnan(row.heard) for row in rows), len(rows), 0.95)
    figures.add("slowdown_seen_ratio", median(seen), interval=f"[{min(seen):.2f}, {max(seen):.2f}] n={len(seen)}")
    figures.add("detect_p50_seconds", median(delays) if delays else nan)
    figures.add("detect_p95_seconds", delays[int(0.95 * (len(delays) - 1) + 0.5)] if delays else nan)
    figures.add("suspected_full_information_p50_seconds", median(row.suspected_with_all for row in rows))
    figures.add("suspected_private_p50_seconds", median(row.suspected_with_levels for row in rows))
    later = [
        row.suspected_with_levels - row.suspected_with_all
        for row in rows
        if max(row.suspected_with_all, row.suspected_with_levels) < INJECTION_SECONDS
    ]
    figures.add("suspected_private_later_seconds", median(later) if later else nan, interval=f"n={len(later)}")
    figures.add("peer_alerts", sum(row.peer_alerted for row in rows))
    cleared = [row.cleared for row in rows if row.found and not isnan(row.cleared)]
    figures.ratio("cleared_after_the_end_ratio", len(cleared), len(delays))
    figures.add("cleared_after_p50_seconds", median(cleared) if cleared else nan)


def healthy(site: Site, figures: Figures, rounds: int, seconds: float) -> None:
    """Healthy jobs with hard negatives that consent to micro-benchmarks beside them, within the budget that a provider
    has by default."""
    site.kill("provider")
    site.benchmark_share = SHARE
    site.start_provider()
    until(lambda: len(site.listing("nodes")) == len(site.profiles), 30)
    healthy_from = time.time()
    false, suspected, watched_seconds = 0, 0, 0.0
    disturbed: list[Disturbance] = []
    for number in range(rounds):
        names = {node: f"healthy-{number}-{node}" for node in ("n1", "n2")}
        jobs = {
            node: watched_job(site, node, FOLDER / name, seconds, "--negatives", "--durations", str(_steps_of(name)))
            for node, name in names.items()
        }
        for node, job in jobs.items():
            job.wait(seconds + 120)
            reported = reports(site, job)
            if reported:
                began, ended = reported[0]["started_at"], reported[-1]["ended_at"]
                watched_seconds += ended - began
                disturbed += _disturbances(site, node, _steps_of(names[node]), began, ended)
            alerts = [alert for alert in site.listing("alerts") if alert["run"].lower() == _run_of(job)]
            false += sum(a["state"] == "confirmed" or bool(a["fault_domain"] == "node") for a in alerts)
            suspected += len(alerts)
        print(f"  round {number + 1} of {rounds}: {suspected} suspicions, {false} alerts so far", flush=True)
    figures.details["healthy"] = {"runs": 2 * rounds, "seconds_each": seconds, "suspicions": suspected}
    hours = watched_seconds / 3600
    figures.add("healthy_job_hours", hours, ">= 1 unless --quick", rounds == 1 or hours >= 1)
    figures.rate("false_alerts_per_job_hour", false, hours)
    figures.rate("suspicions_per_job_hour", suspected, hours)
    _cost_figures(figures, disturbed, watched_seconds)
    _noise(site, figures, healthy_from)
    figures.add(
        "healthy_run_seconds",
        seconds,
        ">= 3 x detect_p95",
        seconds >= 3 * figures.values["detect_p95_seconds"],
    )


class Disturbance(NamedTuple):
    """An order that ran beside a healthy job."""

    seconds: float
    slowdown: float
    """The median step meanwhile over that of the steps near it; NaN where there are none."""


def _steps_of(name: str) -> Path:
    """The file that a job writes its step times to."""
    return FOLDER / f"{name}-durations.txt"


def _disturbances(site: Site, node: str, durations: Path, began: float, ended: float) -> list[Disturbance]:
    probes = [p for p in site.listing("probes") if p["node"] == node and p["beside_job"]]
    spans = _joined([(p["started_at"], p["ended_at"]) for p in probes if began <= p["started_at"] < ended])
    return [Disturbance(until - since, full_information.slowdown_in(durations, since, until)) for since, until in spans]


def _joined(spans: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Spans that overlap, or follow each other within a second, are one."""
    found: list[tuple[float, float]] = []
    for since, until in sorted(spans):
        if found and since - found[-1][1] < 1.0:
            found[-1] = found[-1][0], max(until, found[-1][1])
        else:
            found.append((since, until))
    return found


def _cost_figures(figures: Figures, disturbed: Sequence[Disturbance], watched_seconds: float) -> None:
    share = sum(one.seconds for one in disturbed) / watched_seconds if watched_seconds else nan
    figures.add("disturbed_job_time_ratio", share, "<= 0.01", share <= 0.01)
    slowdowns = sorted(one.slowdown for one in disturbed if not isnan(one.slowdown))
    p90 = slowdowns[int(0.9 * (len(slowdowns) - 1) + 0.5)] if slowdowns else nan
    shown = f"median {median(slowdowns):.2f}, n={len(slowdowns)}" if slowdowns else "n=0"
    figures.add("probe_job_slowdown_ratio_p90", p90, "<= 1.10", p90 <= 1.10, interval=shown)


def _noise(site: Site, figures: Figures, healthy_from: float) -> None:
    """How much two healthy nodes differ from one validation to the next: sd of log(own ratio / peer ratio)."""
    probes = [p for p in site.listing("probes") if p["beside_job"] and p["started_at"] > healthy_from]
    for benchmark in MICRO_BENCHMARKS.entries:
        shown = {n: [p for p in probes if (p["node"], p["benchmark"]) == (n, benchmark)] for n in ("n1", "n2")}
        ratios = {node: _own_ratios(rows) for node, rows in shown.items()}
        differences = [
            log(own / peer) for at, own in ratios["n1"] for peer_at, peer in ratios["n2"] if abs(at - peer_at) < 1.5
        ]
        if len(differences) > 2:
            figures.add(f"validation_noise_sd_{benchmark}", stdev(differences), interval=f"n={len(differences)}")


def _own_ratios(probes: list[dict[str, Any]]) -> list[tuple[float, float]]:
    """When each validation of one node began, and what it showed over the level measured last before it."""
    ratios: list[tuple[float, float]] = []
    levels: list[float] = []
    for probe in sorted(probes, key=lambda probe: float(probe["started_at"])):
        if probe["purpose"] == "level":
            levels.append(probe["mean_seconds"])
        elif levels:
            ratios.append((probe["started_at"], probe["mean_seconds"] / median(levels[-3:])))
    return ratios


def micro_benchmark_cost(site: Site, figures: Figures) -> None:
    """Steps while a micro-benchmark ran beside the job over steps while none did, before anything was degraded."""
    probes = [probe for probe in site.listing("probes") if probe["beside_job"]]
    ratios = [
        full_information.micro_benchmark_cost(
            _durations(row["number"]), row["began"], [p for p in probes if p["node"] == row["node"]]
        )
        for row in figures.details["degradations"]
    ]
    figures.add(
        "micro_benchmark_cost_ratio", median(ratios), interval=f"[{min(ratios):.2f}, {max(ratios):.2f}] n={len(ratios)}"
    )


def watched_job(site: Site, node: str, folder: Path, seconds: float, *options: str) -> Job:
    command = [*SCRIPT, *JOB_UNDER_WATCH, "--seconds", str(seconds), *options]
    return Job(site, node, command, folder, "--allow-beside-job")


def reports(site: Site, job: Job) -> list[dict[str, Any]]:
    run = _run_of(job)
    return [row for row in site.listing("reports") if run and row["run"].lower() == run]


def _reported_seconds(site: Site, job: Job) -> int:
    return sum(row["seconds"] for row in reports(site, job))


def _confirmed(site: Site, job: Job) -> float:
    """Unix time at which an alert of this job was confirmed; 0 when none is."""
    for alert in site.listing("alerts"):
        if alert["run"].lower() == _run_of(job) and alert["state"] == "confirmed":
            return float(alert["changed_at"])
    return 0.0


def _run_of(job: Job) -> str:
    return str(job.verdict().get("run_id", ""))[:8].lower()


def until(condition: Any, seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.5)
    return False
