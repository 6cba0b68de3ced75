"""Strangers, and connections that give their calls up: what is kept, refused and closed."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc.aio
import pytest

from pharoah_protocol.rpc import Stub
from pharoah_protocol.v1 import GetEpochRequest, WatchAlertsRequest
from pharoah_protocol.vocabulary import Role
from pharoah_serving import admission, connections, peers
from pharoah_serving.audit_log import AuditRecord
from pharoah_serving.connections import ConnectionWatch
from pharoah_serving.peers import Peers
from pharoah_serving.recorder import CallRecorder
from tests.harness.exchange import on_loopback, refused
from tests.harness.loopback import Loopback, bearer
from tests.harness.monitored import HandClock
from tests.harness.until import until


def test_a_connection_that_cancels_most_of_its_calls_is_refused_for_a_minute_and_closed() -> None:
    now = HandClock(0.0)
    conduct = Peers(now.clock.steady)
    for _ in range(peers.MIN_CANCELLED):
        conduct.count_call("ipv4:1.2.3.4:5")
        conduct.gave_up("ipv4:1.2.3.4:5")
        conduct.count_call("ipv4:1.2.3.4:6")
    assert conduct.count_call("ipv4:1.2.3.4:5") and not conduct.count_call("ipv4:1.2.3.4:6")
    assert conduct.to_close == {"ipv4:1.2.3.4:5"}
    now.now += peers.PENALTY_SECONDS
    assert not conduct.count_call("ipv4:1.2.3.4:5")


def test_one_client_of_a_unix_socket_has_nobody_else_refused() -> None:
    """gRPC gives all of them one name."""
    conduct = Peers(HandClock(0.0).clock.steady)
    for _ in range(2 * peers.MIN_CANCELLED):
        conduct.count_call("unix:")
        conduct.gave_up("unix:")
    assert not conduct.count_call("unix:") and not conduct.to_close


def test_a_client_that_cancels_now_and_then_is_served_on() -> None:
    conduct = Peers(HandClock(0.0).clock.steady)
    for _ in range(1000):
        assert not conduct.count_call("ipv4:1.2.3.4:5")
        assert not conduct.count_call("ipv4:1.2.3.4:5")
        conduct.gave_up("ipv4:1.2.3.4:5")


def test_the_schema_is_not_served_and_unknown_methods_are_answered(tmp_path: Path) -> None:
    async def work(site: Loopback) -> None:
        for path in ("/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", "/no.such.Service/Method"):
            code, _ = await refused(site.channel.unary_unary(path)(b"", timeout=5, metadata=bearer("acme")))
            assert code is grpc.StatusCode.UNIMPLEMENTED

    on_loopback(tmp_path, work)


def frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + payload


def opened_and_cancelled(count: int, token: str) -> Iterator[bytes]:
    """HTTP/2 by hand: calls, each cancelled with the frame after it."""
    headers = {
        ":method": "POST", ":scheme": "http", ":path": "/pharoah.v1.Exchange/GetEpoch", ":authority": "p",
        "te": "trailers", "content-type": "application/grpc", "grpc-timeout": "5S", "authorization": token,
    }  # fmt: skip
    parts = [part.encode() for pair in headers.items() for part in pair]
    block = b"".join((b"" if at % 2 else b"\x00") + bytes([len(part)]) + part for at, part in enumerate(parts))
    yield b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(4, 0, 0, b"")
    for stream in range(1, 2 * count, 2):
        yield frame(1, 4, stream, block) + frame(3, 0, stream, (8).to_bytes(4, "big"))


@pytest.mark.usefixtures("plain_port")
@pytest.mark.parametrize("token", ["Bearer nobody", bearer("acme")[0][1]], ids=["stranger", "tenant"])
def test_calls_that_are_opened_and_cancelled_reach_the_provider_in_small_numbers(tmp_path: Path, token: str) -> None:
    """gRPC counts a call that is kept as open, and refuses further ones of its connection by itself."""
    sent = 6000

    async def work(site: Loopback) -> None:
        host, _, port = site.endpoint.rpartition(":")

        def flood() -> None:
            with socket.create_connection((host, int(port)), 10) as raw:
                try:
                    for part in opened_and_cancelled(sent, token):
                        raw.sendall(part)
                except OSError:
                    pass  # the provider has closed it

        flooding = asyncio.create_task(asyncio.to_thread(flood))
        for _ in range(10):
            assert (await site.call("Exchange", "GetEpoch", GetEpochRequest(), "rival")).head.body
        await flooding

    seen: list[str] = []
    honest = CallRecorder.record

    def record(self: Any, line: AuditRecord, who: Any, peer: str) -> None:
        seen.append(line.status)
        honest(self, line, who, peer)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(CallRecorder, "record", record)
        patch.setattr(peers, "KEPT_SECONDS", 5.0)
        on_loopback(tmp_path, work)
    assert len(seen) < sent / 4


@pytest.mark.usefixtures("plain_port")
def test_connections_of_nobody_are_closed_above_a_number_and_known_ones_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "UNKNOWN_CONNECTIONS", 3)
    monkeypatch.setattr(connections, "GRACE_LOOKS", 0)

    async def work(site: Loopback) -> None:
        host, _, port = site.endpoint.rpartition(":")
        assert (await site.call("Exchange", "GetEpoch", GetEpochRequest())).head.body
        silent = [socket.create_connection((host, int(port)), 5) for _ in range(8)]
        try:
            conduct = Peers()
            watch = ConnectionWatch(int(port), conduct)
            mine = {f"ipv4:{one.getsockname()[0]}:{one.getsockname()[1]}" for one in silent}
            closed: set[str] = set()

            async def five_closed() -> bool:
                # the connection of the site's own client is known
                found = await asyncio.to_thread(watch._find, os.listdir("/proc/self/fd"))  # noqa: PTH208
                conduct.known.update({name: 0.0 for name in found if name not in mine})
                closed.update(await watch.look())
                return len(closed) == 5

            await until(five_closed, "five of eight to be closed")
            assert closed < mine
            assert (await site.call("Exchange", "GetEpoch", GetEpochRequest())).head.body
        finally:
            for one in silent:
                one.close()

    on_loopback(tmp_path, work)


@pytest.fixture
def kept(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The connections whose calls are kept for a while, one for each call; three are answered at once."""
    connections: list[str] = []

    async def keep(_: Any, peer: str) -> None:
        connections.append(peer)

    monkeypatch.setattr(peers, "QUICK_ANSWERS", 3)
    monkeypatch.setattr(peers, "QUICK_ANSWERS_PER_SECOND", 0.0)
    monkeypatch.setattr(Peers, "keep", keep)
    return connections


