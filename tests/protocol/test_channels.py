"""Channels over real gRPC: what is repeated while a provider is down, and what is not; settings that do not fit."""

from __future__ import annotations

import asyncio
import functools
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest

from pharoah_protocol.channels import REPEATABLE_METHODS, Access, AccessError, AccessFiles, SettingNames
from pharoah_protocol.rpc import Stub, path
from pharoah_protocol.v1 import (
    EvaluateRequest,
    GetEpochRequest,
    GetEpochResponse,
    GetOfferRequest,
    service,
    services,
)
from pharoah_system.files import write_atomically
from tests.harness.sockets import socket_folder
from tests.harness.tokens import write_token

ATTEMPTS = 4
SECRET = "secret-of-a-tenant-0123456789abcdef"


class Provider:
    """Counts the attempts of each call; answers with `statuses`, one after the other, the last one for ever."""

    def __init__(self, *statuses: grpc.StatusCode) -> None:
        self.statuses, self.attempts = list(statuses), Counter[str]()

    async def answer(self, name: str, _: bytes, context: Any) -> Any:
        self.attempts[name] += 1
        status = self.statuses.pop(0) if len(self.statuses) > 1 else self.statuses[0]
        if status is not grpc.StatusCode.OK:
            await context.abort(status, "as the test wants it")
        return GetEpochResponse(checkpoint=b"here")

    @asynccontextmanager
    async def serving(self, path: Path) -> AsyncIterator[Access]:
        def handler(name: str) -> Any:
            return grpc.unary_unary_rpc_method_handler(
                functools.partial(self.answer, name), response_serializer=GetEpochResponse.SerializeToString
            )

        exchange, server = service("Exchange"), grpc.aio.server()
        methods = {name: handler(name) for name in ("GetEpoch", "Evaluate", "GetOffer")}
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(exchange.full_name, methods),))
        server.add_insecure_port(f"unix:{path}")
        await server.start()
        try:
            yield access_to(path)
        finally:
            await server.stop(None)


def access_to(path: Path) -> Access:
    return Access.from_files(f"unix:{path}", AccessFiles())


def status_of(provider: Provider, method: str, request: Any, timeout: float) -> grpc.StatusCode:
    """How one call to a provider ends."""

    async def work() -> grpc.StatusCode:
        with socket_folder() as folder:
            async with provider.serving(folder / "p.sock") as access, access.aio_channel() as channel:
                return await ended(getattr(Stub(channel, "Exchange"), method)(request, timeout=timeout))

    return asyncio.run(work())


async def ended(call: Awaitable[object]) -> grpc.StatusCode:
    try:
        await call
    except grpc.aio.AioRpcError as error:
        return error.code()
    return grpc.StatusCode.OK


@pytest.mark.parametrize(("method", "request_type"), [("GetEpoch", GetEpochRequest), ("Evaluate", EvaluateRequest)])
def test_a_call_that_changes_nothing_is_repeated(method: str, request_type: Callable[[], Any]) -> None:
    provider = Provider(grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.OK)
    assert status_of(provider, method, request_type(), 5.0) is grpc.StatusCode.OK
    assert provider.attempts == {method: 3}


def test_a_provider_that_is_down_for_a_moment_is_reached(tmp_path: Path) -> None:
    async def work() -> None:
        async with access_to(tmp_path / "p.sock").aio_channel() as channel:
            call = asyncio.ensure_future(Stub(channel, "Exchange").GetEpoch(GetEpochRequest(), timeout=5.0))
            while (state := channel.get_state()) is not grpc.ChannelConnectivity.TRANSIENT_FAILURE:
                await channel.wait_for_state_change(state)
            async with Provider(grpc.StatusCode.OK).serving(tmp_path / "p.sock"):
                assert (await call).checkpoint == b"here"

    asyncio.run(work())


def test_a_blocking_channel_repeats_calls_too(tmp_path: Path) -> None:
    provider = Provider(grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.OK)

    async def work() -> None:
        async with provider.serving(tmp_path / "p.sock") as access:
            with access.channel() as channel:
                stub = Stub(channel, "Exchange")
                answer = await asyncio.to_thread(stub.GetEpoch, GetEpochRequest(), timeout=5.0)
        assert answer.checkpoint == b"here" and provider.attempts == {"GetEpoch": 2}

    asyncio.run(work())


