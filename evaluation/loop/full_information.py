"""The same jobs with full information: queries in hashed mode, and step times that are not rounded."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import mean, median, mode
from typing import Any, NamedTuple

from evaluation.loop.step_times import Span
from pharoah_protocol.monitoring_plan import PLAIN
from pharoah_protocol.reports import BASELINE_WINDOWS, SKIPPED_STEPS, WINDOW_SECONDS
from tests.harness.site import Site

SUSPICIOUS_RATIO = 1.15
"""A window is risky from this multiple of the baseline on; two risky windows of three make a suspicion."""

NEAR_SECONDS = 30.0
"""Steps this close to a micro-benchmark, before or after it, are compared with those during it."""


def hashed_verdict(site: Site, node: str, command: Sequence[str]) -> str:
    """The status of the verdict in hashed mode, in which the provider looks the job up."""
    line = site.within(node, [sys.executable, "-m", "pharoah", "check", "-o", "json", "--", *command])
    environ = {**site.tenant_environment(node), "PHAROAH_PRIVACY": "hashed"}
    done = subprocess.run(line, env=environ, capture_output=True, text=True)
    begins = done.stdout.find("{")
    return str(json.loads(done.stdout[begins:])["status"]) if begins >= 0 else done.stderr[-200:]


def suspected_with_all(durations: Path, since: float) -> float:
    """When a suspicion after `since` would have begun, from every step's exact time; infinity for no suspicion."""
    windows: list[tuple[float, float]] = []
    held: list[float] = []
    for ended, took in _steps(durations):
        held.append(took)
        if sum(held) >= WINDOW_SECONDS and len(held) >= PLAIN.window_steps:
            windows.append((ended, median(held)))
            held = []
    first = sorted(step for _, step in windows[:BASELINE_WINDOWS])
    if len(first) < BASELINE_WINDOWS:
        return float("inf")
    baseline = first[BASELINE_WINDOWS // 4]
    return _first([(ended, step / baseline) for ended, step in windows[BASELINE_WINDOWS:] if ended > since])


def micro_benchmark_cost(durations: Path, before: float, probes: Sequence[dict[str, Any]]) -> float:
    """Median step while one of these micro-benchmarks ran, over the median step while none did."""
    beside: dict[bool, list[float]] = {True: [], False: []}
    for ended, took in _steps(durations):
        if ended < before:
            beside[any(p["started_at"] < ended and ended - took < p["ended_at"] for p in probes)].append(took)
    return median(beside[True]) / median(beside[False]) if all(beside.values()) else float("nan")


class Slowdown(NamedTuple):
    """Steps between two unix times over those near them, of the kind that is most frequent between them: a job with
    longer sequences for a while is no slower for that. NaN without both."""

    median: float
    mean: float


def slowdown_in(durations: Path, span: Span, others: Sequence[Span] = ()) -> Slowdown:
    """Steps while something ran beside a job over those within half a minute before and after it; steps in `others` are
    not compared with."""
    lines = [line.split() for line in durations.read_text().splitlines()[SKIPPED_STEPS:] if line.count(" ") == 2]
    steps = [(float(ended), float(took), kind) for ended, took, kind in lines]
    during = [(took, kind) for at, took, kind in steps if span.since + took <= at <= span.until]
    if not during:
        return Slowdown(float("nan"), float("nan"))
    usual = mode(kind for _, kind in during)
    near = [
        took
        for at, took, kind in steps
        if kind == usual and _is_near(span, at - took) and not any(one.touches(at - took, at) for one in others)
    ]
    inside = [took for took, kind in during if kind == usual]
    if not near:
        return Slowdown(float("nan"), float("nan"))
    return Slowdown(median(inside) / median(near), mean(inside) / mean(near))


def _is_near(span: Span, began: float) -> bool:
    """Whether a step that began then is compared with those in `span`."""
    return 0 < span.since - began < NEAR_SECONDS or 0 < began - span.until < NEAR_SECONDS


def suspected_with_levels(alerts: Sequence[dict[str, Any]], since: float) -> float:
    """When the provider's own suspicion of this run began, from reported levels; infinity for no suspicion."""
    return min(
        (float(alert["since"]) for alert in alerts if alert["since"] > since - WINDOW_SECONDS), default=float("inf")
    )


def _steps(durations: Path) -> list[tuple[float, float]]:
    """Unix seconds at which each step ended, and how many seconds it took, after the warm-up."""
    lines = [line.split() for line in durations.read_text().splitlines()[SKIPPED_STEPS:] if " " in line]
    return [(float(ended), float(took)) for ended, took, *_ in lines]


def _first(windows: Sequence[tuple[float, float]]) -> float:
    """When the first of the two risky windows began; infinity when there are no two."""
    for at in range(len(windows)):
        risky = [ended for ended, ratio in windows[max(0, at - 2) : at + 1] if ratio >= SUSPICIOUS_RATIO]
        if len(risky) >= 2:
            return risky[0] - WINDOW_SECONDS
    return float("inf")
