"""Degradations under watched jobs: whether and when the provider confirms them, and the jobs hear of them."""

from __future__ import annotations

import random
import re
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from math import isnan, nan
from pathlib import Path
from statistics import median
from typing import Any

from evaluation.figures import Figures
from evaluation.loop import full_information
from evaluation.loop.step_times import slowed, steps_of
from evaluation.loop.watched_jobs import FOLDER, has_open_incident, reports, run_of, wait_until, watched_job
from pharoah_protocol.incident_states import CLEARED, CONFIRMED
from tests.harness.jobs import Job, start_cpu_stressor
from tests.harness.site import Site

INJECTION_SECONDS = 90.0
READY_SECONDS = 120.0
"""Before a degradation begins, so that both observers know how the run usually is. The provider learns what
micro-benchmarks show beside it. The sidecar learns its steps, from a minute without micro-benchmarks."""
ALERT_MARK = "pharoah CONFIRMED"
"""What a job prints of an alert, after the time of day."""
HEARING_SECONDS = 2.0
"""An alert of the provider travels to the job and is printed within a second."""
CLEARING_SECONDS = 60.0
"""How long a job goes on at most after a degradation has ended, until its incident is cleared. A job that comes later
could not clear it, and would hear of it instead of raising another."""
SUSPICION_SECONDS = 600.0
"""How long suspicions of earlier jobs are waited for: the pause before an idle node is validated grows to this."""
STRONG = 1.5
"""From so many times the usual step on, levels alone must show the provider that a node is slow. The job's own clock
says how many times it is: what is reported is the very thing that is measured."""
DETECTED_JOB_SECONDS = 420.0
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
    early: bool
    """Whether the job heard of an alert, or its incident was confirmed, before anything was degraded."""
    seen: float
    """The last reported step time over the baseline."""
    slowed: float
    """Steps under the complete degradation over those before, by the job's own clock."""
    suspected_with_all: float
    """Seconds until a suspicion by an observer with full information."""
    suspected_with_levels: float
    """Seconds until the provider's own suspicion."""
    peer_alerted: bool
    """Whether the job on the peer, which is healthy, heard of an alert."""
    cleared: float
    """Seconds from the end of the degradation until no incident of the node was open; NaN when one stayed open."""

    @property
    def found(self) -> bool:
        return not isnan(self.delay)


def _durations(number: int) -> Path:
    """The file that the job under injection writes its step times to."""
    return FOLDER / f"durations-{number}.txt"


def detection(site: Site, figures: Figures, chance: random.Random, injections: int) -> None:
    """One job on each plain node; one of the two nodes is degraded, the other is the peer. Suspicions of earlier jobs
    are validated first: another job could raise none meanwhile."""
    wait_until(lambda: not any(has_open_incident(site, node) for node in ("n1", "n2")), SUSPICION_SECONDS)
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
    wait_until(lambda: site.levels_known(started, 2), 90)
    wait_until(lambda: all(_reported_seconds(site, job) >= 5 for job in jobs.values()), 60)
    time.sleep(max(0.0, started + READY_SECONDS - time.time()))
    return jobs


def _inject(
    site: Site, jobs: dict[str, Job], number: int, node: str, peer: str, slowdown: float, ramp: float
) -> Injection:
    """Degrade one node until its alert is confirmed, or for the longest time an injection may take."""
    began = time.time()
    before = jobs[node].output()
    early = _was_alerted(site, jobs[node]) or ALERT_MARK in before
    stressor = start_cpu_stressor(site.profiles[node]["cpus"], 1 - 1 / slowdown, ramp)
    try:
        found = wait_until(lambda: not isnan(confirmed_at(_incidents(site, jobs[node]), began)), INJECTION_SECONDS)
        wait_until(lambda: not isnan(heard_at(jobs[node].output()[len(before) :], began)), HEARING_SECONDS)
        heard = heard_at(jobs[node].output()[len(before) :], began)
        incidents = _incidents(site, jobs[node])
    finally:
        stressor.kill()
        stressor.wait()
    ended = time.time()
    steps = steps_of(_durations(number))
    cleared = wait_until(lambda: not has_open_incident(site, node), CLEARING_SECONDS)
    cleared_after = time.time() - ended if cleared else nan
    row = Injection(
        number=number,
        node=node,
        peer=peer,
        slowdown=slowdown,
        ramp=ramp,
        began=began,
        delay=confirmed_at(incidents, began) - began if found else nan,
        heard=heard - began,
        early=early,
        seen=_last_ratio(site, jobs[node], ended),
        slowed=slowed(steps, began, ended, ramp),
        suspected_with_all=full_information.suspected_with_all(_durations(number), began) - began,
        suspected_with_levels=full_information.suspected_with_levels(incidents, began) - began,
        peer_alerted=_was_alerted(site, jobs[peer]) or not isnan(heard_at(jobs[peer].output(), began)),
        cleared=cleared_after,
    )
    print(
        f"  {node} planned {slowdown:.2f}x {'ramp' if ramp else 'step'}, "
        f"steps took {row.slowed:.2f}x, seen {row.seen:.2f}x: "
        f"{f'{row.delay:.1f} s' if row.found else 'MISSED'}{'  (peer alerted too)' if row.peer_alerted else ''}"
        f"{'  (alerted before)' if row.early else ''}",
        flush=True,
    )
    return row


