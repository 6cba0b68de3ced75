"""The jobs that a provider watches in these measurements, and what is seen of them."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from evaluation.figures import OUTPUT
from evaluation.pages import ROOT
from pharoah_protocol.incident_states import INCIDENT_STATES
from tests.harness.jobs import Job
from tests.harness.site import Site

FOLDER = OUTPUT / "loop"
SCRIPT = [sys.executable, str(ROOT / "evaluation" / "scripts" / "train_workload.py")]
JOB_UNDER_WATCH = ["gpt", '{"length": 64, "batch": 4}']


def watched_job(site: Site, node: str, folder: Path, seconds: float, *options: str) -> Job:
    command = [*SCRIPT, *JOB_UNDER_WATCH, "--seconds", str(seconds), *options]
    return Job(site, node, command, folder, "--allow-beside-job")


def reports(site: Site, job: Job) -> list[dict[str, Any]]:
    run = run_of(job)
    return [row for row in site.listing("reports") if run and row["run"].lower() == run]


def run_of(job: Job) -> str:
    return str(job.verdict().get("run_id", ""))[:8].lower()


def result_of(output: str) -> dict[str, Any]:
    """The last result in the output of `train_workload.py`; empty without one."""
    lines = [line for line in output.splitlines() if line.startswith('{"outcome"')]
    return dict(json.loads(lines[-1])) if lines else {}


def wait_until(condition: Callable[[], object], seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.5)
    return False


def agents_are_connected(site: Site) -> bool:
    """Whether all agents are, also after a restart of the provider, which knows nodes that are gone."""
    return {row["node"] for row in site.listing("nodes") if row["connected"] == "yes"} == set(site.profiles)


def has_open_incident(site: Site, node: str) -> bool:
    """Whether an incident of a node is not over yet."""
    return any(alert["node"] == node and INCIDENT_STATES[alert["state"]].is_open for alert in site.listing("alerts"))
