"""Healthy jobs that look like degraded ones: false alerts of the provider, and what its micro-benchmarks cost them."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from math import isnan, log, nan
from pathlib import Path
from statistics import median, stdev
from typing import Any, NamedTuple

from evaluation.figures import Figures
from evaluation.loop import full_information
from evaluation.loop.watched_jobs import FOLDER, agents_are_connected, reports, run_of, wait_until, watched_job
from pharoah_benchmarks.micro import MICRO_BENCHMARKS
from pharoah_provider.monitoring.budgets import SHARE
from tests.harness.site import Site

MOMENT_SECONDS = 4.0
"""About as long as a round of micro-benchmarks takes beside a job."""

ORDER_DELAY_SECONDS = 2.0
"""About how long after a suspicion its micro-benchmarks begin."""


def measure(site: Site, figures: Figures, rounds: int, seconds: float) -> None:
    """Healthy jobs with hard negatives that consent to micro-benchmarks beside them, within the budget that a provider
    has by default.

    It comes before degradations: orders of a wider budget count for a day, and would leave nothing of this one.
    """
    with _default_budget(site):
        _watch_healthy(site, figures, rounds, seconds)


@contextmanager
def _default_budget(site: Site) -> Iterator[None]:
    """The provider of the site has the budget for micro-benchmarks that it has by default."""
    usual = site.benchmark_share
    _restart_provider(site, SHARE)
    try:
        yield
    finally:
        _restart_provider(site, usual)


def _restart_provider(site: Site, benchmark_share: float) -> None:
    site.kill("provider")
    site.benchmark_share = benchmark_share
    site.start_provider()
    wait_until(lambda: agents_are_connected(site), 30)


def _watch_healthy(site: Site, figures: Figures, rounds: int, seconds: float) -> None:
    healthy_from = time.time()
    false, suspected, watched_seconds = 0, 0, 0.0
    disturbed: list[Disturbance] = []
    undisturbed: list[float] = []
    after_suspicions: list[float] = []
    for number in range(rounds):
        names = {node: f"healthy-{number}-{node}" for node in ("n1", "n2")}
        jobs = {
            node: watched_job(site, node, FOLDER / name, seconds, "--negatives", "--durations", str(_steps_of(name)))
            for node, name in names.items()
        }
        for node, job in jobs.items():
            job.wait(seconds + 120)
            reported = reports(site, job)
            alerts = [alert for alert in site.listing("alerts") if alert["run"].lower() == run_of(job)]
            if reported:
                began, ended = reported[0]["started_at"], reported[-1]["ended_at"]
                watched_seconds += ended - began
                steps, spans = _steps_of(names[node]), _orders(site, node, began, ended)
                disturbed += _disturbances(steps, spans)
                undisturbed += _without_orders(steps, spans, _every_half_minute(began, ended))
                after_suspicions += _without_orders(steps, spans, _after(alerts))
            false += sum(a["state"] == "confirmed" or bool(a["fault_domain"] == "node") for a in alerts)
            suspected += len(alerts)
        print(f"  round {number + 1} of {rounds}: {suspected} suspicions, {false} alerts so far", flush=True)
    figures.details["healthy"] = {"runs": 2 * rounds, "seconds_each": seconds, "suspicions": suspected}
    figures.details["disturbances"] = [one._asdict() for one in disturbed]
    hours = watched_seconds / 3600
    figures.add("healthy_job_hours", hours, ">= 1 unless --quick", rounds == 1 or hours >= 1)
    figures.rate("false_alerts_per_job_hour", false, hours)
    figures.rate("suspicions_per_job_hour", suspected, hours)
    _cost_figures(figures, disturbed, watched_seconds)
    _control_figures(figures, undisturbed, after_suspicions)
    _noise(site, figures, healthy_from)


class Disturbance(NamedTuple):
    """An order that ran beside a healthy job."""

    seconds: float
    slowdown: float
    """The median step meanwhile over that of the steps near it; NaN where there are none."""
    mean_slowdown: float
    """The same of the mean step, which one step of ten moves as well."""


def _steps_of(name: str) -> Path:
    """The file that a job writes its step times to."""
    return FOLDER / f"{name}-durations.txt"


class _Span(NamedTuple):
    """When an order ran, in unix seconds."""

    since: float
    until: float


def _orders(site: Site, node: str, began: float, ended: float) -> list[_Span]:
    probes = [p for p in site.listing("probes") if p["node"] == node and p["beside_job"] and not p["error"]]
    return _joined([_Span(p["started_at"], p["ended_at"]) for p in probes if began <= p["started_at"] < ended])


def _disturbances(durations: Path, spans: Sequence[_Span]) -> list[Disturbance]:
    found = []
    for span in spans:
        slowdown = full_information.slowdown_in(durations, span.since, span.until)
        found.append(Disturbance(span.until - span.since, slowdown.median, slowdown.mean))
    return found


def _without_orders(durations: Path, spans: Sequence[_Span], starts: Iterable[float]) -> list[float]:
    """The same ratio for as much time as an order takes, from each start near which no order ran: what the machine
    itself makes of it."""
    clear = full_information.NEAR_SECONDS
    seconds = median(span.until - span.since for span in spans) if spans else MOMENT_SECONDS
    return [
        full_information.slowdown_in(durations, at, at + seconds).median
        for at in starts
        if all(span.until < at - clear or span.since > at + seconds + clear for span in spans)
    ]


def _every_half_minute(began: float, ended: float) -> Iterator[float]:
    """Starts that have half a minute of the job before and after them."""
    at = began + full_information.NEAR_SECONDS
    while at + MOMENT_SECONDS + full_information.NEAR_SECONDS < ended:
        yield at
        at += full_information.NEAR_SECONDS


def _after(alerts: Sequence[dict[str, Any]]) -> list[float]:
    """When the micro-benchmarks of each suspicion would begin. Orders follow
    suspicions, and the machine itself may make steps slower then, so this time is the fair comparison for them."""
    return [float(alert["since"]) + ORDER_DELAY_SECONDS for alert in alerts]


def _joined(spans: Sequence[_Span]) -> list[_Span]:
    """Spans that overlap, or follow each other within a second, are one."""
    found: list[_Span] = []
    for since, until in sorted(spans):
        if found and since - found[-1][1] < 1.0:
            found[-1] = _Span(found[-1].since, max(until, found[-1].until))
        else:
            found.append(_Span(since, until))
    return found


def _cost_figures(figures: Figures, disturbed: Sequence[Disturbance], watched_seconds: float) -> None:
    share = sum(one.seconds for one in disturbed) / watched_seconds if watched_seconds else nan
    figures.add("disturbed_job_time_ratio", share, "<= 0.01", share <= 0.01)
    p90, shown = _p90([one.slowdown for one in disturbed])
    figures.add("probe_job_slowdown_ratio_p90", p90, "<= 1.10", p90 <= 1.10, interval=shown)
    p90, shown = _p90([one.mean_slowdown for one in disturbed])
    figures.add("probe_job_mean_slowdown_ratio_p90", p90, interval=shown)


def _control_figures(figures: Figures, undisturbed: Sequence[float], after_suspicions: Sequence[float]) -> None:
    p90, shown = _p90(undisturbed)
    figures.add("without_orders_slowdown_ratio_p90", p90, interval=shown)
    p90, shown = _p90(after_suspicions)
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
