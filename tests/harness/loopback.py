"""A real provider on a Unix socket inside the test's event loop, with one tenant, one other tenant and two nodes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import grpc.aio
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from pharoah._settings import Settings
from pharoah_learning.release import Release
from pharoah_protocol.node_ticket import Ticket
from pharoah_protocol.rpc import Stub
from pharoah_protocol.v1 import AgentMessage, Hello, LookResult, NodeTicket, ProbeOrder, ProbeResult
from pharoah_provider.domain import Node
from pharoah_provider.first_start import make_provider
from pharoah_provider.services.server import provider
from pharoah_provider.services.settings import ServerSettings
from pharoah_provider.storage.duckdb import DuckStorage
from tests.harness.database import new_database
from tests.harness.sockets import socket_folder
from tests.harness.tokens import token_of, write_list, write_token

TOKENS = {
    "acme": "tenant acme tttttttttttttttttttttttttttttttt",
    "rival": "tenant rival rrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrr",
    "one": "tenant lab/one 11111111111111111111111111111111111",
    "two": "tenant lab/two 22222222222222222222222222222222222",
    "n1": "agent n1 1111111111111111111111111111111111",
    "n2": "agent n2 2222222222222222222222222222222222",
    "ops": "operator ops oooooooooooooooooooooooooooooooo",
}
FACTS = ("device=cpu", "threads=1")
KEYS = {name: Ed25519PrivateKey.from_private_bytes(bytes([i]) * 32) for i, name in enumerate(("n1", "n2"), 1)}


_SILENT: set[asyncio.Event] = set()
"""One event per silent client: set, it ends the messages, which gRPC would wait for also after the call has ended."""


def node(name: str, *facts: str) -> Node:
    public = KEYS[name].public_key().public_bytes_raw()
    return Node(name, public, "boot", (*FACTS, *facts), ("device=cpu",), (int(name[1]),), host=f"host of {name}")


def ticket(name: str = "n1", now: float | None = None) -> NodeTicket:
    body, signature = Ticket.issue(name, "boot", KEYS[name], time.time() if now is None else now)
    return NodeTicket(body=body, signature=signature)


def hello(stands_on: Node) -> Hello:
    """The first message of a node's agent."""
    return Hello(
        node=stands_on.node,
        ticket_key=stands_on.ticket_key,
        boot_id=stands_on.boot_id,
        server_facts=stands_on.server_facts,
        device_facts=stands_on.device_facts,
        cpus=stands_on.cpus,
        host=stands_on.host,
    )


def bearer(who: str) -> tuple[tuple[str, str], ...]:
    return (("authorization", f"Bearer {token_of(TOKENS[who])}"),)


async def silence() -> AsyncIterator[bytes]:
    """The messages of a client that sends none, until the site ends: a message could cross a refusal, and gRPC's client
    then reports INTERNAL instead. Agents ask again."""
    ended = asyncio.Event()
    _SILENT.add(ended)
    await ended.wait()
    for nothing in b"":
        yield bytes(nothing)


@dataclass
class Loopback:
    folder: Path
    endpoint: str
    channel: grpc.aio.Channel
    _agents: list[asyncio.Task[None]] = field(default_factory=list)

    def settings(self, **changes: Any) -> Settings:
        defaults = {
            "endpoint": self.endpoint,
            "token_file": str(self.folder / "acme.token"),
            "provider_key_file": str(self.folder / "provider.pub"),
            "state_folder": str(self.folder / "state"),
        }
        return Settings(**{**defaults, **changes})

    def connection(self) -> grpc.aio.Channel:
        """A connection of its own. One carries few calls at once (`STREAMS_OF_A_CONNECTION`)."""
        return grpc.aio.insecure_channel(self.endpoint, options=[("grpc.use_local_subchannel_pool", 1)])

    async def call(self, service: str, method: str, request: Any, who: str = "acme") -> Any:
        return await getattr(Stub(self.channel, service), method)(request, timeout=60, metadata=bearer(who))

    async def agent(self, name: str, seconds_of: Callable[[str], float], stands_on: Node | None = None) -> None:
        """Connect a node whose benchmarks take `seconds_of(benchmark)`; returns once it is connected.

        `stands_on` is the node where it has other facts than usual.
        """
        connected = asyncio.Event()
        agent = _agent(self.channel, stands_on or node(name), seconds_of, connected)
        self._agents.append(asyncio.create_task(agent))
        await connected.wait()

    async def disconnect_agents(self) -> None:
        for agent in self._agents:
            agent.cancel()
        await asyncio.gather(*self._agents, return_exceptions=True)


async def _agent(
    channel: grpc.aio.Channel, stands_on: Node, seconds_of: Callable[[str], float], connected: asyncio.Event
) -> None:
    out: asyncio.Queue[AgentMessage | None] = asyncio.Queue()
    out.put_nowait(AgentMessage(hello=hello(stands_on)))

    async def messages() -> AsyncIterator[AgentMessage]:
        while (message := await out.get()) is not None:
            yield message

    try:
        async for order in Stub(channel, "Agent").Connect(messages(), metadata=bearer(stands_on.node)):
            connected.set()
            if order.WhichOneof("content") == "look":
                out.put_nowait(AgentMessage(look=LookResult(order_id=order.look.order_id, idle=True)))
            elif order.WhichOneof("content") == "probe":
                for result in _probe_results(order.probe, seconds_of):
                    out.put_nowait(AgentMessage(probe=result))
    finally:
        out.put_nowait(None)


def _probe_results(order: ProbeOrder, seconds_of: Callable[[str], float]) -> Iterator[ProbeResult]:
    for benchmark in order.benchmarks:
        yield ProbeResult(
            order_id=order.order_id,
            benchmark=benchmark,
            seconds=[seconds_of(benchmark)] * order.repeats,
            beside_job=order.beside_job,
            started_at=time.time(),
            ended_at=time.time(),
        )


def server_settings(folder: Path, **changes: Any) -> ServerSettings:
    defaults = {
        "http": "127.0.0.1:0",
        "db": folder / "p.duckdb",
        "keys": str(folder / "keys"),
        "audit": folder / "audit",
        "tokens": folder / "tokens",
        "settle_seconds": 0.0,
        "idle_check_seconds": 0.0,
    }
    return ServerSettings(**{**defaults, **changes})


@asynccontextmanager
async def loopback(folder: Path, release: Release | None = None, **changes: Any) -> AsyncIterator[Loopback]:
    """A provider that already knows nodes n1 and n2 and, if given, a release. Call again with the folder: a restart."""
    settings = server_settings(folder, **changes)
    if not settings.tokens.exists():
        write_list(settings.tokens, TOKENS.values())
        write_token(folder / "acme.token", TOKENS["acme"])
        (folder / "provider.pub").write_text(make_provider(settings.keys, settings.db).public.hex())
        new_database(settings.db)
        store = DuckStorage(settings.db)
        for name in KEYS:
            await store.nodes.put_node(node(name))
        if release:
            await store.published.put_release(release)
        store.close()
    with socket_folder() as sockets:
        usual = "127.0.0.1:0" if settings.tls else f"unix:{sockets}/p.sock"
        settings = replace(settings, listen=settings.listen or usual)
        async with provider(settings) as endpoint, grpc.aio.insecure_channel(endpoint) as channel:
            site = Loopback(folder, endpoint, channel)
            try:
                yield site
            finally:
                await site.disconnect_agents()
                for ended in _SILENT:
                    ended.set()
                _SILENT.clear()
