"""Who is on a node: tickets that are renewed, and what an agent sees when it is asked whether its node is idle."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from math import inf
from pathlib import Path
from typing import Any

import grpc
import pytest

from pharoah.end_causes import JudgedEnd
from pharoah.sidecar import run_reporter
from pharoah.sidecar.provider_connection import ProviderConnection
from pharoah.sidecar.run_reporter import RunReporter
from pharoah_protocol.agent_messages import NodeStateAnswer
from pharoah_protocol.node_profile import NO_LIMITS
from pharoah_protocol.reports import ReportedLevels
from pharoah_protocol.v1 import NodeTicket, ProbeOrder
from pharoah_protocol.vocabulary import EndState
from pharoah_provider.agent.local_socket import ticket_socket
from pharoah_provider.agent.look import BUSY_CORES, LOOKS_AT_ONCE, Look, busy_seconds
from pharoah_provider.agent.stream import AgentStream
from pharoah_provider.agent.telemetry import Telemetry
from pharoah_provider.domain import NOT_IDLE
from pharoah_provider.monitoring import watched_runs
from pharoah_provider.services import runs as runs_service
from tests.harness.exchange import on_loopback, refused
from tests.harness.loopback import KEYS, Loopback, node, ticket
from tests.harness.runs import join, report, rows
from tests.harness.until import until


def test_reports_of_a_run_whose_ticket_was_not_renewed_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runs_service, "SHORTEST_RENEWAL_SECONDS", 0.0)

    async def work(site: Loopback) -> None:
        used = ticket()
        run_id = await join(site, ticket=used)
        other = await join(site, ticket=(others := ticket()))
        await site.call("Runs", "Report", report(run_id, 0, 1.0, ticket=ticket()))
        for bad in (others, ticket("n2"), ticket(now=0.0), NodeTicket(body=used.body, signature=bytes(64))):
            code, message = await refused(site.call("Runs", "Report", report(run_id, 1, 1.0, ticket=bad)))
            assert code is grpc.StatusCode.PERMISSION_DENIED and "ticket" in message
        monkeypatch.setattr(watched_runs, "OLDEST_TICKET_SECONDS", 0.0)
        for changes in ({}, {"ticket": used}):
            code, message = await refused(site.call("Runs", "Report", report(other, 0, 1.0)))
            assert code is grpc.StatusCode.FAILED_PRECONDITION and "too old" in message
            code, _ = await refused(site.call("Runs", "Report", report(run_id, 1, 1.0, **changes)))
            assert code is grpc.StatusCode.FAILED_PRECONDITION

    on_loopback(tmp_path, work)


def test_a_sidecar_renews_its_ticket_and_loses_no_second(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs_service, "SHORTEST_RENEWAL_SECONDS", 0.0)
    monkeypatch.setattr(watched_runs, "OLDEST_TICKET_SECONDS", 0.5)
    for name in ("REPORT_SECONDS", "FIRST_PAUSE_SECONDS", "MAX_PAUSE_SECONDS"):
        monkeypatch.setattr(run_reporter, name, 0.05)
    monkeypatch.setattr(run_reporter, "MAX_DELAY_SECONDS", 0.025)

    async def work(site: Loopback) -> None:
        path = tmp_path / "agent.sock"
        settings = site.settings(node_socket=str(path))
        provider = ProviderConnection(settings)
        reporter = RunReporter(provider, b"r" * 16, b"", settings, lambda _: None)

        async def seconds() -> int:
            return sum(json.loads(row)["seconds"] for row in await rows(site, "reports"))

        async def at_least_40() -> bool:
            return await seconds() >= 40

        numbers: list[int] = []
        keep = reporter.second
        monkeypatch.setattr(reporter, "second", lambda number, at: (numbers.append(number), keep(number, at)))
        async with ticket_socket(path, "n1", "boot", KEYS["n1"], NO_LIMITS, NodeStateAnswer):
            reporter.start(ticket("n1"), 1, lambda: [ReportedLevels()], tick_seconds=0.05)
            await until(at_least_40, "40 seconds of reports", 30)
        await reporter.end(JudgedEnd(EndState.OK))
        await provider.channel.close()
        assert [json.loads(row)["attempt"] for row in await rows(site, "runs")] == [1]
        assert await seconds() == len(numbers) and reporter.dropped == 0

    on_loopback(tmp_path, work)


STAT = "cpu  9 9 9 9 9 9 9 9 9 9\ncpu0 {} 0 0 500 7 0 0 0 0 0\ncpu1 0 0 0 0 0 0 0 0 0 0\n"


def look(*used_seconds: float, **changes: Any) -> Look:
    """A look at core 0, which was used for so many seconds since the boot at each reading."""
    readings = iter(STAT.format(int(used * os.sysconf("SC_CLK_TCK"))) for used in used_seconds)
    times = iter(range(10**6))
    content = {"gpu_users": set, "clock": lambda: float(next(times)), "pause": nothing} | changes
    return Look((0,), stat=lambda: next(readings), **content)


async def nothing(_: float) -> None:
    return


@pytest.mark.parametrize(("used", "idle"), [(0.0, True), (0.9 * BUSY_CORES, True), (1.0, False), (0.5, False)])
def test_a_node_is_idle_while_others_use_less_of_its_cores_than_daemons_do(used: float, idle: bool) -> None:
    assert asyncio.run(look(10.0, 10.0 + used).idle()) is idle  # readings are a second apart


def test_a_process_on_a_gpu_or_a_core_that_cannot_be_read_is_use() -> None:
    own, other = {os.getpid()}, {os.getpid(), 1}
    assert asyncio.run(look(0.0, 0.0, gpu_users=lambda: own).idle())
    assert not asyncio.run(look(0.0, 0.0, gpu_users=lambda: other).idle())
    assert not asyncio.run(Look((9999,), gpu_users=set, pause=nothing).idle())
    with pytest.raises(ValueError, match="cpu7"):
        busy_seconds(STAT, (7,))


def test_questions_cannot_follow_what_somebody_does_on_a_node() -> None:
    busy = look(*[0.0, 100.0] * 100)
    answers = [asyncio.run(busy.idle()) for _ in range(20)]
    assert not any(answers)
    now = [0.0]
    free = look(*[0.0] * 400, clock=lambda: now[0])
    seen_idle = 0
    for _ in range(60):
        seen_idle += asyncio.run(free.idle())
        free._seen_idle_at = -inf  # as if each were a question of its own
        now[0] += 1.0
    assert LOOKS_AT_ONCE <= seen_idle <= LOOKS_AT_ONCE + 1


def test_a_real_process_on_the_core_is_seen() -> None:
    core = min(os.sched_getaffinity(0))
    code = f"import os; os.sched_setaffinity(0, [{core}]); print(flush=True)\nwhile True: pass"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as busy:
        assert busy.stdout is not None and busy.stdout.readline()
        try:
            assert not asyncio.run(Look((core,)).idle())
        finally:
            busy.kill()


def test_an_agent_refuses_an_order_for_an_idle_node_that_is_in_use(tmp_path: Path) -> None:
    async def inside() -> None:
        unused: Any = None  # what would measure: it must not be touched
        stream = AgentStream(node("n2"), unused, Telemetry(), unused, unused, look(0.0, 9.0))
        await stream._probe(ProbeOrder(order_id="o", benchmarks=["gemm", "memory"], repeats=3, only_if_idle=True))
        sent = [stream._out.get_nowait() for _ in range(2)]
        assert [one.probe.error for one in sent if one] == [NOT_IDLE, NOT_IDLE]

    asyncio.run(inside())
