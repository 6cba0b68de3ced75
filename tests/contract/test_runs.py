"""Runs over real gRPC: joining, reporting, receiving each alert once, surviving a restart of the provider."""

from __future__ import annotations

import asyncio
import json
import secrets
import time
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from pharoah._alert import Alert
from pharoah.end_causes import JudgedEnd
from pharoah.sidecar.provider_connection import ProviderConnection
from pharoah.sidecar.run_reporter import KEPT_SECONDS, REMEMBERED_ALERTS, RunReporter
from pharoah_learning.release import BenchmarkBaseline, DegradationModel, Release
from pharoah_protocol.reports import ReportedLevels, level
from pharoah_protocol.v1 import Alert as AlertMessage
from pharoah_protocol.v1 import AskValidationRequest, Consent, EndRunRequest
from pharoah_protocol.vocabulary import EndState
from pharoah_provider.monitoring.intake import CAUGHT_UP_SECONDS
from pharoah_provider.storage.duckdb.runs import DuckRunStore
from pharoah_serving.clock import Clock
from tests.harness.exchange import on_loopback, refused
from tests.harness.loopback import Loopback, loopback, node, ticket
from tests.harness.runs import LATER_SECONDS, join, report, rows
from tests.harness.until import until

pytestmark = pytest.mark.usefixtures("quick_messages")
MODEL = DegradationModel({"slowdown": 1.0}, 0.15, 9, 9)
BASELINES = tuple(BenchmarkBaseline(n, b, True, 0.01) for n in ("n1", "n2") for b in ("gemm", "memory"))
RELEASE = Release(1, (), MODEL, BASELINES)


async def seconds_reported(site: Loopback) -> int:
    """Seconds of all ranks that are stored; the listing has a row per stretch of equal values."""
    return sum(json.loads(row)["seconds"] for row in await rows(site, "reports"))


def test_a_report_sent_twice_is_stored_once(tmp_path: Path) -> None:
    async def work(site: Loopback) -> None:
        run_id = await join(site)
        for request in (
            report(run_id, 0, 1.0, 1.0),
            report(run_id, 0, 1.0, 1.0),
            report(run_id, 1, 1.0, 1.0),
        ):
            await site.call("Runs", "Report", request)
        assert await seconds_reported(site) == 3

    on_loopback(tmp_path, work, RELEASE)


def test_a_run_hears_that_its_node_is_measured(tmp_path: Path) -> None:
    async def work(site: Loopback) -> None:
        run_id = await join(site)
        assert not (await site.call("Runs", "Report", report(run_id, 0, 1.0))).measuring
        await site.agent("n1", lambda _: 0.01)
        await site.call("Runs", "Report", report(run_id, 1, 1.0))
        assert (await site.call("Runs", "Report", report(run_id, 2, 1.0))).measuring

    on_loopback(tmp_path, work, RELEASE)


@pytest.mark.parametrize("attempt", [0, 2])
def test_who_reports_another_attempt_is_asked_to_join_again(tmp_path: Path, attempt: int) -> None:
    """The provider may have another database than the one that the run joined."""

    async def work(site: Loopback) -> None:
        run_id = await join(site)
        code, message = await refused(site.call("Runs", "Report", report(run_id, 0, 1.0, attempt=attempt)))
        assert code is grpc.StatusCode.FAILED_PRECONDITION and "join again" in message

    on_loopback(tmp_path, work, RELEASE)


@pytest.mark.parametrize(
    "changes",
    [
        {"memory_levels": [0]},
        {"step_levels": [], "memory_levels": []},
        {"step_levels": [0] * 9999, "memory_levels": [0] * 9999},
        {"step_levels": [0, 33]},
        {"memory_levels": [0, -33]},
        {"first_ended_at": float("nan")},
        {"first_ended_at": 0.0},
        {"first_ended_at": 2e9},
        {"first_second": 2**63},
    ],
    ids=str,
)
def test_reports_that_do_not_fit_are_refused_by_field_and_leave_no_trace(
    tmp_path: Path, changes: dict[str, Any]
) -> None:
    async def work(site: Loopback) -> None:
        run_id = await join(site)
        code, message = await refused(site.call("Runs", "Report", report(run_id, 0, 1.0, 1.0, **changes)))
        assert code is grpc.StatusCode.INVALID_ARGUMENT and next(iter(changes)) in message
        assert await rows(site, "reports") == []

    on_loopback(tmp_path, work, RELEASE)


