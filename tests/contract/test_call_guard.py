"""The way in: certificates and their names, roles, deadlines, how much at once, and the record of it all."""

from __future__ import annotations

import asyncio
import json
import os
import re
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest

from pharoah.sidecar.exchange_client import ExchangeClient
from pharoah.sidecar.provider_connection import ProviderConnection
from pharoah_protocol.rpc import Stub, path
from pharoah_protocol.v1 import (
    AgentMessage,
    DecideRequest,
    EvaluateRequest,
    GetEpochRequest,
    GetOfferRequest,
    Hello,
    ListRequest,
    ProbeResult,
    WatchAlertsRequest,
    services,
)
from pharoah_protocol.vocabulary import Role
from pharoah_protocol.voprf import protocol
from pharoah_provider.agent_connection import ANSWERS_WITHOUT_ORDER
from pharoah_provider.certificates import Authority
from pharoah_serving import admission, turns
from pharoah_serving.audit_log import verify
from pharoah_serving.call_guard import RULES, STREAMING_METHODS
from pharoah_serving.listener import Tls
from tests.harness.exchange import KNOWN, RELEASE, on_loopback, refused
from tests.harness.loopback import Loopback, bearer, loopback, node, silence, ticket
from tests.harness.runs import join

DOMAIN = "corp.example"
CLIENTS = ("tenant/lab/one", "tenant/acme", "agent/n1", "operator/ops")


def credentials(pki: Path, name: str | None, authority: str = "ca") -> grpc.ChannelCredentials:
    ca = (pki / f"{authority}.pem").read_bytes()
    if name is None:
        return grpc.ssl_channel_credentials(ca)
    stem = name.replace("/", "-")
    return grpc.ssl_channel_credentials(ca, (pki / f"{stem}.key").read_bytes(), (pki / f"{stem}.pem").read_bytes())


def under_tls(folder: Path, work: Callable[[Loopback, Path], Awaitable[None]]) -> None:
    pki = folder / "pki"
    authority = Authority(pki, DOMAIN)
    authority.issue("provider", ("127.0.0.1",))
    for name in (*CLIENTS, "king/lab"):
        authority.issue(name)

    async def inside() -> None:
        tls = Tls(pki / "provider.pem", pki / "provider.key", pki / "ca.pem")
        async with loopback(folder, RELEASE, tls=tls, domain=DOMAIN) as site:
            await work(site, pki)

    asyncio.run(inside())


async def called(site: Loopback, with_: grpc.ChannelCredentials | None, service: str, request: Any) -> grpc.StatusCode:
    """The status of a call with these credentials."""
    channel = grpc.aio.secure_channel(site.endpoint, with_) if with_ else grpc.aio.insecure_channel(site.endpoint)
    method = type(request).__name__.removesuffix("Request")
    async with channel:
        try:
            await getattr(Stub(channel, service), method)(request, timeout=5)
        except grpc.aio.AioRpcError as error:
            return error.code()
    return grpc.StatusCode.OK


def test_certificates_are_read_by_their_names_and_roles_are_kept_apart(tmp_path: Path) -> None:
    async def work(site: Loopback, pki: Path) -> None:
        epoch, listing = GetEpochRequest(), ListRequest(listing="nodes")
        for name, service, request, expected in (
            ("tenant/lab/one", "Exchange", epoch, grpc.StatusCode.OK),
            ("tenant/acme", "Operator", listing, grpc.StatusCode.PERMISSION_DENIED),
            ("agent/n1", "Exchange", epoch, grpc.StatusCode.PERMISSION_DENIED),
            ("operator/ops", "Operator", listing, grpc.StatusCode.OK),
            ("operator/ops", "Exchange", epoch, grpc.StatusCode.PERMISSION_DENIED),
            ("king/lab", "Exchange", epoch, grpc.StatusCode.UNAUTHENTICATED),
            ("provider", "Operator", listing, grpc.StatusCode.UNAVAILABLE),  # it cannot call
        ):
            assert await called(site, credentials(pki, name), service, request) is expected, name

    under_tls(tmp_path, work)


