"""The hazard model of nodes on its way from a provider to the agents of its nodes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

from pharoah_protocol.rpc import Stub
from pharoah_protocol.tables import signed_messages
from pharoah_protocol.tables.epoch_head import is_signed, read_public_key
from pharoah_protocol.v1 import AgentMessage, HazardModel, LearnRequest, ListRequest
from pharoah_provider.storage.duckdb import DuckStorage
from tests.contract.test_node_actions import with_cells
from tests.harness.hazard_models import MODEL
from tests.harness.loopback import Loopback, bearer, hello, loopback, node


async def sent_model(site: Loopback) -> HazardModel:
    """The model that the agent of a node is sent."""

    async def messages() -> AsyncIterator[AgentMessage]:
        yield AgentMessage(hello=hello(node("n1")))
        await asyncio.Event().wait()

    call = Stub(site.channel, "Agent").Connect(messages(), metadata=bearer("n1"))
    try:
        async with asyncio.timeout(20):
            async for order in call:
                if order.WhichOneof("content") == "hazard_model":
                    return HazardModel.FromString(order.hazard_model.SerializeToString())
    finally:
        call.cancel()
    raise AssertionError("the stream ended")


def test_agents_are_sent_the_model_with_a_signature_that_tenants_check(tmp_path: Path) -> None:
    async def inside() -> None:
        async with loopback(tmp_path):
            pass
        store = DuckStorage(tmp_path / "p.duckdb")
        await store.hazards.put_model(MODEL.encode().decode(), MODEL.made_at)
        store.close()
        async with loopback(tmp_path) as site:
            sent = await sent_model(site)
            key = read_public_key(tmp_path / "provider.pub")
            assert sent.content == MODEL.encode()
            assert is_signed(signed_messages.hazard_model(sent.content), sent.signature, key)
            listed = await site.call("Operator", "List", ListRequest(listing="node-forecasts"), "ops")
            assert [json.loads(row) for row in listed.rows] == [], "no agent has sent telemetry"

    asyncio.run(inside())


def test_learning_says_why_there_is_no_model(tmp_path: Path) -> None:
    async def inside() -> None:
        await with_cells(tmp_path, lambda *_: False, rounds=1)
        async with loopback(tmp_path) as site:
            call = Stub(site.channel, "Operator").Learn(LearnRequest(), metadata=bearer("ops"), timeout=30)
            lines = [step.message async for step in call]
            assert "hazards of nodes: 0 failures of 0 nodes; 20 nodes that have failed are needed" in lines

    asyncio.run(inside())
