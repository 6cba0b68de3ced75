"""Incidents over real gRPC: in offers and verdicts, at the node's agent, and for runs that were silent for too long."""

from __future__ import annotations

import asyncio
import json
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import grpc
import pytest

from pharoah.end_causes import JudgedEnd
from pharoah.sidecar.log_client import VerificationError
from pharoah.sidecar.provider_connection import ProviderConnection
from pharoah.sidecar.run_reporter import RunReporter
from pharoah.sidecar.verdict_rules import verdict_from_rows
from pharoah_protocol.incident_states import CONFIRMED, QUIET
from pharoah_protocol.pseudonyms import PSEUDONYM_BYTES, period_at
from pharoah_protocol.reports import ReportedLevels
from pharoah_protocol.rpc import Stub
from pharoah_protocol.v1 import AgentMessage, EndRunRequest, GetOfferRequest, Hello
from pharoah_protocol.v1 import Attribution as AttributionCode
from pharoah_protocol.v1 import EndState as EndStateCode
from pharoah_protocol.v1 import IncidentState as IncidentCode
from pharoah_protocol.vocabulary import Attribution, EndState
from pharoah_provider import exchange_server
from pharoah_provider.domain import IncidentKind, Subject, Transition
from pharoah_provider.monitoring import watched_runs
from pharoah_provider.storage.duckdb import DuckStorage
from tests.harness.exchange import RELEASE, ask, on_loopback, refused
from tests.harness.loopback import Loopback, bearer, loopback, node, ticket
from tests.harness.runs import join, may_vote, report, rows

INCIDENT = Transition(
    incident_id="al-1",
    subject=Subject.node("n1"),
    kind=IncidentKind.SLOW,
    state=CONFIRMED,
    raised_by=b"r" * 16,
    what="step time 1.54x baseline",
    evidence="memory 2.00x its baseline beside a job, peer 1.00x",
    since=1_700_000_000.0,
    changed_at=1_700_000_010.0,
    step_ratio=1.54,
)


def with_incident(folder: Path, work: Callable[[Loopback], Awaitable[None]]) -> None:
    """A provider that has been restarted with a confirmed incident of n1 in its database."""

    async def inside() -> None:
        async with loopback(folder, RELEASE):
            pass
        storage = DuckStorage(folder / "p.duckdb")
        await storage.incidents.put_transition(INCIDENT)
        storage.close()
        async with loopback(folder) as site:
            await work(site)

    asyncio.run(inside())


def test_an_offer_of_a_node_with_a_confirmed_incident_says_so_to_every_tenant(tmp_path: Path) -> None:
    async def work(site: Loopback) -> None:
        for name, state in (("n1", CONFIRMED), ("n2", QUIET)):
            for who in ("acme", "rival"):
                offer = await site.call("Exchange", "GetOffer", GetOfferRequest(ticket=ticket(name)), who)
                assert offer.node_state == state.code

    with_incident(tmp_path, work)


def test_a_verdict_warns_of_a_node_with_a_confirmed_incident(tmp_path: Path) -> None:
    async def work(site: Loopback) -> None:
        answer = await ask(site.settings())
        findings = verdict_from_rows(answer, "").findings
        assert [f.severity for f in findings if "confirmed that this node is slow or faulty" in f.what] == ["warn"]

    async def healthy(site: Loopback) -> None:
        assert "this node is slow" not in verdict_from_rows(await ask(site.settings()), "").to_json()

    for name in ("slow", "healthy"):
        (tmp_path / name).mkdir()
    with_incident(tmp_path / "slow", work)
    on_loopback(tmp_path / "healthy", healthy)


def test_the_state_of_the_node_is_part_of_what_is_signed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    honest = exchange_server.ExchangeServer.offer

    async def embellished(self: Any, *arguments: Any) -> Any:
        offer_id, offer = await honest(self, *arguments)
        offer.node_state = QUIET
        return offer_id, offer

    monkeypatch.setattr(exchange_server.ExchangeServer, "offer", embellished)

    async def work(site: Loopback) -> None:
        with pytest.raises(VerificationError, match="not signed"):
            await ask(site.settings())

    with_incident(tmp_path, work)


def test_an_agent_hears_what_is_known_of_its_node_and_nothing_about_jobs(tmp_path: Path) -> None:
    async def work(site: Loopback) -> None:
        for name, state in (("n1", CONFIRMED), ("n2", QUIET)):
            sent = await first_state(site, name)
            assert sent.state == IncidentCode.ValueType(state.code)
            assert "job" not in sent.evidence and "1.54" not in sent.evidence
            assert ("memory 2.00x" in sent.evidence) == (state is CONFIRMED)

    with_incident(tmp_path, work)


