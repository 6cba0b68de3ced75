"""A site in a network namespace of its own, in which an agent is led to services that are none of its business.

`unshare --net --mount python -m evaluation.hardening.peers_worker SEED [quick]` prints one line of JSON. The honest
node is a real agent process. It gets orders from a malicious provider (a script), and from a real provider to which a
malicious agent (a script) states addresses. Services listen at all these addresses, and note who connects and what is
sent.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory, mkdtemp
from typing import Any

import grpc
import grpc.aio

from pharoah_benchmarks.facts import device_facts, server_facts
from pharoah_benchmarks.micro import MICRO_BENCHMARKS, Need
from pharoah_protocol.channels import Access, AccessFiles
from pharoah_protocol.node_profile import NodeProfile
from pharoah_protocol.rpc import Stub
from pharoah_protocol.v1 import (
    AgentMessage,
    AgentOrder,
    Hello,
    LookResult,
    ProbeOrder,
    ProbePeer,
    ProbeResult,
    Welcome,
    service,
)
from pharoah_provider.agent.child_processes import read_json
from pharoah_provider.agent.node_facts import NodeFacts
from pharoah_provider.certificates import Authority
from pharoah_provider.first_start import make_provider
from pharoah_provider.monitoring import idle_checks
from pharoah_provider.peer_hosts import PeerHosts
from pharoah_provider.services.server import provider
from pharoah_provider.services.settings import ServerSettings
from pharoah_serving.listener import Tls
from tests.harness.site import free_port

HERE, OTHER_NODE = "10.77.0.1", "10.77.0.9"
"""Provider and agents; and a node whose service is nobody's business."""
ELSEWHERE, METADATA, PRIVATE_SIX = "10.88.0.1", "169.254.169.254", "fd00:ec2::254"
NETWORK = [
    ("link", "set", "lo", "up"),
    ("link", "add", "v0", "type", "veth", "peer", "name", "v1"),
    ("link", "set", "v0", "up"),
    ("link", "set", "v1", "up"),
    ("addr", "add", f"{HERE}/24", "dev", "v0"),
    ("addr", "add", f"{OTHER_NODE}/24", "dev", "v0"),
    ("addr", "add", f"{ELSEWHERE}/32", "dev", "lo"),
    ("addr", "add", f"{METADATA}/32", "dev", "lo"),
    ("addr", "add", f"{PRIVATE_SIX}/128", "dev", "lo"),
]
TOKEN = "t" * 43
ORDER_SECONDS = 180.0
"""How long an order is waited for; torch is imported meanwhile."""
QUICK_STATED, STATED = 1, 6
"""Addresses that the malicious agent states: each costs the start of an agent and of torch."""


@dataclass
class Sent:
    """What a service has seen of one connection."""

    place: str
    content: bytes = b""


@dataclass
class Traps:
    """Services that take every connection, wherever it comes in."""

    ports: tuple[int, ...] = field(default_factory=lambda: tuple(free_port() for _ in range(2)))
    seen: list[Sent] = field(default_factory=list)

    def listen(self) -> None:
        for family, host in ((socket.AF_INET, "0.0.0.0"), (socket.AF_INET6, "::")):
            for port in (*self.ports, 22, 80):
                threading.Thread(target=self._serve, args=(family, host, port), daemon=True).start()

    def at(self, *hosts: str) -> int:
        """How many connections came to these addresses."""
        return sum(one.place in hosts for one in self.seen)

    def _serve(self, family: socket.AddressFamily, host: str, port: int) -> None:
        with socket.socket(family) as listening:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            listening.bind((host, port))
            listening.listen()
            while True:
                connection, _ = listening.accept()
                threading.Thread(target=self._note, args=(connection,), daemon=True).start()

    def _note(self, connection: socket.socket) -> None:
        self.seen.append(one := Sent(connection.getsockname()[0]))
        with connection, suppress(OSError):
            connection.settimeout(2.0)
            one.content = connection.recv(4096)


def foreign_places(port: int) -> list[str]:
    """Where a node must not be led, as a malicious provider writes it."""
    return [
        *(f"{host}:{port}" for host in (
            "127.0.0.1", "127.0.0.2", "127.1", "2130706433", "0x7f.1", "localhost", "[::1]", "[::ffff:127.0.0.1]",
            "0.0.0.0", "[::]", "0.1.2.3", ELSEWHERE, f"[{PRIVATE_SIX}]", METADATA, f"[::ffff:{METADATA}]", "224.0.0.1",
            "255.255.255.255", f"[::ffff:{ELSEWHERE}]", "no.such.host.invalid", "-oProxy",
        )),
        f"{METADATA}:80", f"{OTHER_NODE}:22", f"{OTHER_NODE}:80", "/etc/passwd", f"{OTHER_NODE}:99999", "",
    ]  # fmt: skip