def test_calls_above_the_number_inside_are_kept_when_they_come_in_floods(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kept: list[str]
) -> None:
    monkeypatch.setitem(admission.CONCURRENT_STREAMS, Role.TENANT, 0)

    async def work(site: Loopback) -> None:
        for _ in range(5):
            call = Stub(site.channel, "Runs").WatchAlerts(WatchAlertsRequest(run_id=bytes(16)), metadata=bearer("acme"))
            assert (await refused(call.read()))[0] is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert len(kept) == 2

    on_loopback(tmp_path, work)


@pytest.mark.usefixtures("plain_port")
def test_a_probe_of_health_is_answered_while_its_address_floods(tmp_path: Path, kept: list[str]) -> None:
    async def work(site: Loopback) -> None:
        own = [("grpc.use_local_subchannel_pool", 1)]
        async with (
            grpc.aio.insecure_channel(site.endpoint, own) as flooding,
            grpc.aio.insecure_channel(site.endpoint, own) as probing,
        ):
            for channel, calls in ((flooding, peers.QUIET_CALLS + 5), (probing, 5)):
                for _ in range(calls):
                    await channel.unary_unary("/grpc.health.v1.Health/Check")(b"", timeout=5)
        assert len(kept) == 5 and len(set(kept)) == 1

    on_loopback(tmp_path, work)