async def first_state(site: Loopback, name: str) -> Any:
    """The first state of its node that an agent is sent."""
    known = node(name)

    async def messages() -> AsyncIterator[AgentMessage]:
        facts = {"server_facts": known.server_facts, "device_facts": known.device_facts, "cpus": known.cpus}
        yield AgentMessage(hello=Hello(node=name, ticket_key=known.ticket_key, boot_id=known.boot_id, **facts))
        await asyncio.Event().wait()

    call = Stub(site.channel, "Agent").Connect(messages(), metadata=bearer(name))
    try:
        async for order in call:
            if order.WhichOneof("content") == "node_state":
                return order.node_state
    finally:
        call.cancel()
    raise AssertionError("the stream ended")


@pytest.mark.usefixtures("quick_messages")
def test_a_sidecar_whose_run_was_taken_for_lost_joins_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def ends(site: Loopback) -> list[str | None]:
        return [json.loads(row)["end_state"] for row in await rows(site, "runs")]

    async def until(site: Loopback, *states: str | None) -> None:
        async with asyncio.timeout(20):
            while await ends(site) != list(states):
                await asyncio.sleep(0.05)

    async def work(site: Loopback) -> None:
        provider = ProviderConnection(site.settings())
        run_id = secrets.token_bytes(16)
        reporter = RunReporter(provider, run_id, b"", site.settings(), lambda _: None)
        reporter.start(ticket("n1"), 1, lambda: [ReportedLevels()], tick_seconds=0.2)
        await until(site, None)
        with monkeypatch.context() as patch:
            patch.setattr(watched_runs, "LOST_SECONDS", 0.0)
            await until(site, "lost")
        await until(site, "lost", None)
        await reporter.end(JudgedEnd(EndState.OK))
        await provider.channel.close()
        assert await ends(site) == ["lost", "ok"]

    on_loopback(tmp_path, work)


def test_a_report_of_an_attempt_that_has_ended_asks_to_join_again(tmp_path: Path) -> None:
    async def work(site: Loopback) -> None:
        run_id = await join(site)
        await site.call("Runs", "EndRun", EndRunRequest(run_id=run_id, state=EndStateCode.END_STATE_PREEMPTED))
        code, message = await refused(site.call("Runs", "Report", report(run_id, 0, 1.0)))
        assert code is grpc.StatusCode.FAILED_PRECONDITION and "join again" in message
        await join(site, run_id=run_id)
        await site.call("Runs", "Report", report(run_id, 0, 1.0, attempt=2))

    on_loopback(tmp_path, work)


def test_no_tenant_can_say_that_its_run_is_lost(tmp_path: Path) -> None:
    async def work(site: Loopback) -> None:
        run_id = await join(site)
        request = EndRunRequest(run_id=run_id, state=EndStateCode.END_STATE_LOST)
        code, message = await refused(site.call("Runs", "EndRun", request))
        assert code is grpc.StatusCode.INVALID_ARGUMENT and message.startswith("state:")

    on_loopback(tmp_path, work)


@pytest.mark.usefixtures("minute_long_runs")
@pytest.mark.parametrize(
    ("attribution", "counted"), [(Attribution.UNKNOWN, 1), (Attribution.NODE, 1), (Attribution.USER, 0)]
)
def test_a_failure_that_the_user_caused_does_not_count(tmp_path: Path, attribution: Attribution, counted: int) -> None:
    async def work(site: Loopback) -> None:
        run_id = await join(site, job_id=b"j" * 16)
        await may_vote(site, run_id)
        request = EndRunRequest(
            run_id=run_id,
            state=EndStateCode.END_STATE_FAILED,
            pseudonym=secrets.token_bytes(PSEUDONYM_BYTES),
            period=period_at(time.time()),
            attribution=AttributionCode.ValueType(attribution.code),
        )
        await site.call("Runs", "EndRun", request)
        assert len(await rows(site, "outcomes")) == counted
        (run,) = [json.loads(row) for row in await rows(site, "runs")]
        assert (run["attribution"], run["end_state"], run["job"]) == (attribution, "failed", b"j".hex() * 4)

    on_loopback(tmp_path, work)


def test_a_job_id_of_another_length_is_refused_by_its_field(tmp_path: Path) -> None:
    async def work(site: Loopback) -> None:
        with pytest.raises(grpc.aio.AioRpcError, match="job_id: 3 bytes"):
            await join(site, job_id=b"abc")

    on_loopback(tmp_path, work)