# a malicious provider


class MaliciousProvider:
    """Orders a node to meet at each of the places, one after another, and notes its results."""

    def __init__(self, orders: Sequence[ProbeOrder]) -> None:
        self._orders, self.results, self.done = orders, dict[str, str](), asyncio.Event()

    async def connect(self, messages: AsyncIterator[bytes], _: Any) -> AsyncIterator[bytes]:
        async for message in messages:
            content = AgentMessage.FromString(message)
            match content.WhichOneof("content"):
                case "hello":
                    yield AgentOrder(welcome=Welcome(telemetry_period_seconds=60.0)).SerializeToString()
                case "probe":
                    self.results[content.probe.order_id] = content.probe.error or "measured"
                case _:
                    continue
            left = [order for order in self._orders if order.order_id not in self.results]
            if not left:
                self.done.set()
                continue
            yield AgentOrder(probe=left[0]).SerializeToString()


def order(number: int, place: str, token: str = TOKEN, rank: int = 1) -> ProbeOrder:
    peer = ProbePeer(rank=rank, size=2, rendezvous=place, partner="n2", token=token)
    return ProbeOrder(order_id=str(number), benchmarks=["all_reduce"], repeats=1, limit_seconds=1.0, peer=peer)


@asynccontextmanager
async def malicious_provider(folder: Path, one: MaliciousProvider) -> AsyncIterator[str]:
    name = service("Agent").full_name
    handler = grpc.stream_stream_rpc_method_handler(one.connect)
    server = grpc.aio.server()
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(name, {"Connect": handler}),))
    pair = [((folder / "pki/provider.key").read_bytes(), (folder / "pki/provider.pem").read_bytes())]
    authority = (folder / "pki/ca.pem").read_bytes()
    port = server.add_secure_port(f"{HERE}:0", grpc.ssl_server_credentials(pair, authority, True))
    await server.start()
    try:
        yield f"{HERE}:{port}"
    finally:
        await server.stop(0)


@contextmanager
def honest_agent(folder: Path, endpoint: str, *options: str) -> Any:
    """The real agent of node n1."""
    files = folder / "pki"
    command = [sys.executable, "-m", "pharoah_provider.agent.cli", "run", "--node", "n1", "--endpoint", endpoint]
    command += ["--ca", str(files / "ca.pem"), "--cert", str(files / "agent-n1.pem")]
    command += ["--cert-key", str(files / "agent-n1.key"), "--key", str(folder / "n1.ticket")]
    command += ["--socket", str(folder / "n1.sock"), "--host", "host of n1", *options]
    with (folder / "n1.log").open("ab") as log, subprocess.Popen(command, stdout=log, stderr=log) as process:
        try:
            yield process
        finally:
            process.terminate()


async def led_by_provider(folder: Path, traps: Traps, chance: random.Random, quick: bool) -> dict[str, Any]:
    """A real agent under a malicious provider, with the networks that it has by default."""
    places = foreign_places(traps.ports[0])
    chance.shuffle(places)
    places = places[:8] if quick else places
    orders = [order(number, place) for number, place in enumerate(places)]
    orders += [order(len(places), f"{OTHER_NODE}:{traps.ports[0]}", token="")]
    control = order(len(places) + 1, f"{OTHER_NODE}:{traps.ports[1]}")
    one = MaliciousProvider([*orders, control])
    async with malicious_provider(folder, one) as endpoint:
        with honest_agent(folder, endpoint):
            async with asyncio.timeout(ORDER_SECONDS + 12.0 * len(orders)):
                await one.done.wait()
    reached = traps.at(OTHER_NODE)
    return {
        "orders": len(orders),
        "foreign": len(traps.seen) - reached,
        "control": reached,
        "sent_bytes": sum(len(seen.content) for seen in traps.seen),
        "results": {made.peer.rendezvous: one.results[made.order_id] for made in [*orders, control]},
        "places": dict(Counter(seen.place for seen in traps.seen)),
    }


# a malicious agent


def stated_addresses(ports: Sequence[int]) -> list[str]:
    """What a malicious agent states as its own."""
    hosts = (OTHER_NODE, "127.0.0.1", ELSEWHERE, METADATA, f"[{PRIVATE_SIX}]", "[::1]", "localhost")
    return [f"{host}:{port}" for port in ports for host in hosts]


