"""The whole loop in small, all processes real: provider, agent, campaign, learning, a launch with a verdict."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from pharoah._settings import Settings
from pharoah.comparison.history import History
from pharoah_benchmarks.micro import suitable
from pharoah_protocol.vocabulary import DeviceKind
from tests.harness.jobs import Job
from tests.harness.site import running_site

CAMPAIGN = """
repeats = 2
[[workload]]
name = "mlp"
steps = 2
settings = { width = 64, batch = 16 }
[[workload]]
name = "mlp"
steps = 2
settings = { width = 64, batch = 16, task = "serve" }
"""
SCRIPT = [sys.executable, "evaluation/scripts/train_workload.py"]


@pytest.mark.timeout(240)
def test_a_campaign_becomes_verdicts(tmp_path: Path) -> None:
    plan = tmp_path / "campaign.toml"
    plan.write_text(CAMPAIGN)
    profiles = {"n1": {"cpus": [min(os.sched_getaffinity(0))], "threads": 1}}
    with running_site(tmp_path / "site", profiles) as site:
        assert site.operator("campaign", "run", str(plan)).wait(200) == 0, site.log("provider")
        learned, _ = site.operator("learn").communicate(timeout=60)
        assert "release 1 sealed as epoch" in learned
        # Runs join two seconds after the answer: a job must last longer to be seen.
        known = Job(site, "n1", [*SCRIPT, "mlp", '{"width": 64, "batch": 16}', "--seconds", "3"], tmp_path / "known")
        assert known.wait() == 0, known.output()
        assert known.verdict()["status"] == "compatible" and known.verdict()["rung"] == "exact"
        done = json.loads(known.output().splitlines()[-1])
        assert done["outcome"] == "ok" and done["steps"] >= 5
        answers = [*SCRIPT, "mlp", '{"width": 64, "batch": 16, "task": "serve"}', "--seconds", "3"]
        serving = Job(site, "n1", answers, tmp_path / "serving")
        assert serving.wait() == 0, serving.output()
        assert serving.verdict()["status"] == "compatible" and serving.verdict()["rung"] == "exact"
        assert serving.output().count("pharoah") == 1, "the captured step is the one that was checked"
        state = site.tenant_environment("n1")["PHAROAH_STATE_DIR"]
        watched = max(History(Settings(state_folder=state)).runs(), key=lambda run: run.began)
        assert watched.steps > 9, "calls of the model were timed"
        new = Job(site, "n1", [*SCRIPT, "lstm", "--steps", "5"], tmp_path / "new", "--strict")
        assert new.wait() == 11, "unknown and --strict: not started"
        assert new.verdict()["status"] == "unknown"
        runs = site.listing("runs")
        assert [run["end_state"] for run in runs] == ["ok", "ok"], "what was not started never joined"
        assert {row["benchmark"] for row in site.listing("probes")} == {
            one.name for one in suitable({DeviceKind.CPU}, False)
        }
