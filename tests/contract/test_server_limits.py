"""Limits of the service that only their effect can show: unknown options of gRPC are ignored without a word."""

from __future__ import annotations

import asyncio
import errno
import socket
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from pharoah.sidecar.exchange_client import ExchangeClient
from pharoah.sidecar.provider_connection import ProviderConnection
from pharoah_learning.sealing import LIFETIME_SECONDS
from pharoah_protocol.v1 import GetEpochRequest, GetOfferRequest
from pharoah_provider import exchange_server as provider_side
from pharoah_provider.certificates import Authority
from pharoah_provider.publication import Publisher
from pharoah_provider.services import health
from pharoah_provider.services.upkeep import is_ready
from pharoah_provider.storage.base import Storage
from pharoah_serving import admission, call_guard, listener
from pharoah_serving.audit_log import AuditLog
from pharoah_serving.listener import Tls
from tests.contract.test_exchange import KNOWN, RELEASE, on_loopback, refused
from tests.contract.test_publication import with_publisher
from tests.harness.loopback import Loopback, bearer, loopback, silence, ticket


def slow_offers(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    honest = provider_side.ExchangeServer.offer

    async def slow(self: Any, *arguments: Any) -> Any:
        await asyncio.sleep(seconds)
        return await honest(self, *arguments)

    monkeypatch.setattr(provider_side.ExchangeServer, "offer", slow)


def test_no_call_stays_longer_than_the_provider_lets_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(call_guard, "LONGEST_CALL_SECONDS", 0.2)
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


def test_all_callers_together_have_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener, "CALLS_AT_ONCE", 2)
    slow_offers(monkeypatch, 0.5)

    async def work(site: Loopback) -> None:
        who = ("acme", "rival", "one", "two", "acme", "rival")
        calls = [site.call("Exchange", "GetOffer", GetOfferRequest(ticket=ticket()), name) for name in who]
        ended = await asyncio.gather(*calls, return_exceptions=True)
        codes = [error.code() for error in ended if isinstance(error, grpc.aio.AioRpcError)]
        assert len(codes) == 4 and set(codes) == {grpc.StatusCode.RESOURCE_EXHAUSTED}

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


def test_nobody_else_can_listen_on_the_port(tmp_path: Path) -> None:
    async def work(site: Loopback) -> None:
        host, _, port = site.endpoint.rpartition(":")
        with socket.socket() as other:
            other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            with pytest.raises(OSError, match="in use"):
                other.bind((host, int(port)))

    on_loopback(tmp_path, work)


def test_a_client_that_pings_too_much_is_sent_away(tmp_path: Path) -> None:
    """HTTP/2 by hand: the preface, settings, and pings until the server says goodbye (ENHANCE_YOUR_CALM)."""

    def frame(kind: int, payload: bytes) -> bytes:
        return len(payload).to_bytes(3, "big") + bytes([kind, 0]) + bytes(4) + payload

    def pinging(host: str, port: int) -> bytes:
        with socket.create_connection((host, port), 5) as raw:
            raw.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(4, b"") + frame(6, bytes(8)) * 8)
            answer = b""
            while b"too_many_pings" not in answer and (more := raw.recv(4096)):
                answer += more
        return answer

    async def work(site: Loopback) -> None:
        host, _, port = site.endpoint.rpartition(":")
        assert b"too_many_pings" in await asyncio.to_thread(pinging, host, int(port))
        assert (await site.call("Exchange", "GetEpoch", GetEpochRequest())).head.body

    on_loopback(tmp_path, work)


@pytest.mark.parametrize(("listen", "shown"), [("127.0.0.1:0", True), ("0.0.0.0:0", False)])
def test_the_schema_is_shown_on_loopback_alone(tmp_path: Path, listen: str, shown: bool) -> None:
    pki = tmp_path / "pki"
    authority = Authority(pki, "pharoah.local")
    for name, hosts in (("provider", ("127.0.0.1", "0.0.0.0")), ("tenant/acme", ())):
        authority.issue(name, hosts)

    async def inside() -> None:
        tls = Tls(pki / "provider.pem", pki / "provider.key", pki / "ca.pem")
        files = [(pki / name).read_bytes() for name in ("ca.pem", "tenant-acme.key", "tenant-acme.pem")]
        async with (
            loopback(tmp_path, RELEASE, tls=tls, listen=listen) as site,
            grpc.aio.secure_channel(site.endpoint, grpc.ssl_channel_credentials(*files)) as channel,
        ):
            ask = reflection_pb2_grpc.ServerReflectionStub(channel).ServerReflectionInfo
            call = ask(iter([reflection_pb2.ServerReflectionRequest(list_services="")]), timeout=5)
            try:
                names = [s.name async for answer in call for s in answer.list_services_response.service]
                assert shown and "pharoah.v1.Exchange" in names
            except grpc.aio.AioRpcError as error:
                assert not shown and error.code() is grpc.StatusCode.UNIMPLEMENTED

    asyncio.run(inside())


def test_a_provider_whose_epoch_is_over_is_not_ready(tmp_path: Path) -> None:
    async def work(publisher: Publisher, _: Storage) -> None:
        await publisher.open(time.time())
        assert is_ready(publisher, time.time())
        assert not is_ready(publisher, time.time() + LIFETIME_SECONDS + 60)

    with_publisher(tmp_path, work)


def test_calls_that_never_say_what_they_want_are_let_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One tenant opens calls and is silent: it keeps nobody else out, and not for long itself."""
    monkeypatch.setattr(call_guard, "FIRST_MESSAGE_SECONDS", 0.3)
    monkeypatch.setattr(admission, "MOST_WAITING_CALLS", 40)

    async def work(site: Loopback) -> None:
        opened = site.channel.stream_unary("/pharoah.v1.Exchange/GetEpoch")
        calls = [opened(silence(), timeout=20, metadata=bearer("acme")) for _ in range(80)]
        assert (await site.call("Exchange", "GetEpoch", GetEpochRequest(), "rival")).head.body
        ended = await asyncio.gather(*calls, return_exceptions=True)
        codes = Counter(error.code() for error in ended if isinstance(error, grpc.aio.AioRpcError))
        assert codes == {grpc.StatusCode.DEADLINE_EXCEEDED: 40, grpc.StatusCode.RESOURCE_EXHAUSTED: 40}
        assert (await site.call("Exchange", "GetEpoch", GetEpochRequest())).head.body

    on_loopback(tmp_path, work)


def test_health_is_served_to_anybody_but_not_for_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "QUESTION_SECONDS", 0.2)
    monkeypatch.setattr(health, "MOST_AT_ONCE", 5)

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