def test_a_tenant_asks_for_a_validation_of_a_run_that_goes_on_and_not_all_day(tmp_path: Path) -> None:
    async def work(site: Loopback) -> None:
        run_id = await join(site)
        asks = AskValidationRequest(run_id=run_id)
        await site.call("Runs", "AskValidation", asks)
        (alert,) = await rows(site, "alerts")
        assert json.loads(alert)["state"] == "suspected"
        for _ in range(99):
            await site.call("Runs", "AskValidation", asks)
        code, _ = await refused(site.call("Runs", "AskValidation", asks))
        assert code is grpc.StatusCode.RESOURCE_EXHAUSTED
        await site.call("Runs", "EndRun", EndRunRequest(run_id=run_id, state=1))
        code, _ = await refused(site.call("Runs", "AskValidation", asks))
        assert code is grpc.StatusCode.FAILED_PRECONDITION

    on_loopback(tmp_path, work, RELEASE)


def test_a_run_has_the_ranks_it_joined_with_and_no_others(tmp_path: Path) -> None:
    async def work(site: Loopback) -> None:
        run_id = await join(site, ranks=3)
        await site.call("Runs", "Report", report(run_id, 0, *[1.0] * 6))
        code, message = await refused(site.call("Runs", "Report", report(run_id, 2, *[1.0] * 4)))
        assert code is grpc.StatusCode.INVALID_ARGUMENT and "each of 3 ranks" in message
        assert await seconds_reported(site) == 6
        for ranks in (0, 1_000_000):
            with pytest.raises(grpc.aio.AioRpcError, match="ranks"):
                await join(site, ranks=ranks)

    on_loopback(tmp_path, work, RELEASE)


def test_a_run_belongs_to_its_tenant_and_a_ticket_to_its_run(tmp_path: Path) -> None:
    async def work(site: Loopback) -> None:
        used = ticket()
        run_id = await join(site, ticket=used)
        code, _ = await refused(site.call("Runs", "Report", report(run_id, 0, 1.0), "rival"))
        assert code is grpc.StatusCode.NOT_FOUND
        for changes in ({"ticket": used}, {"run_id": run_id, "who": "rival"}):
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await join(site, **changes)
            assert caught.value.code() is grpc.StatusCode.PERMISSION_DENIED
        code, message = await refused(site.call("Runs", "EndRun", EndRunRequest(run_id=run_id)))
        assert code is grpc.StatusCode.INVALID_ARGUMENT and "state" in message

    on_loopback(tmp_path, work, RELEASE)


class Listener:
    """A run as the sidecar keeps it, with the alerts it received."""

    def __init__(self, site: Loopback, run_id: bytes = b"") -> None:
        self._site = site
        self.alerts: list[Alert] = []
        self.run_id = run_id or secrets.token_bytes(16)
        self._provider = ProviderConnection(site.settings())
        settings = site.settings(allow_beside_job=True)
        self.reporter = RunReporter(self._provider, self.run_id, b"", settings, self.alerts.append)
        self.reporter.start(ticket("n1"), 1, lambda: [ReportedLevels(level(self._ratio))], tick_seconds=1e6)
        self._ratio, self._sent = 1.0, 0

    async def feel(self, *ratios: float) -> None:
        """Report windows of these ratios, one a second from now on."""
        for self._ratio in ratios:
            self.reporter.second(self._sent, time.time() + LATER_SECONDS + self._sent)
            self._sent += 1

    async def settled(self) -> None:
        """Run on calmly until the benchmarks are known beside this job."""

        async def known() -> bool:
            await self.feel(1.0)
            return len(await rows(self._site, "probes")) >= 6

        await until(known, "the levels of the benchmarks", 30)

    async def received(self, *states: str) -> None:
        await until(lambda: [alert.state for alert in self.alerts] == list(states), f"the alerts {states}", 30)

    async def close(self) -> None:
        await self.reporter.end(JudgedEnd(EndState.OK))
        await self._provider.channel.close()


def test_a_degraded_node_is_validated_and_reported_once_and_cleared_once(tmp_path: Path) -> None:
    async def work(site: Loopback) -> None:
        seconds = {"n1": 0.03, "n2": 0.01}
        await site.agent("n1", lambda _: seconds["n1"])
        await site.agent("n2", lambda _: seconds["n2"])
        listener = Listener(site)
        await listener.feel(*[1.0] * 6)
        await listener.settled()
        seconds["n1"] = 0.06  # the campaign said 0.01: what counts is the level beside this job
        await listener.feel(*[1.6] * 4)
        await listener.received("confirmed")
        alert = listener.alerts[0]
        assert "gemm 2.00x" in alert.evidence and alert.fault_domain == "node" and "n1" not in alert.node_alias
        await listener.feel(*[1.6] * 3, *[1.0] * 8)
        await listener.received("confirmed", "cleared")
        assert len({a.alert_id for a in listener.alerts}) == 1
        await listener.close()

    on_loopback(tmp_path, work, RELEASE)