def test_a_refusal_names_the_role_that_the_call_needs(tmp_path: Path) -> None:
    async def work(site: Loopback, pki: Path) -> None:
        async with grpc.aio.secure_channel(site.endpoint, credentials(pki, "tenant/acme")) as channel:
            request = ListRequest(listing="nodes")
            _, message = await refused(Stub(channel, "Operator").List(request, timeout=5))
            assert "this is for operators" in message and "tenant acme" in message

    under_tls(tmp_path, work)


def test_nobody_gets_in_without_a_certificate_of_the_bundle(tmp_path: Path) -> None:
    async def work(site: Loopback, pki: Path) -> None:
        stranger = tmp_path / "stranger"
        Authority(stranger, DOMAIN).issue("tenant/lab/one")
        (stranger / "real-ca.pem").write_bytes((pki / "ca.pem").read_bytes())
        nameless = tmp_path / "nameless"
        for with_ in (None, credentials(pki, None), credentials(stranger, "tenant/lab/one", "real-ca")):
            assert await called(site, with_, "Exchange", GetEpochRequest()) is grpc.StatusCode.UNAVAILABLE
        assert not nameless.exists()
        channel = grpc.aio.secure_channel(site.endpoint, credentials(pki, None))
        async with channel:
            code, _ = await refused(
                Stub(channel, "Exchange").GetEpoch(GetEpochRequest(), timeout=5, metadata=bearer("acme"))
            )
        assert code is grpc.StatusCode.UNAVAILABLE, "a token opens nothing here"

    under_tls(tmp_path, work)


def test_a_tenant_asks_under_mutual_tls(tmp_path: Path) -> None:
    async def work(site: Loopback, pki: Path) -> None:
        names = {
            "ca_file": "ca.pem",
            "certificate_file": "tenant-lab-one.pem",
            "certificate_key_file": "tenant-lab-one.key",
        }
        settings = site.settings(token_file="", **{name: str(pki / file) for name, file in names.items()})
        provider = ProviderConnection(settings)
        assert (await ExchangeClient(provider, settings).ask(KNOWN, ticket())).matches
        await provider.channel.close()

    under_tls(tmp_path, work)


def test_a_renewed_certificate_is_served_without_a_restart(tmp_path: Path) -> None:
    async def work(site: Loopback, pki: Path) -> None:
        old = (pki / "provider.pem").read_bytes()
        Authority(pki, DOMAIN).issue("provider", ("127.0.0.1",))
        for file in ("provider.pem", "provider.key"):  # the files' times must differ
            os.utime(pki / file, (time.time() + 1, time.time() + 1))
        assert (pki / "provider.pem").read_bytes() != old
        assert await called(site, credentials(pki, "tenant/acme"), "Exchange", GetEpochRequest()) is grpc.StatusCode.OK
        import ssl

        host, _, port = site.endpoint.rpartition(":")
        served = await asyncio.to_thread(_certificate, host, int(port), pki)
        assert served == ssl.PEM_cert_to_DER_cert((pki / "provider.pem").read_text())

    under_tls(tmp_path, work)


def _certificate(host: str, port: int, pki: Path) -> bytes | None:
    import socket
    import ssl

    context = ssl.create_default_context(cafile=str(pki / "ca.pem"))
    context.load_cert_chain(pki / "tenant-acme.pem", pki / "tenant-acme.key")
    context.set_alpn_protocols(["h2"])
    with socket.create_connection((host, port), 5) as raw, context.wrap_socket(raw, server_hostname=host) as secure:
        return secure.getpeercert(binary_form=True)


def test_every_method_of_the_schema_has_a_rule_and_refuses_strangers(tmp_path: Path) -> None:
    async def work(site: Loopback) -> None:
        assert {service.name for service in services()} == RULES.keys()
        for method in (method for service in services() for method in service.methods):
            call = (
                site.channel.stream_stream(path(method))
                if method.client_streaming
                else site.channel.unary_stream(path(method))
                if method.server_streaming
                else site.channel.unary_unary(path(method))
            )
            request = silence() if method.client_streaming else b""
            answer = call(request, timeout=5, metadata=(("authorization", "Bearer nobody"),))
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                if method.server_streaming:
                    async for _ in answer:
                        pass
                else:
                    await answer
            assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED, method.full_name

    on_loopback(tmp_path, work)


