"""Memory of the GPU that leaks until the job fails, under `pharoah run` with an agent: is there an alert in time?"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from math import nan
from pathlib import Path
from typing import Any

import torch

from evaluation.figures import OUTPUT, Figures
from evaluation.gpu.watched_job import NODE, SCRIPT, SIZE, gpu_site, job_files
from evaluation.loop.watched_jobs import wait_until
from pharoah_protocol.vocabulary import Resource
from tests.harness.jobs import Job
from tests.harness.site import Site

FOLDER = OUTPUT / "gpu_memory_leak"
LEAK_SECONDS = 60.0
"""The leak fills the GPU in about this time."""
BEFORE_LEAK_SECONDS = 10.0
FIRST_STEP_SECONDS, END_SECONDS = 90.0, 150.0


def measure(figures: Figures, _: argparse.Namespace) -> None:
    """Let the memory of the GPU leak and wait for the alert and the end of the job."""
    with gpu_site(FOLDER) as site:
        _leak(figures, site)


def _leak(figures: Figures, site: Site) -> None:
    folder = FOLDER / "leak"
    dose = torch.cuda.get_device_properties(0).total_memory / LEAK_SECONDS
    command = [*SCRIPT, *SIZE, "--seconds", "1000", "--illness", "leak", "--dose", str(dose), *job_files(folder)]
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
    first: dict[str, Any] = next((one for one in alerts if one["resource"] == Resource.MEMORY_CAPACITY), {})
    lead = failed - first["at"] if first and out_of_memory else nan
    figures.add("gpu_leak_alert_lead_seconds", lead, "> 0", lead > 0, f"filled in {failed - began:.0f} s")
    named = first.get("resource") == Resource.MEMORY_CAPACITY
    figures.add("gpu_leak_resource_named", named, "true", named, str(first.get("resource", "")))
    inside = bool(first) and first["failure_from"] <= failed <= first["failure_until"]
    figures.add("gpu_leak_forecast_inside", inside, "true", inside)
    figures.add("alerts_before_the_leak", early, "0", early == 0)
    figures.details["alerts"] = alerts


def _alerts(folder: Path) -> Sequence[dict[str, Any]]:
    path = folder / "alerts.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
