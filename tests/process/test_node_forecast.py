"""A job on a site of real processes is warned by the hazard model of its provider."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from pharoah_provider.storage.duckdb import DuckStorage
from tests.harness.hazard_models import MODEL
from tests.harness.jobs import Job
from tests.harness.site import running_site
from tests.harness.until import wait_until

SCRIPT = "evaluation/scripts/train_workload.py"
ALERT = "this node fails within 24 hours"


@pytest.mark.timeout(300)
def test_a_job_is_warned_by_the_model_that_its_agent_hands_over(tmp_path: Path) -> None:
    """By this model every node is likely to fail."""
    profiles = {"n1": {"cpus": [min(os.sched_getaffinity(0))], "threads": 1}}
    with running_site(tmp_path / "site", profiles) as site:
        site.kill("provider")
        store = DuckStorage(site.folder / "provider.duckdb")
        sick = replace(MODEL, alarm_risk=-1e6, made_at=time.time())
        asyncio.run(store.hazards.put_model(sick.encode().decode(), sick.made_at))
        store.close()
        site.start_provider()
        words = [sys.executable, SCRIPT, "mlp", '{"width": 64, "batch": 16}', "--seconds", "60"]
        job = Job(site, "n1", words, tmp_path / "job", "--gate", "warn")
        wait_until(lambda: ALERT in job.output(), "the warning", 120)
        said = " ".join(job.output().split())
        assert "save a checkpoint" in said and "a model of 30 failures of 100 nodes" in said
        job.process.terminate()
        job.wait()
