"""A real provider (gRPC, DuckDB) with agents that follow a script: they speak the real stream and answer every cell at
once, honestly from results that were really measured, or as a malicious agent would."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import grpc.aio
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from pharoah_benchmarks.campaign.cell import Cell
from pharoah_protocol.node_ticket import Ticket
from pharoah_protocol.rpc import Stub
from pharoah_protocol.v1 import (
    AgentMessage,
    AgentOrder,
    CellResult,
    Hello,
    LearnRequest,
    ListRequest,
    NodeTicket,
    ProbeOrder,
    ProbeResult,
    RunCampaignRequest,
)
from pharoah_protocol.vocabulary import Outcome
from pharoah_provider.campaigns import run as campaign_run
from pharoah_provider.campaigns.executors import agents as agent_executor
from pharoah_provider.first_start import make_provider
from pharoah_provider.services.server import provider
from tests.harness.database import new_database
from tests.harness.loopback import server_settings
from tests.harness.sockets import socket_folder
from tests.harness.tokens import write_list

OPERATOR = "o" * 32
CALL_SECONDS = 30.0
COMPANION_START_SECONDS = 0.01
"""Scripted agents start no companion, so the campaign need not wait for one before it measures beside it."""

AWAY_SECONDS, POLL_SECONDS = 2.0, 0.05
"""How long a campaign waits for a scripted agent that is away, and how often it looks for it."""


@dataclass(frozen=True)
class ScriptedAgent:
    """One agent, and how it answers."""

    name: str
    server_facts: tuple[str, ...]
    device_facts: tuple[str, ...]
    cpu: int
    answer: Callable[[Cell], str | None]
    """The result of a cell, as JSON; None for an agent that does not answer."""
    probe_seconds: Sequence[float] = (0.01,)
    """What every micro-benchmark takes."""

    @property
    def token(self) -> str:
        return f"{self.name}-".ljust(32, "t")


def content_of(cell: Cell) -> str:
    """What a cell trains: workload and settings."""
    return json.dumps([cell.workload, cell.settings], sort_keys=True)


@dataclass
class ScriptedSite:
    """The provider with its agents, and what an operator does there."""

    channel: grpc.aio.Channel
    endpoint: str = ""
    notices: dict[str, str] = field(default_factory=dict)
    """What the provider wrote to each agent: the notice of its welcome, why its telemetry was dropped, or why its
    stream ended."""
    acknowledged: dict[str, int] = field(default_factory=dict)
    """Number of the newest batch of telemetry that was acknowledged, by node."""

    async def campaign(self, text: str = "", campaign_id: str = "") -> list[str]:
        """Run a campaign, or go on with one; a line for each finished work."""
        return await self.campaign_of(RunCampaignRequest(campaign=text, campaign_id=campaign_id))

    async def campaign_of(self, request: RunCampaignRequest) -> list[str]:
        """The same, with all that can be requested."""
        answers = Stub(self.channel, "Operator").RunCampaign(request, metadata=_bearer(OPERATOR))
        return [f"{answer.node} {answer.cell}: {answer.outcome}" async for answer in answers if answer.node]

    async def learn(self) -> list[str]:
        """Learn a release; the lines that were printed."""
        answers = Stub(self.channel, "Operator").Learn(LearnRequest(), metadata=_bearer(OPERATOR))
        return [answer.message async for answer in answers]

    async def listing(self, name: str) -> list[dict[str, Any]]:
        """The rows of a listing."""
        answer = await self.call("Operator", "List", ListRequest(listing=name), OPERATOR)
        return [json.loads(row) for row in answer.rows]

    async def call(self, service: str, method: str, request: Any, token: str = OPERATOR) -> Any:
        """One call, as the operator or with another token."""
        stub = getattr(Stub(self.channel, service), method)
        return await stub(request, timeout=CALL_SECONDS, metadata=_bearer(token))

    @asynccontextmanager
    async def connected(self, agent: ScriptedAgent) -> AsyncIterator[asyncio.Queue[AgentMessage | None]]:
        """An agent that is connected; what is put into the queue is sent as well. It connects again when it is asked
        to, as real agents do. An answer of the script that raises makes the test fail: the node would look as if it
        had gone away."""
        out: asyncio.Queue[AgentMessage | None] = asyncio.Queue()
        welcomed = asyncio.Event()
        task = asyncio.create_task(self._serve(agent, out, welcomed))
        waiting = asyncio.create_task(welcomed.wait())
        try:
            await asyncio.wait({task, waiting}, return_when=asyncio.FIRST_COMPLETED)
            yield out
        finally:
            waiting.cancel()
            task.cancel()
            await asyncio.wait({task, waiting})
            if not task.cancelled():
                task.result()

    async def _serve(
        self, agent: ScriptedAgent, out: asyncio.Queue[AgentMessage | None], welcomed: asyncio.Event
    ) -> None:
        while True:
            mine: asyncio.Queue[AgentMessage | None] = asyncio.Queue()
            mine.put_nowait(AgentMessage(hello=_hello(agent)))
            forwarding = asyncio.create_task(_forward(out, mine))
            try:
                calls = Stub(self.channel, "Agent").Connect(_messages(mine), metadata=_bearer(agent.token))
                async for order in calls:
                    if order.WhichOneof("content") == "welcome":
                        self.notices[agent.name] = order.welcome.notice
                        welcomed.set()
                    if order.WhichOneof("content") == "ack":
                        self.acknowledged[agent.name] = order.ack.batch
                        self.notices[agent.name] = order.ack.notice or self.notices[agent.name]
                    for answer in _answers(agent, order):
                        mine.put_nowait(answer)
            except grpc.aio.AioRpcError as error:
                self.notices[agent.name] = error.details() or ""
                return
            finally:
                forwarding.cancel()
                mine.put_nowait(None)


@asynccontextmanager
async def scripted_site(
    folder: Path, agents: Iterable[ScriptedAgent], others: Sequence[str] = (), **changes: Any
) -> AsyncIterator[ScriptedSite]:
    """A provider whose agents are these. `others` are further lines of the token file. With a folder that was used
    before: a restart with the same database."""
    agents = list(agents)
    lines = [f"operator ops {OPERATOR}", *(f"agent {agent.name} {agent.token}" for agent in agents), *others]
    folder.mkdir(parents=True, exist_ok=True)
    write_list(folder / "tokens", lines)
    settings = server_settings(folder, **changes)
    if not Path(settings.keys).exists():
        make_provider(settings.keys, settings.db)
        new_database(settings.db)
    async with AsyncExitStack() as stack:
        sockets = stack.enter_context(socket_folder())
        settings = replace(settings, listen=f"unix:{sockets}/p.sock")
        stack.enter_context(patch.object(agent_executor, "COMPANION_START_SECONDS", COMPANION_START_SECONDS))
        stack.enter_context(patch.object(agent_executor, "AWAY_SECONDS", AWAY_SECONDS))
        stack.enter_context(patch.object(campaign_run, "POLL_SECONDS", POLL_SECONDS))
        endpoint = await stack.enter_async_context(provider(settings))
        channel = await stack.enter_async_context(grpc.aio.insecure_channel(endpoint))
        site = ScriptedSite(channel, endpoint)
        for agent in agents:
            await stack.enter_async_context(site.connected(agent))
        yield site


def replayed(results: dict[str, str]) -> Callable[[Cell], str]:
    """An honest answer: the measured result of the same workload and settings (`content_of`), for this cell.

    The companion of a baseline trains what no cell does, and the campaign reads only when it trained: any result will
    do, because `_with_times` adds them.
    """
    any_result = next(iter(results.values()))

    def answer(cell: Cell) -> str:
        return json.dumps({**json.loads(results.get(content_of(cell), any_result)), "cell": cell.id})

    return answer


def ticket_of(node: str) -> NodeTicket:
    """A ticket of the node of a scripted agent."""
    body, signature = Ticket.issue(node, f"boot of {node}", _key(node), time.time())
    return NodeTicket(body=body, signature=signature)


def _key(node: str) -> Ed25519PrivateKey:
    return Ed25519PrivateKey.from_private_bytes(node.encode().ljust(32, b"k")[:32])


def _hello(agent: ScriptedAgent) -> Hello:
    return Hello(
        node=agent.name,
        ticket_key=_key(agent.name).public_key().public_bytes_raw(),
        boot_id=f"boot of {agent.name}",
        server_facts=agent.server_facts,
        device_facts=agent.device_facts,
        cpus=[agent.cpu],
    )


def _answers(agent: ScriptedAgent, order: AgentOrder) -> list[AgentMessage]:
    match order.WhichOneof("content"):
        case "cell":
            cell = Cell.from_json(order.cell.cell)
            outcome = agent.answer(cell)
            if outcome is None:
                return []
            outcome = _with_times(cell, outcome)
            return [AgentMessage(cell=CellResult(order_id=order.cell.order_id, outcome=outcome))]
        case "probe":
            return [AgentMessage(probe=result) for result in _probe_results(agent, order.probe)]
    return []


def _with_times(cell: Cell, outcome: str) -> str:
    """What the script answers; a companion that worked trains from now on, for as long as it was ordered to."""
    if not cell.id.startswith(agent_executor.COMPANION.id) or json.loads(outcome).get("outcome") != Outcome.OK:
        return outcome
    times = {"began_at": time.time(), "step_seconds": [cell.seconds]}
    return json.dumps({**json.loads(outcome), **times})


def _probe_results(agent: ScriptedAgent, order: ProbeOrder) -> list[ProbeResult]:
    return [
        ProbeResult(
            order_id=order.order_id,
            benchmark=benchmark,
            seconds=(list(agent.probe_seconds) * order.repeats)[: order.repeats],
            beside_job=order.beside_job,
            started_at=time.time(),
            ended_at=time.time(),
        )
        for benchmark in order.benchmarks
    ]


async def _forward(source: asyncio.Queue[AgentMessage | None], target: asyncio.Queue[AgentMessage | None]) -> None:
    while True:
        target.put_nowait(await source.get())


async def _messages(queue: asyncio.Queue[AgentMessage | None]) -> AsyncIterator[AgentMessage]:
    while (message := await queue.get()) is not None:
        yield message


def _bearer(token: str) -> tuple[tuple[str, str], ...]:
    return (("authorization", f"Bearer {token}"),)
