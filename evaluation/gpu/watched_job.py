"""A job on the GPU under `pharoah run`, with an agent on its node: what watching costs, and a leak until the job fails.

Provider, agent and job are real processes on one machine. The job consents to nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import time
from collections.abc import Sequence
from math import nan
from pathlib import Path
from statistics import median
from typing import Any

import torch

from evaluation.figures import OUTPUT, ROOT, Figures
from evaluation.loop.watched_jobs import wait_until
from pharoah_protocol.vocabulary import Resource
from tests.harness.jobs import Job
from tests.harness.site import Site, running_site

FOLDER = OUTPUT / "gpu_watched_job"
SCRIPT = [sys.executable, str(ROOT / "evaluation" / "scripts" / "train_watched.py"), "--device", "cuda"]
SIZE = ["--width", "4096", "--batch", "2048"]
"""Steps of some tens of milliseconds."""
NODE = "g1"
PAIRS, PAIR_SECONDS = 2, 12.0
"""Runs without and with Pharoah, one after the other, and how long each steps."""
SETTLED_STEPS = 50
"""Steps at the start of a run that do not count: clocks rise, and capture takes one step."""
MOST_SLOWDOWN_RATIO = 1.01
LEAK_SECONDS = 100.0
"""The leak fills the GPU in about this time."""
BEFORE_LEAK_SECONDS = 15.0
FIRST_STEP_SECONDS, END_SECONDS = 90.0, 200.0


def measure(figures: Figures, _: argparse.Namespace) -> None:
    """Measure the cost of watching, then let memory leak."""
    shutil.rmtree(FOLDER, ignore_errors=True)
    cores = sorted(os.sched_getaffinity(0))
    with running_site(FOLDER / "site", {NODE: {"cpus": cores, "threads": 1}}) as site:
        _cost(figures, site)
        _leak(figures, site)


def _cost(figures: Figures, site: Site) -> None:
    """The median step with Pharoah over that without, in pairs."""
    ratios = []
    for number in range(PAIRS):
        plain, watched = (_median_step(site, f"{number}-{kind}", kind == "watched") for kind in ("plain", "watched"))
        ratios.append(watched / plain)
        print(f"  step {1000 * plain:.2f} ms, watched {1000 * watched:.2f} ms", flush=True)
    ratio = median(ratios)
    shown = f"[{min(ratios):.4f}, {max(ratios):.4f}] n={PAIRS}"
    figures.add("watched_gpu_step_ratio", ratio, f"<= {MOST_SLOWDOWN_RATIO:g}", ratio <= MOST_SLOWDOWN_RATIO, shown)


def _median_step(site: Site, name: str, watched: bool) -> float:
    folder = FOLDER / name
    command = [*SCRIPT, *SIZE, "--seconds", str(PAIR_SECONDS), *_files(folder)]
    if not watched:
        command = ["env", "PHAROAH_MODE=disabled", *command]
    job = Job(site, NODE, command, folder, *(["--gate", "off"] if watched else []), wrapped=watched)
    if code := job.wait():
        raise SystemExit(f"evaluation gpu: the job has ended with {code}: {job.output()[-800:]}")
    return median(_durations(folder)[SETTLED_STEPS:])


def _leak(figures: Figures, site: Site) -> None:
    folder = FOLDER / "leak"
    dose = torch.cuda.get_device_properties(0).total_memory / LEAK_SECONDS
    command = [*SCRIPT, *SIZE, "--seconds", "1000", "--illness", "leak", "--dose", str(dose), *_files(folder)]
    job = Job(site, NODE, command, folder, "--gate", "off")
    try:
        if not wait_until((folder / "durations").exists, FIRST_STEP_SECONDS):
            raise SystemExit(f"evaluation gpu: the job does not step: {job.output()[-800:]}")
        time.sleep(BEFORE_LEAK_SECONDS)
        early = len(_alerts(folder))
        began = time.time()
        (folder / "trigger").touch()
        wait_until(lambda: job.returncode is not None, END_SECONDS)
        failed = time.time()
        alerts = _alerts(folder)[early:]
    finally:
        job.process.terminate()
        job.wait()
    out_of_memory = "OutOfMemoryError" in job.output()
    figures.add("gpu_leak_ended_the_job", out_of_memory, "true", out_of_memory)
    first: dict[str, Any] = next(iter(alerts), {})
    lead = failed - first["at"] if first else nan
    figures.add("gpu_leak_alert_lead_seconds", lead, "> 0", lead > 0, f"filled in {failed - began:.0f} s")
    named = first.get("resource") == Resource.MEMORY_CAPACITY
    figures.add("gpu_leak_resource_named", named, "true", named, str(first.get("resource", "")))
    inside = bool(first) and first["failure_from"] <= failed <= first["failure_until"]
    figures.add("gpu_leak_forecast_inside", inside, "true", inside)
    figures.add("alerts_before_the_leak", early, "0", early == 0)
    figures.details["alerts"] = alerts


def _files(folder: Path) -> list[str]:
    files = {"--alerts": "alerts.jsonl", "--trigger": "trigger", "--durations": "durations"}
    return [word for option, file in files.items() for word in (option, str(folder / file))]


def _alerts(folder: Path) -> Sequence[dict[str, Any]]:
    path = folder / "alerts.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def _durations(folder: Path) -> list[float]:
    return [float(line.split()[1]) for line in (folder / "durations").read_text().splitlines() if " " in line]
