"""A job whose node has lost its agent, all processes real: its own sidecar measures, and nothing stays when it ends."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import pytest

from pharoah.sidecar.guest_child import MODULE
from pharoah_learning.release import Release
from pharoah_provider.storage.duckdb import DuckStorage
from tests.harness.jobs import Job
from tests.harness.processes import command_line, descendants
from tests.harness.site import Site, running_site
from tests.harness.until import wait_until

SETTLE_SECONDS = 2.0
MEASURED_SECONDS = 150.0
JOB = [
    sys.executable, "evaluation/scripts/train_workload.py", "mlp", '{"width": 64, "batch": 16}', "--seconds", "600",
]  # fmt: skip


def measuring() -> set[int]:
    return {pid for pid in descendants(os.getpid()) if MODULE in command_line(pid)}


async def put_release(folder: Path) -> None:
    storage = DuckStorage(folder / "provider.duckdb")
    try:
        await storage.published.put_release(Release(1))
    finally:
        storage.close()


@pytest.mark.timeout(400)
def test_a_sidecar_measures_where_the_agent_is_gone_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PHAROAH_GUEST_PROBE_S", "600")
    monkeypatch.setenv("PHAROAH_GATE", "off")
    folder = tmp_path / "site"
    folder.mkdir()
    asyncio.run(put_release(folder))
    profiles = {"n1": {"cpus": [min(os.sched_getaffinity(0))], "threads": 1}}
    with running_site(folder, profiles, settle_seconds=SETTLE_SECONDS) as site:
        job = Job(site, "n1", JOB, tmp_path / "job", "--allow-beside-job")
        wait_until(lambda: bool(site.listing("runs")), "the run to join", MEASURED_SECONDS)
        assert not measured(site)
        site.kill("n1")
        wait_until(lambda: bool(measured(site)) or job.returncode is not None, "a guest probe", MEASURED_SECONDS)
        assert job.returncode is None, job.output()
        rows = site.listing("probes")
        assert {row["node"] for row in rows} == {"n1"} and all(row["repeats"] > 0 for row in rows)
        wait_until(lambda: bool(measuring()), "the next probe", MEASURED_SECONDS)
        job.process.terminate()
        job.wait(30)
        wait_until(lambda: not measuring(), "the child to end with its sidecar", 10)


def measured(site: Site) -> bool:
    return any(row["purpose"] == "level" and not row["error"] for row in site.listing("probes"))