async def led_by_agent(folder: Path, traps: Traps, stated: str, **named: str) -> dict[str, Any]:
    """A real provider and a real agent, and an agent that states the address of another as its own. Both are new for
    each address, because an agent answers few questions whether its node is idle. `named`: hosts that the operator
    names, for the control."""
    before = len(traps.seen)
    # Only what needs a partner is drawn, so that meetings come within seconds.
    together = tuple(one for one in MICRO_BENCHMARKS if one.need is Need.PARTNER and one.device == "cpu")
    idle_checks.suitable = lambda *_, **__: together  # type: ignore[attr-defined]
    pki, own = folder / "pki", Path(mkdtemp(dir=folder))
    make_provider(str(own / "keys"), own / "p.duckdb")
    settings = ServerSettings(
        listen=f"{HERE}:0", http=f"unix:{own}/m.sock", db=own / "p.duckdb", keys=str(own / "keys"),
        audit=own / "audit", tokens=own / "tokens", settle_seconds=0.0, idle_check_seconds=1.0,
        peer_hosts=PeerHosts(named), tls=Tls(pki / "provider.pem", pki / "provider.key", pki / "ca.pem"),
    )  # fmt: skip
    async with provider(settings) as endpoint:
        with honest_agent(folder, endpoint):
            async with asyncio.timeout(ORDER_SECONDS):
                ordered = await _state(folder, endpoint, stated, traps)
    new = traps.seen[before:]
    return {
        "stated": stated,
        "ordered": ordered,
        "led_elsewhere": ordered.rpartition(":")[0] != HERE,
        "own_host": sum(one.place == HERE for one in new),
        "connections": sum(one.place != HERE for one in new),
        "sent_bytes": sum(len(one.content) for one in new),
    }


async def _state(folder: Path, endpoint: str, address: str, traps: Traps) -> str:
    """Connect as node n2, state this address, and wait for an order to meet, and until the honest node has connected to
    where it was led, which is a service in any case; the place at which to meet."""
    files = AccessFiles(folder / "pki/ca.pem", folder / "pki/agent-n2.pem", folder / "pki/agent-n2.key")
    facts = NodeFacts(await read_json("pharoah_benchmarks.context", NodeProfile())).read()
    before, out = len(traps.seen), asyncio.Queue[AgentMessage | None]()
    out.put_nowait(AgentMessage(hello=Hello(
        node="n2", ticket_key=b"k" * 32, boot_id="boot", server_facts=server_facts(facts),
        device_facts=device_facts(facts), cpus=[0], version="1", host="host of n2", peer_address=address,
    )))  # fmt: skip

    async def messages() -> AsyncIterator[AgentMessage]:
        while (message := await out.get()) is not None:
            yield message

    try:
        async with Access.from_files(endpoint, files).aio_channel() as channel:
            async for order in Stub(channel, "Agent").Connect(messages()):
                match order.WhichOneof("content"):
                    case "look":
                        out.put_nowait(AgentMessage(look=LookResult(order_id=order.look.order_id, idle=True)))
                    case "probe":
                        if order.probe.HasField("peer"):
                            while len(traps.seen) == before:
                                await asyncio.sleep(0.1)
                            return str(order.probe.peer.rendezvous)
                        out.put_nowait(AgentMessage(probe=ProbeResult(
                            order_id=order.probe.order_id, benchmark=order.probe.benchmarks[0], error="not now",
                            started_at=time.time(), ended_at=time.time(),
                        )))  # fmt: skip
    finally:
        out.put_nowait(None)
    raise RuntimeError("the provider has ended the stream")


async def main(seed: int, quick: bool) -> dict[str, Any]:
    for arguments in NETWORK:
        subprocess.run(["ip", *arguments], check=True)
    chance, traps = random.Random(seed), Traps()
    traps.listen()
    with TemporaryDirectory() as text:
        folder = Path(text)
        # No core has any work, as the agent sees it: nodes are led to each other only while they are idle.
        (folder / "stat").write_text(Path("/proc/stat").read_text())
        subprocess.run(["mount", "--bind", str(folder / "stat"), "/proc/stat"], check=True)
        authority = Authority(folder / "pki", "pharoah.local")
        authority.issue("provider", (HERE,))
        for name in ("agent/n1", "agent/n2"):
            authority.issue(name)
        by_provider = await led_by_provider(folder, traps, chance, quick)
        stated = stated_addresses(traps.ports)
        chance.shuffle(stated)
        by_agent = [await led_by_agent(folder, traps, one) for one in stated[: QUICK_STATED if quick else STATED]]
        control = await led_by_agent(folder, traps, stated[0], n2=OTHER_NODE)
        return {"by_provider": by_provider, "by_agent": by_agent, "control": control,
                "log": (folder / "n1.log").read_text()[-4000:]}  # fmt: skip


if __name__ == "__main__":
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    print(json.dumps(asyncio.run(main(int(sys.argv[1]), "quick" in sys.argv[2:]))))