def test_a_call_without_a_deadline_is_refused(tmp_path: Path) -> None:
    async def work(site: Loopback) -> None:
        assert {"GetEpoch", "Evaluate", "GetTable", "Report"}.isdisjoint(STREAMING_METHODS)
        code, message = await refused(
            Stub(site.channel, "Exchange").GetEpoch(GetEpochRequest(), metadata=bearer("acme"))
        )
        assert code is grpc.StatusCode.INVALID_ARGUMENT and "deadline" in message

    on_loopback(tmp_path, work)


def test_streams_are_counted_by_tenant_and_one_does_not_take_anothers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(admission.CONCURRENT_STREAMS, Role.TENANT, 2)

    async def work(site: Loopback) -> None:
        mine, theirs = await join(site), await join(site, "n2", "rival")

        def watch(run_id: bytes, who: str) -> Any:
            return Stub(site.channel, "Runs").WatchAlerts(WatchAlertsRequest(run_id=run_id), metadata=bearer(who))

        async def is_let_in(call: Any) -> bool:
            """It waits for alerts, or it is refused at once."""
            reading = asyncio.create_task(call.read())
            done, _ = await asyncio.wait({reading}, timeout=0.3)
            if done:
                assert isinstance(error := reading.exception(), grpc.aio.AioRpcError)
                assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
            return not done

        held = [watch(mine, "acme") for _ in range(2)]
        assert [await is_let_in(call) for call in held] == [True, True]
        assert not await is_let_in(watch(mine, "acme"))
        assert await is_let_in(watch(theirs, "rival"))
        held.pop().cancel()
        async with asyncio.timeout(10):
            while not await is_let_in(watch(mine, "acme")):
                pass  # a stream that ended is no longer counted, soon

    on_loopback(tmp_path, work)


