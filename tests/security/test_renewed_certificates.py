"""Certificates and tokens that are renewed while an agent, or the sidecar of a job, runs."""

from __future__ import annotations

import asyncio
import logging
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest

from pharoah.sidecar.provider_connection import ProviderConnection
from pharoah_protocol.channels import Access, AccessError, AccessFiles
from pharoah_protocol.rpc import Stub
from pharoah_protocol.v1 import GetEpochRequest, WatchAlertsRequest
from pharoah_provider.agent import stream as agent_stream
from pharoah_provider.agent.known_jobs import KnownJobs
from pharoah_provider.agent.look import Look
from pharoah_provider.agent.telemetry import Telemetry
from pharoah_provider.certificates import Authority
from pharoah_system.files import write_atomically
from tests.harness.exchange import RELEASE, refused
from tests.harness.loopback import TOKENS, loopback, node
from tests.harness.runs import join
from tests.harness.tokens import write_list, write_token
from tests.harness.until import until
from tests.security.test_certificates_and_bounds import DOMAIN, files, tenant, under_tls

OTHER_TOKEN = "tenant acme uuuuuuuuuuuuuuuuuuuuuuuuuuuuuuuu"


def test_files_are_read_again_when_they_have_changed(tmp_path: Path) -> None:
    token = write_token(tmp_path / "token", TOKENS["acme"])
    first = Access.from_files(f"unix:{tmp_path}/p.sock", AccessFiles(token=token))
    assert first.renew() is first
    token.unlink()
    with pytest.raises(AccessError, match=r"token file .*token: No such file"):
        first.renew()
    write_atomically(token, "short\n")
    with pytest.raises(AccessError, match="at least 32 characters"):
        first.renew()
    write_token(token, OTHER_TOKEN)
    second = first.renew()
    assert second.metadata != first.metadata and second.renew() is second
    without = Access("provider.example:1", grpc.ssl_channel_credentials())
    assert without.renew() is without


def test_a_key_that_could_not_be_read_is_read_when_its_mode_has_changed(tmp_path: Path) -> None:
    """Its time stamp is the same then."""
    token = write_token(tmp_path / "token", TOKENS["acme"])
    first = Access.from_files(f"unix:{tmp_path}/p.sock", AccessFiles(token=token))
    write_token(token, OTHER_TOKEN)
    token.chmod(0o644)
    with pytest.raises(AccessError, match="token"):
        first.renew()
    token.chmod(0o600)
    assert first.renew().metadata != first.metadata


@pytest.mark.parametrize("empty", ["ca.pem", "tenant-acme.pem", "tenant-acme.key"])
def test_an_empty_file_is_named_before_it_comes_to_grpc(tmp_path: Path, empty: str) -> None:
    """gRPC ends the whole process when it is given an empty key, or an empty certificate."""
    Authority(tmp_path, DOMAIN).issue("tenant/acme")
    Access.from_files("provider.example:1", files(tmp_path, "tenant-acme"))
    (tmp_path / empty).write_bytes(b"")
    with pytest.raises(AccessError, match=f"certificate file .*{empty}: it is empty"):
        Access.from_files("provider.example:1", files(tmp_path, "tenant-acme"))


async def works(call: Callable[[], Any]) -> bool:
    try:
        await call()
    except grpc.aio.AioRpcError:
        return False
    return True


def test_an_open_connection_goes_on_with_a_renewed_certificate(tmp_path: Path) -> None:
    """The first one is not accepted any more, as after its last day. Stubs are those from before."""

    async def inside() -> None:
        denied = tmp_path / "pki" / "denied"
        denied.parent.mkdir()
        denied.touch()
        async with under_tls(tmp_path, deny_list=denied) as site:
            connection = ProviderConnection(tenant(site))
            stub = Stub(connection.channel, "Exchange")
            authority = Authority(tmp_path / "pki", DOMAIN)
            try:
                await connection.call(stub.GetEpoch, GetEpochRequest())
                authority.deny("tenant/acme")
                code, _ = await refused(connection.call(stub.GetEpoch, GetEpochRequest()))
                assert code is grpc.StatusCode.UNAUTHENTICATED
                authority.issue("tenant/acme")
                await until(lambda: works(lambda: connection.call(stub.GetEpoch, GetEpochRequest())), "the new one")
            finally:
                await connection.channel.close(None)

    asyncio.run(inside())


