"""An unknown program computes on a node that the provider takes for idle: provider, agents and program are real.

The attacker has a run on n2 and reports twice its baseline. n1 is the only peer of n2; a program without Pharoah uses
its core. The baselines of n2 are a tenth of what its micro-benchmarks take, so n2 looks slow and a peer is wanted.
"""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc

from pharoah.sidecar.agent_client import ask_node
from pharoah_learning.release import BenchmarkBaseline, Release
from pharoah_protocol.channels import Access
from pharoah_protocol.rpc import Stub
from pharoah_protocol.v1 import Consent, JoinRunRequest, ReportRequest
from pharoah_provider.storage.duckdb import DuckStorage
from tests.harness.site import Site, running_site

MAX_SECONDS = 60.0
PAUSE_SECONDS, MORE_SECONDS = 0.5, 15.0
SETTLE_SECONDS = 2.0
BASELINE_SECONDS = 0.001
"""Far below what any machine shows, so that n2 always looks slow."""
SEEN_IN_USE = "is not idle"
"""What an agent logs when it was asked and saw its node in use."""


@dataclass(frozen=True)
class Beside:
    """What happened while the unknown program ran."""

    benchmarks: int
    """Micro-benchmarks that ran beside it."""
    looks: int
    """How often its agent was asked and saw it."""


def beside_unknown(folder: Path) -> Beside:
    """Attack until the agent of n1 was asked, and a little longer."""
    folder.mkdir()
    asyncio.run(_put_release(folder))
    first, second = sorted(os.sched_getaffinity(0))[:2]
    profiles = {"n1": {"cpus": [first], "threads": 1}, "n2": {"cpus": [second], "threads": 1}}
    with running_site(folder, profiles, settle_seconds=SETTLE_SECONDS) as site:
        busy = [sys.executable, "-c", "while True: pass"]
        program = site.scope.own(subprocess.Popen(site.on_cores("n1", busy)))
        _attack(site)
        program.kill()
        program.wait()
        probes = [row for row in site.listing("probes") if row["node"] == "n1" and not row["error"]]
        return Beside(len(probes), _looks(site))


async def _put_release(folder: Path) -> None:
    storage = DuckStorage(folder / "provider.duckdb")
    try:
        baselines = tuple(
            BenchmarkBaseline("n2", benchmark, True, BASELINE_SECONDS) for benchmark in ("gemm", "memory")
        )
        await storage.published.put_release(Release(1, baselines=baselines))
    finally:
        storage.close()


def _looks(site: Site) -> int:
    return site.log("n1").count(SEEN_IN_USE)


def _attack(site: Site) -> None:
    """One run on n2 that reports twice its baseline for a while."""
    ticket = asyncio.run(ask_node(str(site.agent_socket("n2")), 5.0)).ticket
    with _tenant(site) as channel:
        runs, run_id = Stub(channel, "Runs"), secrets.token_bytes(16)
        consent = Consent(beside_job=True, limit_seconds=4.0)
        joined = runs.JoinRun(JoinRunRequest(run_id=run_id, ticket=ticket, ranks=1, consent=consent), timeout=10)
        for second in range(int(MAX_SECONDS / PAUSE_SECONDS)):
            report = ReportRequest(
                run_id=run_id, attempt=joined.attempt, first_second=second, first_ended_at=time.time(),
                step_levels=[8], memory_levels=[0],
            )  # fmt: skip
            runs.Report(report, timeout=10)
            time.sleep(PAUSE_SECONDS)
            if _looks(site) and second > MORE_SECONDS / PAUSE_SECONDS:
                return


def _tenant(site: Site) -> Any:
    pki = site.folder / "pki"
    files = [pki / name for name in ("ca.pem", "tenant-acme-research.key", "tenant-acme-research.pem")]
    credentials = grpc.ssl_channel_credentials(*(file.read_bytes() for file in files))
    return Access(site.endpoint, credentials=credentials).channel()


if __name__ == "__main__":
    print(json.dumps(vars(beside_unknown(Path(sys.argv[1])))))
