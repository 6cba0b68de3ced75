"""The load generator measures what a sidecar would wait, also for reports whose first calls fail."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest

from evaluation.figures import Figures
from evaluation.hardening.flooded_site import Entrance, FloodedSite
from evaluation.ingest.load import Jobs, Taken
from evaluation.ingest.site import IngestSite, Size
from evaluation.ingest.throughput import Timed, add_latencies
from pharoah_protocol.channels import AccessFiles
from pharoah_protocol.v1 import ReportRequest, ReportResponse
from tests.harness.sockets import socket_folder
from tests.harness.tokens import write_token

SIZE = Size(runs=3, organisations=1, nodes=1)
CALL_SECONDS = 10.0
"""What each call takes, by the clock of the test."""


@dataclass
class Server:
    """A provider that refuses its first calls. Its clock moves with each call."""

    refused: int
    now: float = 0.0
    reported: int = 0

    async def report(self, request: ReportRequest, context: Any) -> ReportResponse:
        self.now += CALL_SECONDS
        if self.refused:
            self.refused -= 1
            await context.abort(grpc.StatusCode.UNAVAILABLE, "not now")
        self.reported += 1
        return ReportResponse()


@asynccontextmanager
async def site_of(server: Server, folder: Path) -> AsyncIterator[IngestSite]:
    method = grpc.unary_unary_rpc_method_handler(
        server.report, ReportRequest.FromString, ReportResponse.SerializeToString
    )
    listening = grpc.aio.server()
    listening.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("pharoah.v1.Runs", {"Report": method}),))
    token = AccessFiles(token=write_token(folder / "token", f"tenant o0/a {'t' * 43}"))
    with socket_folder() as sockets:
        endpoint = f"unix:{sockets}/p.sock"
        listening.add_insecure_port(endpoint)
        await listening.start()
        process: Any = None
        try:
            yield IngestSite(FloodedSite(folder, Entrance(endpoint, (), lambda _: token), "", process), SIZE, 0.0)
        finally:
            await listening.stop(None)


def reported(folder: Path, refused: int, reports: int, per_second: float = 0.0) -> tuple[Taken, Jobs]:
    async def work() -> tuple[Taken, Jobs]:
        server = Server(refused)
        async with site_of(server, folder) as site:
            jobs = Jobs(site, calls_at_once=1, clock=lambda: server.now)
            taken = await jobs.report(lambda: server.reported == reports, 1, per_second=per_second)
            return taken, jobs

    return asyncio.run(work())


def test_the_time_of_a_report_begins_with_its_first_call(tmp_path: Path) -> None:
    taken, jobs = reported(tmp_path, refused=3, reports=2)
    assert taken.failed == 3
    assert taken.seconds == [4 * CALL_SECONDS, CALL_SECONDS]
    assert [job.next_second for job in jobs.jobs] == [1, 1, 0], "the report that failed is sent again, and no other"


def test_the_time_of_a_late_report_begins_when_it_was_due(tmp_path: Path) -> None:
    """One report is due every 20 seconds. The first takes 40, so the second waits for its turn."""
    taken, _ = reported(tmp_path, refused=3, reports=3, per_second=1 / 20)
    assert taken.seconds == [40.0, 30.0, 20.0]


@pytest.mark.parametrize("failed", [0, 7])
def test_calls_that_failed_stand_beside_the_latencies(failed: int) -> None:
    figures = Figures("ingest throughput")
    add_latencies(figures, SIZE, Timed(Taken([0.1, 0.2], 16, failed), 2.0), Taken([0.1]))
    (row,) = [row for row in figures.rows if row.key == "ack_p99_seconds"]
    assert row.interval == f"2 reports, {failed} calls failed"
