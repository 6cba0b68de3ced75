"""The node's local socket: long answers, connections that nobody uses, and answers that nobody takes."""

from __future__ import annotations

import asyncio
import resource
import select
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from pharoah._errors import UnknownReason
from pharoah.sidecar.agent_client import MAX_READINGS, ask_node, ask_signals
from pharoah_protocol.agent_messages import NodeStateAnswer, SignalReading, SignalsAnswer, SignalsRequest
from pharoah_protocol.local_messages import encode
from pharoah_protocol.node_profile import NO_LIMITS
from pharoah_protocol.vocabulary import Resource
from pharoah_provider.agent import local_socket, open_connections
from pharoah_provider.agent.local_socket import ticket_socket
from pharoah_provider.agent.open_connections import OpenConnections
from tests.harness.until import until


def readings(count: int, measures: str) -> tuple[SignalReading, ...]:
    """Readings with the longest names that there are."""
    return tuple(
        SignalReading(f"{number:064}", "d" * 63, number / 7, measures, Resource.MEMORY_CAPACITY, True, True)
        for number in range(count)
    )


@asynccontextmanager
async def served(path: Path, shown: tuple[SignalReading, ...] = ()) -> AsyncIterator[None]:
    async def signals(_: socket.socket) -> SignalsAnswer:
        return SignalsAnswer(shown)

    key = Ed25519PrivateKey.generate()
    async with ticket_socket(path, "n1", "boot", key, NO_LIMITS, NodeStateAnswer, signals=signals):
        yield


def asks(path: Path) -> Callable[[], Awaitable[bool]]:
    async def gets_a_ticket() -> bool:
        try:
            await ask_node(str(path), 5.0)
        except UnknownReason:
            return False
        return True

    return gets_a_ticket


def test_a_job_gets_all_readings_that_it_uses_and_no_more(tmp_path: Path) -> None:
    path, shown = tmp_path / "agent.sock", readings(MAX_READINGS + 1, "m" * 200)

    async def inside() -> None:
        async with served(path, shown):
            assert await ask_signals(str(path), 30.0) == shown[:MAX_READINGS]

    asyncio.run(inside())


def test_connections_of_one_user_that_nobody_uses_are_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(open_connections, "MAX_CONNECTIONS", 8)
    monkeypatch.setattr(local_socket, "REQUEST_SECONDS", 600.0)
    path = tmp_path / "agent.sock"

    async def inside() -> None:
        async with served(path):
            idle = [await asyncio.open_unix_connection(str(path)) for _ in range(4)]
            reader, writer = await asyncio.open_unix_connection(str(path))
            closed = await asyncio.wait_for(reader.read(), 30.0)
            assert closed == b"", "the newest one is closed, without a question and without an answer"
            writer.close()
            assert not await asks(path)()
            for _, open_one in idle:
                open_one.close()
            await until(asks(path), "a ticket")
            assert caplog.text.count("connections to the local socket") == 1

    asyncio.run(inside())


def test_no_user_alone_takes_all_connections() -> None:
    connections = OpenConnections(4)
    with (
        connections.enter(1) as first,
        connections.enter(1) as second,
        connections.enter(1) as third,
        connections.enter(2) as of_another,
        connections.enter(3) as of_a_third,
        connections.enter(4) as of_a_fourth,
    ):
        assert [first, second, third, of_another, of_a_third, of_a_fourth] == [True, True, False, True, True, False]
    with connections.enter(4) as later:
        assert later
    assert not connections._by_user, "a user without a connection leaves no entry"


def test_half_of_the_descriptors_of_a_process_are_for_other_things() -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (600, before[1]))
        assert OpenConnections().most == 300
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_an_answer_that_nobody_takes_keeps_no_connection_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_socket, "REQUEST_SECONDS", 0.2)
    path, shown = tmp_path / "agent.sock", readings(4 * MAX_READINGS, "m" * 1000)

    async def inside() -> None:
        async with served(path, shown):
            with socket.socket(socket.AF_UNIX) as asker:
                asker.connect(str(path))
                asker.sendall(encode(SignalsRequest()) + b"\n")
                poll = select.poll()
                poll.register(asker, 0)  # the end of the connection is reported in any case
                await until(lambda: bool(poll.poll(0)), "the agent to close the connection", 20)

    asyncio.run(inside())