def test_many_short_calls_wait_for_their_turn_within_their_deadline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job of many nodes asks from all of them at once."""
    monkeypatch.setitem(turns.BUDGETS, Role.TENANT, replace(turns.BUDGETS[Role.TENANT], slots=1))
    monkeypatch.setattr(admission, "MAX_WAITING_CALLS", 20)

    async def work(site: Loopback) -> None:
        async with AsyncExitStack() as connections:
            nodes = [await connections.enter_async_context(site.connection()) for _ in range(30)]
            stubs = [Stub(channel, "Exchange") for channel in nodes]
            caller: Any = {"timeout": 5, "metadata": bearer("acme")}
            assert len(await asyncio.gather(*(stub.GetEpoch(GetEpochRequest(), **caller) for stub in stubs[:20]))) == 20
            calls = [stub.GetOffer(GetOfferRequest(ticket=ticket()), **caller) for stub in stubs]
            ended = await asyncio.gather(*calls, return_exceptions=True)
        errors = {error.code() for error in ended if isinstance(error, grpc.aio.AioRpcError)}
        assert errors <= {grpc.StatusCode.RESOURCE_EXHAUSTED} and sum(isinstance(e, Exception) for e in ended) <= 10

    on_loopback(tmp_path, work)


def test_streams_that_are_refused_give_their_turns_back(tmp_path: Path) -> None:
    """Also when the servicer refuses a message of the stream while the call has its turn."""
    stands_on = node("n1")
    hello = Hello(
        node=stands_on.node,
        ticket_key=stands_on.ticket_key,
        boot_id=stands_on.boot_id,
        server_facts=stands_on.server_facts,
        device_facts=stands_on.device_facts,
    )
    not_ordered = [AgentMessage(probe=ProbeResult(order_id="o"))] * (int(ANSWERS_WITHOUT_ORDER) + 1)

    async def connected(site: Loopback, *sent: AgentMessage) -> None:
        async def messages() -> AsyncIterator[AgentMessage]:
            for message in sent:
                yield message

        calls = Stub(site.channel, "Agent").Connect(messages(), timeout=5, metadata=bearer("n1"))
        answers = [order.WhichOneof("content") async for order in calls]
        assert answers[0] == "welcome"

    async def work(site: Loopback) -> None:
        for _ in range(turns.BUDGETS[Role.AGENT].slots + 1):
            for sent in ([AgentMessage()], [AgentMessage(hello=hello), *not_ordered]):
                code, _ = await refused(connected(site, *sent))
                assert code in (grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.RESOURCE_EXHAUSTED)
        await connected(site, AgentMessage(hello=hello))

    on_loopback(tmp_path, work)


def test_metadata_that_is_too_large_is_refused(tmp_path: Path) -> None:
    async def work(site: Loopback) -> None:
        call = Stub(site.channel, "Exchange").GetEpoch
        metadata = (*bearer("acme"), ("x-much", "y" * 40_000))
        code, _ = await refused(call(GetEpochRequest(), timeout=5, metadata=metadata))
        assert code is grpc.StatusCode.RESOURCE_EXHAUSTED

    on_loopback(tmp_path, work)


def test_nested_and_unknown_bytes_are_no_crash(tmp_path: Path) -> None:
    async def work(site: Loopback) -> None:
        nested = b""
        for _ in range(400):
            nested = b"\x0a" + _varint(len(nested)) + nested
        for method, request in (
            ("GetOffer", nested),
            ("Evaluate", b"\x1a\xff\xff\xff\xff\x0f"),
            ("Decide", b"\xff" * 50),
        ):
            call = site.channel.unary_unary(f"/pharoah.v1.Exchange/{method}")
            code, message = await refused(call(request, timeout=5, metadata=bearer("acme")))
            if request is nested:  # it ends in a field of bytes, where no parser goes deeper
                assert code is grpc.StatusCode.PERMISSION_DENIED
            else:
                assert (code, message) == (grpc.StatusCode.INVALID_ARGUMENT, "request: not a message of this kind")
            code, _ = await refused(call(request, timeout=5))
            assert code is grpc.StatusCode.UNAUTHENTICATED, "what a stranger sends is not even parsed"
        assert (await site.call("Exchange", "GetEpoch", GetEpochRequest())).head.body

    on_loopback(tmp_path, work)


def _varint(number: int) -> bytes:
    out = b""
    while number > 0x7F:
        out, number = out + bytes([number & 0x7F | 0x80]), number >> 7
    return out + bytes([number])


def test_the_audit_log_has_every_call_and_nothing_of_what_was_asked(tmp_path: Path) -> None:
    blinded = [protocol.filler() for _ in range(64)]

    async def work(site: Loopback) -> None:
        offer = await site.call("Exchange", "GetOffer", GetOfferRequest(ticket=ticket()))
        request = EvaluateRequest(offer_id=offer.offer_id, request_id=secrets.token_bytes(16), blinded=blinded)
        answer = await site.call("Exchange", "Evaluate", request)
        await site.call("Exchange", "Decide", DecideRequest(offer_id=offer.offer_id, accept=True))
        await refused(site.call("Exchange", "Decide", DecideRequest(offer_id=bytes(16)), "rival"))
        (file,) = (tmp_path / "audit").iterdir()
        text = file.read_text()
        for secret in (*blinded, *answer.classes[0].evaluated, request.request_id, bearer("acme")[0][1].encode()):
            assert secret.hex() not in text and secret.decode(errors="replace") not in text
        lines = [json.loads(line) for line in text.splitlines()]
        seen = [(line["role"], line["name"], line["method"], line["status"]) for line in lines]
        assert seen[-4:] == [
            ("tenant", "acme", "GetOffer", "OK"),
            ("tenant", "acme", "Evaluate", "OK"),
            ("tenant", "acme", "Decide", "OK"),
            ("tenant", "rival", "Decide", "PERMISSION_DENIED"),
        ]
        assert lines[-3]["offer"] == offer.offer_id.hex() and lines[-3]["sent_bytes"] > 4000
        assert '"accept"' not in text
        verify(file)

    on_loopback(tmp_path, work)


def test_secret_files_are_owner_only_and_names_are_in_the_certificate(tmp_path: Path) -> None:
    certificate, key = Authority(tmp_path / "pki", DOMAIN).issue("tenant/lab/one")
    assert all(path.stat().st_mode & 0o077 == 0 for path in (key, tmp_path / "pki" / "ca.key"))
    assert b"BEGIN CERTIFICATE" in certificate.read_bytes()
    from cryptography import x509

    names = x509.load_pem_x509_certificate(certificate.read_bytes()).extensions.get_extension_for_class(
        x509.SubjectAlternativeName
    )
    assert [name.value for name in names.value] == [f"spiffe://{DOMAIN}/tenant/lab/one"]
    assert re.fullmatch(r"tenant-lab-one\.(pem|key)", certificate.name)