def heard_at(output: str, began: float) -> float:
    """Unix time of the first alert in what a job printed, from the second of `began` on, to the second; NaN without
    one."""
    for clock in re.findall(rf"^(\d\d:\d\d:\d\d) {ALERT_MARK}", output, re.MULTILINE):
        today = time.strftime("%Y-%m-%d", time.localtime(began))
        at = time.mktime(time.strptime(f"{today} {clock}", "%Y-%m-%d %H:%M:%S"))
        if at >= began - 1:
            return at
    return nan


def confirmed_at(incidents: Sequence[dict[str, Any]], began: float) -> float:
    """Unix time from `began` on at which an incident was confirmed that is so now; NaN without one. One that was
    confirmed before is a false alert, and no detection."""
    times = [float(one["changed_at"]) for one in incidents if one["state"] == CONFIRMED.name]
    return min((at for at in times if at >= began), default=nan)


def _incidents(site: Site, job: Job) -> list[dict[str, Any]]:
    """What this job has raised."""
    run = run_of(job)
    return [alert for alert in site.listing("alerts") if run and alert["run"].lower() == run]


def _was_alerted(site: Site, job: Job) -> bool:
    """Whether an incident that this job raised was confirmed, also when it is over by now."""
    heard = (CONFIRMED.name, CLEARED.name)
    return any(incident["state"] in heard for incident in _incidents(site, job))


def _last_ratio(site: Site, job: Job, before: float) -> float:
    """The step time over the baseline that a job reported last before a unix time."""
    return float([row for row in reports(site, job) if row["started_at"] < before][-1]["step_ratio"])


def _detection_figures(figures: Figures, rows: list[Injection]) -> None:
    delays = sorted(row.delay for row in rows if row.found)
    seen = [row.seen for row in rows]
    figures.ratio("detected_ratio", len(delays), len(rows), 0.9)
    strong = [row for row in rows if not row.slowed < STRONG]  # NaN: no step ended
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
    figures.add("early_alerts", sum(row.early for row in rows), interval="before the degradations")
    figures.add("peer_alerts", sum(row.peer_alerted for row in rows))
    cleared = [row.cleared for row in rows if row.found and not isnan(row.cleared)]
    figures.ratio("cleared_after_the_end_ratio", len(cleared), len(delays))
    figures.add("cleared_after_p50_seconds", median(cleared) if cleared else nan)


def healthy_runs_are_long_enough(figures: Figures) -> None:
    """Healthy jobs say nothing of false alerts unless each goes on for several times as long as detection takes."""
    seconds = float(figures.details["healthy"]["seconds_each"])
    holds = seconds >= 3 * figures.values["detect_p95_seconds"]
    figures.add("healthy_run_seconds", seconds, ">= 3 x detect_p95", holds)


def micro_benchmark_cost(site: Site, figures: Figures) -> None:
    """Steps while a micro-benchmark ran beside the job over steps while none did, before anything was degraded."""
    probes = [probe for probe in site.listing("probes") if probe["beside_job"]]
    measured = [
        full_information.micro_benchmark_cost(
            _durations(row["number"]), row["began"], [p for p in probes if p["node"] == row["node"]]
        )
        for row in figures.details["degradations"]
    ]
    _cost_figure(figures, measured)


def _cost_figure(figures: Figures, measured: Sequence[float]) -> None:
    """The median of what was measured; a job beside which nothing ran says nothing."""
    ratios = [ratio for ratio in measured if not isnan(ratio)]
    shown = f"[{min(ratios):.2f}, {max(ratios):.2f}] " if ratios else ""
    figures.add(
        "micro_benchmark_cost_ratio",
        median(ratios) if ratios else nan,
        interval=f"{shown}n={len(ratios)} of {len(measured)}",
    )


def _reported_seconds(site: Site, job: Job) -> int:
    return sum(row["seconds"] for row in reports(site, job))