def test_a_node_that_is_slow_before_its_level_is_known_is_compared_with_the_campaign(tmp_path: Path) -> None:
    async def work(site: Loopback) -> None:
        await site.agent("n1", lambda _: 0.02)
        listener = Listener(site)

        async def alarmed() -> bool:
            await listener.feel(1.6, 1.6)
            return bool(listener.alerts)

        await until(alarmed, "an alert", 30)
        assert "beside a job" in listener.alerts[0].evidence
        await listener.close()

    # Ten times as fast: the provider pauses between the rounds that it needs.
    on_loopback(tmp_path, work, RELEASE, clock=Clock(steady=lambda: 10 * time.monotonic()))


def test_a_slow_job_on_a_healthy_node_alarms_nobody(tmp_path: Path) -> None:
    async def work(site: Loopback) -> None:
        await site.agent("n1", lambda _: 0.01)
        listener = Listener(site)
        await listener.feel(*[1.0] * 6, *[1.6] * 6)

        async def probed() -> bool:
            return bool(await rows(site, "probes"))

        async def dismissed() -> bool:
            return "dismissed" in "".join(await rows(site, "alerts"))

        await until(probed, "a benchmark", 30)
        await listener.feel(*[1.0] * 8)
        await until(dismissed, "the suspicion to be dismissed", 30)
        assert listener.alerts == []
        await listener.close()

    on_loopback(tmp_path, work, RELEASE)


@pytest.mark.parametrize("limit", [float("nan"), float("inf"), -100.0])
def test_consent_is_for_a_time_that_is_one(tmp_path: Path, limit: float) -> None:
    async def work(site: Loopback) -> None:
        with pytest.raises(grpc.aio.AioRpcError, match="limit_seconds"):
            await join(site, consent=Consent(beside_job=True, limit_seconds=limit))

    on_loopback(tmp_path, work, RELEASE)


def test_one_ticket_is_good_for_one_run_also_when_many_ask_at_once(tmp_path: Path) -> None:
    async def work(site: Loopback) -> None:
        used = ticket()
        tried = await asyncio.gather(*(join(site, ticket=used) for _ in range(12)), return_exceptions=True)
        assert sum(isinstance(one, bytes) for one in tried) == 1

    on_loopback(tmp_path, work, RELEASE)


def test_nothing_is_run_beside_two_jobs_of_which_one_has_not_agreed(tmp_path: Path) -> None:
    async def work(site: Loopback) -> None:
        await site.agent("n1", lambda _: 0.01)
        await join(site, who="rival", consent=Consent())
        run_id = await join(site)
        for second in range(6):
            await site.call("Runs", "Report", report(run_id, second, 3.0))
        alerts = await rows(site, "alerts")
        assert "suspected" in alerts[0] and await rows(site, "probes") == []

    on_loopback(tmp_path, work, RELEASE)


def test_a_run_cannot_report_faster_than_time_passes(tmp_path: Path) -> None:
    async def work(site: Loopback) -> None:
        run_id, most = await join(site), int(CAUGHT_UP_SECONDS)
        for first in range(0, most, 3600):
            for _ in range(3):  # the answer may have been lost
                await site.call("Runs", "Report", report(run_id, first, *[1.0] * 3600))
        code, message = await refused(site.call("Runs", "Report", report(run_id, most, *[1.0] * 60)))
        assert code is grpc.StatusCode.RESOURCE_EXHAUSTED and "in a second" in message

    on_loopback(tmp_path, work, RELEASE)


