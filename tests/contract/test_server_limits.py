"""Limits of the service that only their effect can show: unknown options of gRPC are ignored without a word."""

from __future__ import annotations

import asyncio
import errno
import socket
import threading
from collections import Counter
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest

from pharoah.sidecar.exchange_client import ExchangeClient
from pharoah.sidecar.provider_connection import ProviderConnection
from pharoah_learning.sealing import LIFETIME_SECONDS
from pharoah_protocol.v1 import GetEpochRequest, GetOfferRequest
from pharoah_provider import exchange_server as provider_side
from pharoah_provider.services import health
from pharoah_provider.services.upkeep import is_ready
from pharoah_serving import admission, call_guard, guarded_call, peers
from pharoah_serving.audit_log import AuditLog
from pharoah_system.local_sockets import LocalSocketError, ServedSocket, socket_path
from tests.harness.clock import SimulatedClock
from tests.harness.exchange import KNOWN, on_loopback, refused
from tests.harness.loopback import Loopback, bearer, silence, ticket
from tests.harness.publisher import publisher_site


def slow_offers(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    honest = provider_side.ExchangeServer.offer

    async def slow(self: Any, *arguments: Any) -> Any:
        await asyncio.sleep(seconds)
        return await honest(self, *arguments)

    monkeypatch.setattr(provider_side.ExchangeServer, "offer", slow)


def test_no_call_stays_longer_than_the_provider_lets_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(call_guard, "MAX_CALL_SECONDS", 0.2)
    slow_offers(monkeypatch, 60.0)

    async def work(site: Loopback) -> None:
        code, message = await refused(site.call("Exchange", "GetOffer", GetOfferRequest(ticket=ticket())))
        assert (code, message) == (grpc.StatusCode.DEADLINE_EXCEEDED, "out of time")

    on_loopback(tmp_path, work)


def test_an_internal_error_reveals_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def fails(*_: Any) -> Any:
        raise KeyError("a secret")

    monkeypatch.setattr(provider_side.ExchangeServer, "offer", fails)

    async def work(site: Loopback) -> None:
        code, message = await refused(site.call("Exchange", "GetOffer", GetOfferRequest(ticket=ticket())))
        assert (code, message) == (grpc.StatusCode.INTERNAL, "internal error")

    on_loopback(tmp_path, work)


def test_strangers_who_hold_calls_open_keep_no_tenant_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No limit is shared by all callers: whoever reached it would lock the others out."""
    monkeypatch.setattr(peers, "KEPT_SECONDS", 30.0)
    monkeypatch.setattr(peers, "MAX_KEPT_CALLS", 40)

    async def work(site: Loopback) -> None:
        # A connection of its own: channels of one process share theirs otherwise.
        own = [("grpc.use_local_subchannel_pool", 1)]
        async with grpc.aio.insecure_channel(site.endpoint, own) as strange:
            opened = strange.stream_unary("/pharoah.v1.Exchange/GetEpoch")
            calls = [asyncio.ensure_future(opened(silence(), timeout=20)) for _ in range(200)]
            for _ in range(20):
                assert (await site.call("Exchange", "GetEpoch", GetEpochRequest(), "rival")).head.body
            for call in calls:
                call.cancel()
            await asyncio.gather(*calls, return_exceptions=True)

    on_loopback(tmp_path, work)


def test_multiplying_does_not_hold_up_the_event_loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    honest, threads = provider_side.protocol.evaluate, set()

    def noted(*arguments: Any) -> Any:
        threads.add(threading.current_thread() is threading.main_thread())
        return honest(*arguments)

    async def work(site: Loopback) -> None:
        settings = site.settings()
        monkeypatch.setattr(provider_side.protocol, "evaluate", noted)
        assert (await ExchangeClient(ProviderConnection(settings), settings).ask(KNOWN, ticket())).matches
        assert threads == {False}

    on_loopback(tmp_path, work)


def test_nobody_else_can_serve_on_the_socket(tmp_path: Path) -> None:
    async def work(site: Loopback) -> None:
        with pytest.raises(LocalSocketError, match="another process serves"):
            ServedSocket(socket_path(site.endpoint))
        assert (await site.call("Exchange", "GetEpoch", GetEpochRequest())).head.body

    on_loopback(tmp_path, work)


def test_a_client_that_pings_too_much_is_sent_away(tmp_path: Path) -> None:
    """HTTP/2 by hand: the preface, settings, and pings until the server says goodbye (ENHANCE_YOUR_CALM)."""

    def frame(kind: int, payload: bytes) -> bytes:
        return len(payload).to_bytes(3, "big") + bytes([kind, 0]) + bytes(4) + payload

    def pinging(path: Path) -> bytes:
        with socket.socket(socket.AF_UNIX) as raw:
            raw.settimeout(5)
            raw.connect(str(path))
            raw.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(4, b"") + frame(6, bytes(8)) * 8)
            answer = b""
            while b"too_many_pings" not in answer and (more := raw.recv(4096)):
                answer += more
        return answer

    async def work(site: Loopback) -> None:
        assert b"too_many_pings" in await asyncio.to_thread(pinging, socket_path(site.endpoint))
        assert (await site.call("Exchange", "GetEpoch", GetEpochRequest())).head.body

    on_loopback(tmp_path, work)


def test_a_provider_whose_epoch_is_over_is_not_ready(tmp_path: Path) -> None:
    """Also one whose epoch has not begun yet, and one whose clock has jumped."""
    clock = SimulatedClock()

    async def work() -> None:
        async with publisher_site(tmp_path, clock) as site:
            await site.publisher.open()
            assert is_ready(site.publisher, site.guard)
            clock.error = -7200
            assert not is_ready(site.publisher, site.guard)
            clock.error = 0
            assert is_ready(site.publisher, site.guard)
            clock.forward(LIFETIME_SECONDS + 60)
            assert not is_ready(site.publisher, site.guard)

    asyncio.run(work())


def test_calls_that_never_say_what_they_want_are_let_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One tenant opens calls and is silent: it keeps nobody else out, and not for long itself."""
    monkeypatch.setattr(guarded_call, "FIRST_MESSAGE_SECONDS", 0.3)
    monkeypatch.setattr(admission, "MAX_WAITING_CALLS", 10)
    monkeypatch.setattr(peers, "KEPT_SECONDS", 0.1)

    async def work(site: Loopback) -> None:
        async with AsyncExitStack() as connections:
            calls = []
            for _ in range(4):
                channel = await connections.enter_async_context(site.connection())
                opened = channel.stream_unary("/pharoah.v1.Exchange/GetEpoch")
                calls += [opened(silence(), timeout=20, metadata=bearer("acme")) for _ in range(5)]
            assert (await site.call("Exchange", "GetEpoch", GetEpochRequest(), "rival")).head.body
            ended = await asyncio.gather(*calls, return_exceptions=True)
        codes = Counter(error.code() for error in ended if isinstance(error, grpc.aio.AioRpcError))
        assert codes == {grpc.StatusCode.DEADLINE_EXCEEDED: 10, grpc.StatusCode.RESOURCE_EXHAUSTED: 10}
        assert (await site.call("Exchange", "GetEpoch", GetEpochRequest())).head.body

    on_loopback(tmp_path, work)


def test_health_is_served_to_anybody_but_not_for_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "QUESTION_SECONDS", 0.2)
    monkeypatch.setattr(health, "MAX_AT_ONCE", 5)
    monkeypatch.setattr(peers, "KEPT_SECONDS", 0.1)

    async def work(site: Loopback) -> None:
        opened = site.channel.stream_unary("/grpc.health.v1.Health/Check")
        ended = await asyncio.gather(*(opened(silence(), timeout=20) for _ in range(9)), return_exceptions=True)
        codes = Counter(error.code() for error in ended if isinstance(error, grpc.aio.AioRpcError))
        assert codes == {grpc.StatusCode.INVALID_ARGUMENT: 5, grpc.StatusCode.RESOURCE_EXHAUSTED: 4}
        watch = site.channel.unary_stream("/grpc.health.v1.Health/Watch")
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await watch(b"", timeout=5).read()
        assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED

    on_loopback(tmp_path, work)


def test_what_cannot_be_recorded_is_not_answered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Quotas are counted from the audit log: a disk that is full must not make them endless."""

    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    async def work(site: Loopback) -> None:
        monkeypatch.setattr(AuditLog, "_append", full)
        code, message = await refused(site.call("Exchange", "GetOffer", GetOfferRequest(ticket=ticket())))
        assert code is grpc.StatusCode.UNAVAILABLE and "records" in message
        assert (await site.call("Exchange", "GetEpoch", GetEpochRequest())).head.body, "what nobody counts goes on"

    on_loopback(tmp_path, work)