def test_an_open_connection_goes_on_with_a_renewed_token(tmp_path: Path) -> None:
    async def inside() -> None:
        async with loopback(tmp_path, RELEASE) as site:
            connection = ProviderConnection(site.settings())
            stub = Stub(connection.channel, "Exchange")
            try:
                await connection.call(stub.GetEpoch, GetEpochRequest())
                write_list(tmp_path / "tokens", [OTHER_TOKEN])
                code, _ = await refused(connection.call(stub.GetEpoch, GetEpochRequest()))
                assert code is grpc.StatusCode.UNAUTHENTICATED
                write_token(tmp_path / "acme.token", OTHER_TOKEN)
                await until(lambda: works(lambda: connection.call(stub.GetEpoch, GetEpochRequest())), "the new one")
            finally:
                await connection.channel.close(None)

    asyncio.run(inside())


def test_a_stream_goes_on_when_other_calls_have_a_renewed_certificate(tmp_path: Path) -> None:
    async def inside() -> None:
        async with under_tls(tmp_path) as site:
            connection = ProviderConnection(tenant(site))
            site.channel = connection.channel
            try:
                request = WatchAlertsRequest(run_id=await join(site))
                reading = asyncio.ensure_future(Stub(connection.channel, "Runs").WatchAlerts(request).read())
                before = connection.channel.access
                Authority(tmp_path / "pki", DOMAIN).issue("tenant/acme")
                connection.channel.look()
                await until(lambda: connection.channel.access is not before, "the new certificate")
                stub = Stub(connection.channel, "Exchange")
                await connection.call(stub.GetEpoch, GetEpochRequest())
                assert not reading.done()
                reading.cancel()
            finally:
                await connection.channel.close(None)

    asyncio.run(inside())


def test_an_agent_connects_with_what_was_renewed_while_it_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Its first certificate is not accepted. While a file is replaced, it is empty, half written and missing."""
    monkeypatch.setattr(agent_stream, "FIRST_PAUSE_SECONDS", 0.05)
    monkeypatch.setattr(agent_stream, "MAX_PAUSE_SECONDS", 0.05)
    mine, pki = tmp_path / "mine", tmp_path / "pki"
    names = ("ca.pem", "agent-n1.pem", "agent-n1.key")

    def attempts() -> int:
        return caplog.text.count("no connection to")

    async def another_attempt() -> None:
        before = attempts()
        await until(lambda: attempts() > before + 1, "an attempt with these files")

    async def inside() -> None:
        async with under_tls(tmp_path) as site:
            Authority(mine, DOMAIN).issue("agent/n1")
            unused: Any = None
            access = Access.from_files(site.endpoint, files(mine, "agent-n1"))
            stream = agent_stream.AgentStream(node("n1"), access, Telemetry(), unused, unused, Look((0,), KnownJobs()))
            running = asyncio.create_task(stream.run())
            try:
                await another_attempt()
                (mine / "agent-n1.key").write_bytes(b"")
                await until(lambda: "agent-n1.key: it is empty" in caplog.text, "the empty file to be named")
                (mine / "agent-n1.key").write_bytes((pki / "agent-n1.key").read_bytes()[:80])
                await another_attempt()
                (mine / "agent-n1.key").unlink()
                await until(lambda: "agent-n1.key: No such file" in caplog.text, "the missing file to be named")
                await another_attempt()
                for name in names:
                    shutil.copy(pki / name, mine / name)
                await until(lambda: "connected to" in caplog.text, "a connection with the new certificate")
                assert not running.done()
            finally:
                running.cancel()
                await asyncio.wait({running})

    with caplog.at_level(logging.INFO, "pharoah.agent"):
        asyncio.run(inside())