def test_a_report_that_was_given_up_is_taken_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The store is slow and the caller goes away in between: what is kept is also acted on."""
    keep, kept, given_up = DuckRunStore.append_reports, asyncio.Event(), asyncio.Event()

    async def slowly(*arguments: Any) -> int:
        rows = await keep(*arguments)
        kept.set()
        await given_up.wait()
        return rows

    monkeypatch.setattr(DuckRunStore, "append_reports", slowly)

    async def work(site: Loopback) -> None:
        run_id = await join(site)
        call = asyncio.create_task(site.call("Runs", "Report", report(run_id, 0, *[3.0] * 5)))
        await until(lambda: kept.is_set() or call.done(), "the report to be stored")
        assert not call.done(), call.exception()
        call.cancel()
        await asyncio.wait({call})
        given_up.set()

        async def alarmed() -> bool:
            return bool(await rows(site, "alerts"))

        await until(alarmed, "an alert")

    on_loopback(tmp_path, work, RELEASE)


def test_a_suspicion_stays_with_its_node_when_the_run_ends(tmp_path: Path) -> None:
    async def work(site: Loopback) -> None:
        run_id = await join(site)
        await site.call("Runs", "Report", report(run_id, 0, *[3.0] * 5))
        await site.call("Runs", "EndRun", EndRunRequest(run_id=run_id, state=1))
        (alert,) = await rows(site, "alerts")
        assert "suspected" in alert and "3.08x" in alert

    on_loopback(tmp_path, work, RELEASE)


def test_without_consent_nothing_is_run_beside_the_job(tmp_path: Path) -> None:
    async def work(site: Loopback) -> None:
        await site.agent("n1", lambda _: 0.02)
        run_id = await join(site, consent=Consent())
        await site.call("Runs", "Report", report(run_id, 0, *[1.0] * 6, *[1.8] * 9))
        assert "suspected" in "".join(await rows(site, "alerts"))
        assert await rows(site, "probes") == []

    on_loopback(tmp_path, work, RELEASE)


def test_a_restart_of_the_provider_does_not_fire_again_and_clears_once(tmp_path: Path) -> None:
    async def inside() -> None:
        async with loopback(tmp_path, RELEASE) as site:
            seconds = [0.01]
            await site.agent("n1", lambda _: seconds[0])
            first = Listener(site)
            await first.feel(*[1.0] * 6)
            await first.settled()
            seconds[0] = 0.02
            await first.feel(*[1.6] * 4)
            await first.received("confirmed")
            first_id = first.alerts[0].alert_id
        await first.close()  # nobody hears of it: the provider is down
        async with loopback(tmp_path) as site:
            assert "confirmed" in "".join(await rows(site, "alerts"))
            second = Listener(site, first.run_id)
            await second.feel(*[1.0] * 8)
            await second.received("confirmed", "cleared")
            assert {alert.alert_id for alert in second.alerts} == {first_id}
            await second.close()

    asyncio.run(inside())


def test_health_and_metrics_are_served(tmp_path: Path) -> None:
    async def work(site: Loopback) -> None:
        await site.agent("n1", lambda _: 0.01)
        stub = health_pb2_grpc.HealthStub(site.channel)
        for name in ("", "pharoah.v1.Exchange", "pharoah.v1.Agent"):
            answer = await stub.Check(health_pb2.HealthCheckRequest(service=name), timeout=5)
            assert answer.status == health_pb2.HealthCheckResponse.SERVING

    on_loopback(tmp_path, work, RELEASE)


def test_metric_names_carry_no_tenant_run_or_node() -> None:
    from pharoah_serving.metrics import Metrics

    metrics = Metrics()
    metrics.watch_agents(lambda: {"n1": time.time()}, time.time)
    text = metrics.text().decode()
    assert "pharoah_agents_connected 1.0" in text and "pharoah_build_info" in text
    assert "tenant" not in text and "run_id" not in text and "n1" not in text


def test_two_nodes_of_one_configuration_share_a_context() -> None:
    assert node("n1").facts_id == node("n2").facts_id != node("n1", "isa=avx2").facts_id


def test_seconds_that_wait_too_long_are_dropped_oldest_first_and_counted(tmp_path: Path) -> None:
    async def work(site: Loopback) -> None:
        provider = ProviderConnection(site.settings())
        reporter = RunReporter(provider, bytes(16), b"", site.settings(), lambda _: None)
        for number in range(KEPT_SECONDS + 3):
            reporter.second(number, float(number))
        assert reporter.dropped == 3
        assert reporter._seconds[0][:2] == (3, 3.0)
        await provider.channel.close()

    on_loopback(tmp_path, work, RELEASE)


def test_alerts_of_a_malicious_provider_are_bounded_and_printable(tmp_path: Path) -> None:
    async def work(site: Loopback) -> None:
        provider, delivered = ProviderConnection(site.settings()), list[Alert]()
        reporter = RunReporter(provider, bytes(16), b"", site.settings(), delivered.append)
        sound = {"alert_id": "al-1", "state": 2, "since": 1.0, "at": 2.0, "step_ratio": 3.0}
        for change in (
            {"state": 0},
            {"state": 99},
            {"at": float("nan")},
            {"since": float("inf")},
            {"step_ratio": -1.0},
            {"at": 1e18},
        ):
            reporter._receive(AlertMessage(**{**sound, **change}))
        assert delivered == []
        for number in range(3 * REMEMBERED_ALERTS):
            reporter._receive(AlertMessage(**{**sound, "alert_id": f"{number}" + "x" * 5000, "what": "\x1b[2J" * 5000}))
        assert len(reporter._seen) == REMEMBERED_ALERTS
        assert all(len(str(alert)) < 1000 and "\x1b" not in str(alert) for alert in delivered)
        await provider.channel.close()

    on_loopback(tmp_path, work, RELEASE)