@pytest.mark.parametrize(
    "status",
    [
        grpc.StatusCode.INVALID_ARGUMENT,
        grpc.StatusCode.PERMISSION_DENIED,
        grpc.StatusCode.RESOURCE_EXHAUSTED,
        grpc.StatusCode.INTERNAL,
    ],
)
def test_an_error_of_the_application_is_not_repeated(status: grpc.StatusCode) -> None:
    provider = Provider(status)
    assert status_of(provider, "GetEpoch", GetEpochRequest(), 5.0) is status
    assert provider.attempts == {"GetEpoch": 1}


def test_a_call_that_takes_a_quota_is_not_repeated() -> None:
    provider = Provider(grpc.StatusCode.UNAVAILABLE)
    assert status_of(provider, "GetOffer", GetOfferRequest(), 5.0) is grpc.StatusCode.UNAVAILABLE
    assert provider.attempts == {"GetOffer": 1}


def test_attempts_end_with_their_number_or_with_the_deadline() -> None:
    patient, hasty = Provider(grpc.StatusCode.UNAVAILABLE), Provider(grpc.StatusCode.UNAVAILABLE)
    began = time.monotonic()
    assert status_of(patient, "GetEpoch", GetEpochRequest(), 30.0) is grpc.StatusCode.UNAVAILABLE
    assert patient.attempts == {"GetEpoch": ATTEMPTS} and time.monotonic() - began < 5.0
    status = status_of(hasty, "GetEpoch", GetEpochRequest(), 0.2)
    assert status in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)
    assert 1 <= hasty.attempts["GetEpoch"] < ATTEMPTS, "the attempts share one deadline"


def test_repeatable_methods_are_unary_methods_of_the_schema() -> None:
    assert {one.name for one in services()} == REPEATABLE_METHODS.keys()
    for name, repeatable in REPEATABLE_METHODS.items():
        methods = {method.name: method for method in service(name).methods}
        for method in repeatable:
            streaming = methods[method].client_streaming or methods[method].server_streaming
            assert not streaming, path(methods[method])


def test_a_token_goes_to_a_unix_socket_only_and_into_no_text(tmp_path: Path) -> None:
    token = write_token(tmp_path / "token", f"tenant acme {SECRET}")
    access = Access.from_files(f"unix:{tmp_path}/p.sock", AccessFiles(token=token))
    assert access.metadata == (("authorization", f"Bearer {SECRET}"),) and SECRET not in repr(access)
    for endpoint in ("provider.example:7443", "127.0.0.1:7443", "localhost:7443", "[::1]:7443", ""):
        with pytest.raises(AccessError, match=r"PHAROAH_CA_FILE.*Unix socket"):
            Access.from_files(endpoint, AccessFiles(token=token))
    for endpoint in ("unix:p.sock", "unix://host/p.sock", "unix:"):
        with pytest.raises(AccessError, match="must be absolute"):
            Access.from_files(endpoint, AccessFiles(token=token))


@pytest.mark.parametrize("content", [b"two\n" * 10 + b"lines", b"\xff\xfe" * 20, b"short"])
def test_a_token_file_that_holds_no_token_is_named(tmp_path: Path, content: bytes) -> None:
    write_atomically(tmp_path / "token", content)
    with pytest.raises(AccessError, match=r"token: (not a token|a token has at least 32)"):
        Access.from_files(f"unix:{tmp_path}/p.sock", AccessFiles(token=tmp_path / "token"))
    with pytest.raises(AccessError, match=r"token file .*gone: No such file"):
        Access.from_files(f"unix:{tmp_path}/p.sock", AccessFiles(token=tmp_path / "gone"))


def test_certificate_files_that_are_missing_are_named(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text("")
    names = SettingNames(ca="--ca", certificate="--cert", key="--cert-key")
    with pytest.raises(AccessError, match="--ca, --cert and --cert-key belong together"):
        Access.from_files("provider.example:1", AccessFiles(ca=tmp_path / "ca.pem", setting_names=names))
    files = AccessFiles(ca=tmp_path / "ca.pem", certificate=tmp_path / "c.pem", key=tmp_path / "c.key")
    with pytest.raises(AccessError, match=r"certificate file .*c\.key: No such file"):
        Access.from_files("provider.example:1", files)
    with pytest.raises(AccessError, match="a certificate is for host:port"):
        Access.from_files("unix:/p.sock", files)
