"""How long a message may be, through real gRPC. What a method need not be sent is refused before it is parsed."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest
from grpc_health.v1 import health_pb2

from pharoah_protocol.v1 import (
    AgentMessage,
    CellResult,
    GetEpochRequest,
    GetOfferRequest,
    NodeTicket,
    PlanCampaignRequest,
    RunCampaignRequest,
    Telemetry,
)
from pharoah_provider.cell_results import MAX_CELL_MESSAGE_BYTES, MAX_RESULT_BYTES
from pharoah_provider.services.health import MAX_QUESTION_BYTES
from pharoah_provider.services.server import MAX_FILE_BYTES
from pharoah_serving.guarded_call import MAX_MESSAGE_BYTES
from tests.harness.exchange import on_loopback, refused
from tests.harness.loopback import Loopback
from tests.harness.scripted_agents import ScriptedAgent, scripted_site
from tests.harness.until import until

TENANT = "t" * 32
AGENT = ScriptedAgent("n1", ("cpu=x",), ("device=cpu",), 0, lambda _: None)
NEXT = AgentMessage(telemetry=Telemetry(batch=1, sampled_at=[time.time()], metric=["m"], device=[""], value=[0.0]))


def test_long_results_arrive_and_longer_messages_end_the_stream(tmp_path: Path) -> None:
    """A result that nobody waits for any more is dropped, however long it is."""

    async def inside() -> None:
        token = f"agent {AGENT.name} {AGENT.token}"
        async with scripted_site(tmp_path, [], [token]) as site, site.connected(AGENT) as out:
            for size in (MAX_MESSAGE_BYTES, MAX_RESULT_BYTES):
                out.put_nowait(AgentMessage(cell=CellResult(order_id="o", outcome="x" * size)))
            out.put_nowait(NEXT)
            await until(lambda: site.acknowledged.get("n1") == 1, "what follows the results")
            assert site.notices["n1"] == ""
            out.put_nowait(AgentMessage(cell=CellResult(order_id="o", outcome="x" * MAX_CELL_MESSAGE_BYTES)))
            await until(lambda: "larger than max" in site.notices["n1"], "the end of the stream")

    asyncio.run(inside())


async def refusal(call: Awaitable[Any]) -> str:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    return caught.value.details() or ""


def test_requests_of_tenants_and_operators_are_as_short_as_their_method_needs(tmp_path: Path) -> None:
    """gRPC itself knows one limit for the whole server, which is that of results of cells."""
    longer, long_file = "x" * MAX_MESSAGE_BYTES, "x" * MAX_FILE_BYTES

    async def inside() -> None:
        async with scripted_site(tmp_path, [], [f"tenant acme {TENANT}"]) as site:
            offer = GetOfferRequest(ticket=NodeTicket(body=longer.encode()))
            for _ in range(3):
                assert "at most 65536" in await refusal(site.call("Exchange", "GetOffer", offer, TENANT))
            plan = site.call("Operator", "PlanCampaign", PlanCampaignRequest(campaign=long_file))
            assert "at most 1048576" in await refusal(plan)
            assert "at most 1048576" in await refusal(site.campaign_of(RunCampaignRequest(campaign=long_file)))
            with pytest.raises(grpc.aio.AioRpcError, match="nothing has been released"):
                await site.call("Exchange", "GetEpoch", GetEpochRequest(), TENANT)

    asyncio.run(inside())


def test_a_question_of_health_is_short(tmp_path: Path) -> None:
    """Anybody may ask it."""
    question = health_pb2.HealthCheckRequest(service="x" * MAX_QUESTION_BYTES).SerializeToString()

    async def work(site: Loopback) -> None:
        code, _ = await refused(site.channel.unary_unary("/grpc.health.v1.Health/Check")(question, timeout=5))
        assert code is grpc.StatusCode.INVALID_ARGUMENT

    on_loopback(tmp_path, work)
