"""Healthy jobs that look like degraded ones: false alerts of the provider, and what its micro-benchmarks cost them."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from math import isnan, log, nan
from pathlib import Path
from statistics import median, stdev
from typing import Any, NamedTuple

from evaluation.figures import Figures
from evaluation.loop import full_information
from evaluation.loop.step_times import Span
from evaluation.loop.watched_jobs import FOLDER, agents_are_connected, reports, run_of, wait_until, watched_job
from pharoah_benchmarks.micro import MICRO_BENCHMARKS
from pharoah_provider.monitoring.budgets import SHARE
from tests.harness.site import Site

MOMENT_SECONDS = 4.0
"""About as long as a round of micro-benchmarks takes beside a job."""

ORDER_DELAY_SECONDS = 2.0
"""About how long after a suspicion its micro-benchmarks begin."""

WIDER_SHARE = 0.3
"""The budget of the last round, thirty times that of a provider: within its usual one, too few micro-benchmarks run in
two job hours to separate what they cost from the noise of the machine."""


def measure(site: Site, figures: Figures, rounds: int, seconds: float) -> None:
    """Healthy jobs with hard negatives that consent to micro-benchmarks beside them, within the budget that a provider
    has by default, and in one more round within a wider one.

    It comes before degradations: orders of a wider budget count for a day, and would leave nothing of this one.
    """
    usual = site.benchmark_share
    try:
        _restart_provider(site, SHARE)
        _watch_healthy(site, figures, rounds, seconds)
        _restart_provider(site, WIDER_SHARE)
        _watch_measured_often(site, figures, seconds)
    finally:
        _restart_provider(site, usual)


def _restart_provider(site: Site, benchmark_share: float) -> None:
    site.kill("provider")
    site.benchmark_share = benchmark_share
    site.start_provider()
    wait_until(lambda: agents_are_connected(site), 30)


class _Watched(NamedTuple):
    """A healthy job, and what the provider made of it."""

    steps: Path
    """The file that the job wrote its step times to."""
    span: Span
    """From its first report to its last."""
    orders: list[Span]
    alerts: list[dict[str, Any]]


def _watched(site: Site, name: str, seconds: float) -> list[_Watched]:
    """A job on each of two nodes at the same time."""
    files = {node: FOLDER / f"{name}-{node}-durations.txt" for node in ("n1", "n2")}
    jobs = {
        node: watched_job(site, node, FOLDER / f"{name}-{node}", seconds, "--negatives", "--durations", str(steps))
        for node, steps in files.items()
    }
    watched = []
    for node, job in jobs.items():
        job.wait(seconds + 120)
        reported = reports(site, job)
        span = Span(reported[0]["started_at"], reported[-1]["ended_at"]) if reported else Span(0.0, 0.0)
        alerts = [alert for alert in site.listing("alerts") if alert["run"].lower() == run_of(job)]
        watched.append(_Watched(files[node], span, _orders(site, node, span), alerts))
    return watched


def _watch_healthy(site: Site, figures: Figures, rounds: int, seconds: float) -> None:
    healthy_from = time.time()
    jobs: list[_Watched] = []
    for number in range(rounds):
        jobs += _watched(site, f"healthy-{number}", seconds)
        shown = f"{len(_alerts(jobs))} suspicions, {_false(jobs)} alerts so far"
        print(f"  round {number + 1} of {rounds}: {shown}", flush=True)
    disturbed = [one for job in jobs for one in _disturbances(job)]
    figures.details["healthy"] = {"runs": 2 * rounds, "seconds_each": seconds, "suspicions": len(_alerts(jobs))}
    figures.details["disturbances"] = [one._asdict() for one in disturbed]
    watched_seconds = _watched_seconds(jobs)
    hours = watched_seconds / 3600
    figures.add("healthy_job_hours", hours, ">= 1 unless --quick", rounds == 1 or hours >= 1)
    figures.rate("false_alerts_per_job_hour", _false(jobs), hours)
    figures.rate("suspicions_per_job_hour", len(_alerts(jobs)), hours)
    _cost_figures(figures, disturbed, watched_seconds)
    _control_figures(figures, jobs)
    _noise(site, figures, healthy_from)


def _watch_measured_often(site: Site, figures: Figures, seconds: float) -> None:
    """The same jobs with so many orders that their cost can be separated from the noise of the machine."""
    jobs = _watched(site, "measured-often", seconds)
    disturbed = [one for job in jobs for one in _disturbances(job)]
    figures.details["disturbances_wider_budget"] = [one._asdict() for one in disturbed]
    share = sum(one.seconds for one in disturbed) / (_watched_seconds(jobs) or nan)
    figures.add("wider_budget_disturbed_job_time_ratio", share)
    p90, shown = _p90([one.slowdown for one in disturbed])
    figures.add("wider_budget_probe_job_slowdown_ratio_p90", p90, interval=shown)


def _alerts(jobs: Sequence[_Watched]) -> list[dict[str, Any]]:
    """All suspicions of the provider, confirmed or not."""
    return [alert for job in jobs for alert in job.alerts]


def _false(jobs: Sequence[_Watched]) -> int:
    """How many suspicions of healthy jobs became alerts."""
    return sum(one["state"] == "confirmed" or bool(one["fault_domain"] == "node") for one in _alerts(jobs))


def _watched_seconds(jobs: Sequence[_Watched]) -> float:
    return sum(job.span.until - job.span.since for job in jobs)


class Disturbance(NamedTuple):
    """An order that ran beside a healthy job."""

    seconds: float
    slowdown: float
    """The median step meanwhile over that of the steps near it; NaN where there are none."""
    mean_slowdown: float
    """The same of the mean step, which one step of ten moves as well."""


def _orders(site: Site, node: str, span: Span) -> list[Span]:
    """When micro-benchmarks ran on a node in `span`."""
    probes = [p for p in site.listing("probes") if p["node"] == node and p["beside_job"] and not p["error"]]
    return _joined([Span(p["started_at"], p["ended_at"]) for p in probes if span.since <= p["started_at"] < span.until])


def _disturbances(job: _Watched) -> list[Disturbance]:
    found = []
    for order in job.orders:
        slowdown = full_information.slowdown_in(job.steps, order, job.orders)
        found.append(Disturbance(order.until - order.since, slowdown.median, slowdown.mean))
    return found


def _without_orders(job: _Watched, starts: Iterable[float]) -> list[float]:
    """The same ratio for as much time as an order takes, from each start near which no order ran: what the machine
    itself makes of it."""
    clear, orders = full_information.NEAR_SECONDS, job.orders
    seconds = median(order.until - order.since for order in orders) if orders else MOMENT_SECONDS
    return [
        full_information.slowdown_in(job.steps, Span(at, at + seconds)).median
        for at in starts
        if not any(order.touches(at - clear, at + seconds + clear) for order in orders)
    ]


def _every_half_minute(span: Span) -> Iterator[float]:
    """Starts that have half a minute of the job before and after them."""
    at = span.since + full_information.NEAR_SECONDS
    while at + MOMENT_SECONDS + full_information.NEAR_SECONDS < span.until:
        yield at
        at += full_information.NEAR_SECONDS


def _after(alerts: Sequence[dict[str, Any]]) -> list[float]:
    """When the micro-benchmarks of each suspicion would begin. Orders follow
    suspicions, and the machine itself may make steps slower then, so this time is the fair comparison for them."""
    return [float(alert["since"]) + ORDER_DELAY_SECONDS for alert in alerts]


def _joined(spans: Sequence[Span]) -> list[Span]:
    """Spans that overlap, or follow each other within a second, are one."""
    found: list[Span] = []
    for span in sorted(spans):
        if found and span.since - found[-1].until < 1.0:
            found[-1] = Span(found[-1].since, max(span.until, found[-1].until))
        else:
            found.append(span)
    return found


def _cost_figures(figures: Figures, disturbed: Sequence[Disturbance], watched_seconds: float) -> None:
    share = sum(one.seconds for one in disturbed) / watched_seconds if watched_seconds else nan
    figures.add("disturbed_job_time_ratio", share, "<= 0.01", share <= 0.01)
    p90, shown = _p90([one.slowdown for one in disturbed])
    figures.add("probe_job_slowdown_ratio_p90", p90, "<= 1.10", p90 <= 1.10, interval=shown)
    p90, shown = _p90([one.mean_slowdown for one in disturbed])
    figures.add("probe_job_mean_slowdown_ratio_p90", p90, interval=shown)


def _control_figures(figures: Figures, jobs: Sequence[_Watched]) -> None:
    """What the machine makes of the same jobs without orders."""
    p90, shown = _p90([ratio for job in jobs for ratio in _without_orders(job, _every_half_minute(job.span))])
    figures.add("without_orders_slowdown_ratio_p90", p90, interval=shown)
    p90, shown = _p90([ratio for job in jobs for ratio in _without_orders(job, _after(job.alerts))])
    figures.add("suspected_without_orders_slowdown_ratio_p90", p90, interval=shown)


def _p90(ratios: Sequence[float]) -> tuple[float, str]:
    """The 0.9 quantile of those that are known, and their median and number to be shown."""
    known = sorted(ratio for ratio in ratios if not isnan(ratio))
    if not known:
        return nan, "n=0"
    return known[int(0.9 * (len(known) - 1) + 0.5)], f"median {median(known):.2f}, n={len(known)}"


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
