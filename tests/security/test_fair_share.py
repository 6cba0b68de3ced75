"""What one caller may take of the provider: runs, reports, metrics, lines of the audit log, memory."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import grpc.aio
import pytest

from pharoah_protocol.v1 import EndRunRequest
from pharoah_protocol.vocabulary import Role
from pharoah_provider.domain import Run
from pharoah_provider.monitoring import intake
from pharoah_provider.monitoring import run_budgets as budgets
from pharoah_provider.monitoring.run_budgets import JoinBudgets, ReportBudgets
from pharoah_provider.storage.records import ReportedAmount
from pharoah_serving import audit_log, metrics_server, recorder
from pharoah_serving.audit_log import AuditLog, AuditRecord
from pharoah_serving.errors import Exhausted, ProviderError
from pharoah_serving.metrics_server import MetricsAddress, serving_metrics
from pharoah_serving.principals import Principal
from pharoah_serving.recorder import CallRecorder
from tests.harness.exchange import on_loopback, refused
from tests.harness.loopback import Loopback
from tests.harness.monitored import HandClock, monitored_site
from tests.harness.runs import join, report

LIGHT = Principal(Role.TENANT, "light/a")


def run_of(number: int, node: str = "n1", ranks: int = 1, tenant: str = "acme/a") -> Run:
    return Run(number.to_bytes(16, "big"), tenant, node, 1, ranks, False, 0.0)


def test_an_organisation_has_a_number_of_runs_on_a_node_and_in_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(budgets, "ACTIVE_RUNS_ON_NODE", 3)
    monkeypatch.setattr(budgets, "ACTIVE_RUNS", 5)
    monkeypatch.setattr(budgets, "ACTIVE_RANKS", 64)
    gone: set[bytes] = set()
    joins = JoinBudgets(lambda run: run.run_id not in gone, HandClock().clock)
    joins.restore(run_of(number) for number in range(3))
    with pytest.raises(Exhausted, match="on one node"):
        joins.take("acme/b", "n1", bytes([9]) * 16, 1)
    joins.take("rival", "n1", bytes([9]) * 16, 1)
    for number in (3, 4):
        joins.take("acme/b", "n2", bytes([9]) * 16, 1)
        joins.add_run(run_of(number, "n2"))
    with pytest.raises(Exhausted, match="at most 5 at once"):
        joins.take("acme/b", "n3", bytes([9]) * 16, 1)
    gone.add(run_of(0).run_id)  # it was lost: nobody says so
    joins.take("acme/b", "n3", bytes([9]) * 16, 1)
    with pytest.raises(Exhausted, match="ranks"):
        joins.take("acme/b", "n3", bytes([9]) * 16, 63)


def test_a_job_of_a_thousand_nodes_joins_at_once_and_a_flood_on_one_node_does_not() -> None:
    joins = JoinBudgets(lambda _: True, (now := HandClock()).clock)
    for number in range(1024):
        joins.take("acme", f"n{number}", number.to_bytes(16, "big"), 8)
        joins.add_run(run_of(number, f"n{number}", 8, "acme"))
    for _ in range(int(budgets.NODE_JOINS)):
        joins.take("rival", "n1", bytes(16), 1)
    with pytest.raises(Exhausted, match="in a minute"):
        joins.take("rival", "n1", bytes(16), 1)
    now.now += 1 / budgets.NODE_JOINS_PER_SECOND
    joins.take("rival", "n1", bytes(16), 1)


def test_what_was_reported_today_counts_after_a_restart_and_for_the_whole_organisation(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(budgets, "RANK_SECONDS_PER_DAY", 1000)
    monkeypatch.setattr(budgets, "ROWS_PER_DAY", 10)
    today = [ReportedAmount("acme/a", 700, 2), ReportedAmount("acme/b", 299, 2), ReportedAmount("rival", 5, 10)]
    reported = ReportBudgets(HandClock().clock, today)
    reported.take("acme/c", 1)
    with pytest.raises(Exhausted, match="seconds of ranks"):
        reported.take("acme/c", 1)
    with pytest.raises(Exhausted, match="changes"):
        reported.take("rival", 1)


def test_the_end_of_a_run_gives_no_budget_back_and_ended_runs_report_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(budgets, "RANK_SECONDS_AT_ONCE", 10.0)
    monkeypatch.setattr(budgets, "RANK_SECONDS_PER_SECOND", 0.001)

    async def work(site: Loopback) -> None:
        first = await join(site)
        await site.call("Runs", "Report", report(first, 0, *[1.0] * 8))
        await site.call("Runs", "EndRun", EndRunRequest(run_id=first, state=1))
        code, _ = await refused(site.call("Runs", "Report", report(first, 8, 1.0)))
        assert code is grpc.StatusCode.FAILED_PRECONDITION
        second = await join(site)
        code, message = await refused(site.call("Runs", "Report", report(second, 0, *[1.0] * 8)))
        assert code is grpc.StatusCode.RESOURCE_EXHAUSTED and "organisation" in message

    on_loopback(tmp_path, work)


async def scraped(address: str, head: str = "") -> str:
    host, _, port = address.removeprefix("http://").removesuffix("/metrics").rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(f"GET /metrics HTTP/1.1\r\n{head}\r\n".encode())
    text = (await reader.read()).decode()
    writer.close()
    await writer.wait_closed()
    return text


def test_metrics_change_once_a_minute_and_silent_readers_keep_no_other_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics_server, "CONNECTION_SECONDS", 0.2)
    monkeypatch.setattr(metrics_server, "CONNECTIONS_PER_SECOND", 1000.0)
    calls = [0]

    def read() -> bytes:
        calls[0] += 1
        return b"calls_total %d\n" % calls[0]

    async def work() -> None:
        async with serving_metrics(read, MetricsAddress("127.0.0.1:0")) as address:
            first = await scraped(address)
            host, _, port = address.removeprefix("http://").removesuffix("/metrics").rpartition(":")
            silent = [await asyncio.open_connection(host, int(port)) for _ in range(30)]
            assert await scraped(address) == first and first.endswith("calls_total 2\n")
            for _, writer in silent:
                writer.close()

    asyncio.run(work())


def test_metrics_are_for_this_machine_and_for_who_has_the_token(tmp_path: Path) -> None:
    with pytest.raises(ProviderError, match="--metrics-public"):
        MetricsAddress("0.0.0.0:7480").check()
    MetricsAddress("0.0.0.0:7480", public=True).check()
    token = tmp_path / "token"
    token.write_text("s" * 20 + "\n")
    token.chmod(0o644)

    async def work() -> None:
        with pytest.raises(ProviderError, match="chmod 600"):
            async with serving_metrics(lambda: b"x\n", MetricsAddress("127.0.0.1:0", token)):
                pass
        token.chmod(0o600)
        async with serving_metrics(lambda: b"x\n", MetricsAddress("127.0.0.1:0", token)) as address:
            assert "401" in await scraped(address) and "401" in await scraped(address, "Authorization: Bearer t\r\n")
            assert (await scraped(address, f"Authorization: Bearer {'s' * 20}\r\n")).endswith("x\n")
        shared = tmp_path / "shared"
        shared.mkdir(mode=0o755)
        with pytest.raises(ProviderError, match="yours alone"):
            async with serving_metrics(lambda: b"", MetricsAddress(f"unix:{shared}/m.sock")):
                pass
        async with serving_metrics(lambda: b"x\n", MetricsAddress(f"unix:{tmp_path}/run/m.sock")):
            reader, writer = await asyncio.open_unix_connection(tmp_path / "run" / "m.sock")
            writer.write(b"GET /metrics HTTP/1.1\r\n\r\n")
            assert (await reader.read()).endswith(b"x\n")
            writer.close()
        assert not (tmp_path / "run" / "m.sock").exists()

    asyncio.run(work())


def test_calls_of_strangers_are_one_line_with_a_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorder, "LINES_OF_A_CALLER", 2)
    log = AuditLog(tmp_path)
    record = CallRecorder(log, lambda: 1e9)
    for number in range(500):
        record.record(
            AuditRecord(method="GetEpoch", status="UNAUTHENTICATED"), None, f"ipv4:10.0.0.{number % 7}:{number}"
        )
    for _ in range(9):
        record.record(AuditRecord("tenant", "light/a", "GetEpoch", status="OK"), LIGHT, "ipv4:10.0.0.1:1")
    for _ in range(4):  # these have used a quota
        record.record(AuditRecord("tenant", "light/a", "GetOffer", status="OK", quota=True), LIGHT, "ipv4:10.0.0.1:1")
    record.flush()
    record.flush()
    log.close()
    (file,) = tmp_path.iterdir()
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    audit_log.verify(file)
    assert [line["method"] for line in lines] == ["GetEpoch"] * 2 + ["GetOffer"] * 4 + ["GetEpoch"] * 2
    assert (lines[6]["calls"], lines[6]["peers"], lines[6]["name"]) == (500, 7, "")
    assert lines[7]["calls"] == 7 and "calls" not in lines[0]


def test_a_start_reads_the_audit_log_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = AuditLog(tmp_path)
    for _ in range(10):
        log.record(1e9, AuditRecord("tenant", "acme", "GetOffer", status="OK"))
    log.close()
    reads: list[Path] = []
    honest = audit_log.verify

    def verified(path: Path, *each: Any) -> str:
        reads.append(path)
        return honest(path, *each)

    monkeypatch.setattr(audit_log, "verify", verified)
    log = AuditLog(tmp_path)
    assert sum(record.calls for record in log.today(1e9)) == 10
    assert len(list(log.list_finished((), 1e9 + audit_log.DAY_SECONDS))) == 1
    log.close()
    assert len(reads) == 1


def test_the_provider_remembers_runs_that_go_on_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(intake, "FEW_RUNS", 3)

    async def inside() -> None:
        async with monitored_site(tmp_path) as site:
            for _ in range(20):
                run = await site.join("n1")
                await site.feel(run, 1.0)
                site.monitor.unwatch(run.run_id)  # it is lost
            assert len(site.intake._taken) <= 4

    asyncio.run(inside())
