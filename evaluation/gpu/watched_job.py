"""What it costs a job on the GPU to be watched: `pharoah run` with an agent on its node, beside the plain job.

Provider, agent and job are real processes on one machine. The job consents to nothing.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median

from evaluation.figures import OUTPUT, Figures
from evaluation.pages import ROOT
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
MAX_SLOWDOWN_RATIO = 1.01


def measure(figures: Figures, _: argparse.Namespace) -> None:
    """The median step with Pharoah over that without, in pairs."""
    ratios = []
    with gpu_site(FOLDER) as site:
        for number in range(PAIRS):
            plain, watched = (
                _median_step(site, f"{number}-{kind}", kind == "watched") for kind in ("plain", "watched")
            )
            ratios.append(watched / plain)
            print(f"  step {1000 * plain:.2f} ms, watched {1000 * watched:.2f} ms", flush=True)
    ratio = median(ratios)
    shown = f"[{min(ratios):.4f}, {max(ratios):.4f}] n={PAIRS}"
    figures.add("watched_gpu_step_ratio", ratio, f"<= {MAX_SLOWDOWN_RATIO:g}", ratio <= MAX_SLOWDOWN_RATIO, shown)


def _median_step(site: Site, name: str, watched: bool) -> float:
    folder = FOLDER / name
    command = [*SCRIPT, *SIZE, "--seconds", str(PAIR_SECONDS), *job_files(folder)]
    if not watched:
        command = ["env", "PHAROAH_MODE=disabled", *command]
    job = Job(site, NODE, command, folder, *(["--gate", "off"] if watched else []), wrapped=watched)
    if code := job.wait():
        raise SystemExit(f"evaluation gpu: the job has ended with {code}: {job.output()[-800:]}")
    return median(_durations(folder)[SETTLED_STEPS:])


@contextmanager
def gpu_site(folder: Path) -> Iterator[Site]:
    """A provider and the agent of one node, which has all cores of this machine, in a folder that is emptied."""
    shutil.rmtree(folder, ignore_errors=True)
    cores = sorted(os.sched_getaffinity(0))
    with running_site(folder / "site", {NODE: {"cpus": cores, "threads": 1}}) as site:
        yield site


def job_files(folder: Path) -> list[str]:
    files = {"--alerts": "alerts.jsonl", "--trigger": "trigger", "--durations": "durations"}
    return [word for option, file in files.items() for word in (option, str(folder / file))]


def _durations(folder: Path) -> list[float]:
    return [float(line.split()[1]) for line in (folder / "durations").read_text().splitlines() if " " in line]
