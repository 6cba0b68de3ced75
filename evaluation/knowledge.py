"""What full knowledge would have made of the same jobs: hashed questions, and step times that nobody rounds."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

from evaluation.site import Site

SUSPICIOUS_RATIO = 1.15
"""With either knowledge: two of three windows in a row at this much of the baseline."""
WINDOW_SECONDS, WINDOW_STEPS, BASELINE_WINDOWS, SKIPPED_STEPS = 1.0, 4, 8, 5


def hashed_verdict(site: Site, node: str, command: Sequence[str]) -> str:
    """The status of the verdict when the provider is told what it can look up."""
    line = site.on_cores(node, [sys.executable, "-m", "pharoah", "check", "-o", "json", "--", *command])
    environ = {**site.tenant_environment(node), "PHAROAH_PRIVACY": "hashed"}
    done = subprocess.run(line, env=environ, capture_output=True, text=True)
    begins = done.stdout.find("{")
    return str(json.loads(done.stdout[begins:])["status"]) if begins >= 0 else done.stderr[-200:]


def suspected_with_all(durations: Path, since: float) -> float:
    """Unix time of the suspicion after `since`, from every step's exact time; infinity when there is none."""
    lines = [line.split() for line in durations.read_text().splitlines()[SKIPPED_STEPS:] if line.count(" ") == 1]
    windows: list[tuple[float, float]] = []
    held: list[float] = []
    for ended, took in ((float(a), float(b)) for a, b in lines):
        held.append(took)
        if sum(held) >= WINDOW_SECONDS and len(held) >= WINDOW_STEPS:
            windows.append((ended, median(held)))
            held = []
    first = sorted(step for _, step in windows[:BASELINE_WINDOWS])
    if len(first) < BASELINE_WINDOWS:
        return float("inf")
    baseline = first[BASELINE_WINDOWS // 4]
    return _first([(ended, step / baseline) for ended, step in windows[BASELINE_WINDOWS:] if ended > since])


def suspected_with_levels(reports: Sequence[dict[str, Any]], since: float) -> float:
    """The same from what the provider was told, by the same rule."""
    told = [(row["ended_at"], row["step_ratio"]) for row in reports if row["ended_at"] > since and not row["masked"]]
    return _first(told)


def _first(ratios: Sequence[tuple[float, float]]) -> float:
    for at in range(2, len(ratios)):
        if sum(ratio >= SUSPICIOUS_RATIO for _, ratio in ratios[at - 2 : at + 1]) >= 2:
            return ratios[at][0]
    return float("inf")
