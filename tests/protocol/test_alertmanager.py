"""Alerts for an Alertmanager: a real receiver on a real port."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import replace

import pytest

from pharoah_protocol import alertmanager
from pharoah_protocol.alertmanager import CALL_SECONDS, MAX_ALERTS, AlertSender, OutsideAlert
from tests.harness.alert_receiver import Receiver
from tests.harness.hostile_peers import HOSTILE_PEERS, hostile_peer
from tests.harness.until import until

ALERT = OutsideAlert(
    key="one", labels={"alertname": "Pharoah", "where": "n1"}, annotations={"summary": "slow"}, began_at=1e9
)


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    one = Receiver()
    yield one
    one.close()


async def _sent(receiver: Receiver, count: int) -> None:
    async with asyncio.timeout(30):
        while len(receiver.bodies) < count:
            await asyncio.to_thread(receiver.received.wait, 1)
            receiver.received.clear()


def test_an_alert_is_sent_until_it_ends(receiver: Receiver) -> None:
    async def inside() -> None:
        sender = AlertSender(receiver.url, again_seconds=0.01)
        sender.send(ALERT)
        await _sent(receiver, 3)
        sender.send(replace(ALERT, ended_at=1e9 + 60))
        async with asyncio.timeout(30):
            while "endsAt" not in receiver.bodies[-1][0]:
                await asyncio.sleep(0.01)
        await sender.close(1.0)

    asyncio.run(inside())
    first, last = receiver.bodies[0][0], receiver.bodies[-1][0]
    assert first["labels"] == last["labels"] == {"alertname": "Pharoah", "where": "n1"}
    assert first["startsAt"] == "2001-09-09T01:46:40+00:00"
    assert last["endsAt"] == "2001-09-09T01:47:40+00:00"


def test_an_alert_of_a_clock_that_was_ahead_began_now_and_ends_now() -> None:
    """Alertmanager refuses an alert that has not begun, and takes one that ends later as one that goes on."""
    now = 1e9
    ahead = replace(ALERT, began_at=now + 7200)
    assert ahead.to_data(now)["startsAt"] == "2001-09-09T01:46:40+00:00"
    over = replace(ahead, ended_at=now + 7260).to_data(now)
    assert over["startsAt"] == over["endsAt"] == "2001-09-09T01:46:40+00:00"


def test_a_receiver_that_redirects_has_not_taken_the_alert(
    receiver: Receiver, caplog: pytest.LogCaptureFixture
) -> None:
    """The page behind the redirect answers, and does not get the alert."""
    asked = 0

    async def redirect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal asked
        await reader.readuntil(b"\r\n\r\n")
        writer.write(f"HTTP/1.1 302 Found\r\nLocation: {receiver.url}\r\nContent-Length: 0\r\n\r\n".encode())
        writer.close()
        asked += 1

    async def inside() -> None:
        async with await asyncio.start_server(redirect, "127.0.0.1", 0) as server:
            sender = AlertSender(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/", again_seconds=0.01)
            sender.send(replace(ALERT, ended_at=1e9 + 60))
            await until(lambda: asked >= 2, "the same alert again", 20)
            await sender.close(1.0)

    asyncio.run(inside())
    assert receiver.asked == 0
    assert f"redirects to http://127.0.0.1:{receiver.server.server_address[1]}" in caplog.text


def test_an_alert_keeps_its_first_labels_so_that_its_end_is_taken_for_its_own(receiver: Receiver) -> None:
    async def inside() -> None:
        sender = AlertSender(receiver.url, again_seconds=0.01)
        sender.send(replace(ALERT, labels={**ALERT.labels, "resource": "unknown"}))
        await _sent(receiver, 1)
        later = {"labels": {**ALERT.labels, "resource": "compute"}, "annotations": {"summary": "slower"}}
        sender.send(replace(ALERT, **later))
        sender.send(replace(ALERT, ended_at=1e9 + 60, **later))
        async with asyncio.timeout(30):
            while "endsAt" not in receiver.bodies[-1][0]:
                await asyncio.sleep(0.01)
        await sender.close(1.0)

    asyncio.run(inside())
    assert {alert["labels"]["resource"] for body in receiver.bodies for alert in body} == {"unknown"}
    assert all(len(body) == 1 for body in receiver.bodies)
    assert receiver.bodies[-1][0]["annotations"] == {"summary": "slower"}


def test_what_does_not_speak_the_protocol_ends_no_sender() -> None:
    """A port of TLS, or a proxy that is broken, answers with bytes that are no answer."""
    answered = 0

    async def garbage(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal answered
        await reader.readline()
        writer.write(b"\x15\x03\x01\x00\x02\x02F\r\n\r\n")
        writer.close()
        answered += 1

    async def inside() -> None:
        server = await asyncio.start_server(garbage, "127.0.0.1", 0)
        async with server:
            sender = AlertSender(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/", again_seconds=0.01)
            sender.send(ALERT)
            await until(lambda: answered >= 3, "calls that go on", 20)
            await sender.close(1.0)
        wrong = AlertSender("http://127.0.0.1:9093a/", again_seconds=0.01)
        wrong.send(ALERT)
        await wrong.close(1.0)

    asyncio.run(inside())


def test_an_alert_on_its_way_when_the_run_ends_is_sent_again_and_nothing_after_the_end() -> None:
    """The process ends before the receiver answers, and nobody knows whether it has taken the alert."""
    receiver, held = Receiver(), threading.Event()

    async def inside() -> None:
        sender = AlertSender(receiver.url, again_seconds=60.0)
        sender.send(ALERT)
        await until(lambda: receiver.asked == 1, "the call", 20)
        closing = asyncio.create_task(sender.close(10.0))
        await until(lambda: receiver.asked == 2, "the same alert again", 20)
        held.set()
        await closing
        sender.send(replace(ALERT, key="late"))
        await asyncio.sleep(0.1)

    receiver.before_answer = lambda: held.wait(30)
    try:
        asyncio.run(inside())
        assert receiver.asked == 2
    finally:
        held.set()
        receiver.close()


def test_a_receiver_that_does_not_answer_does_not_delay_the_end_of_the_process() -> None:
    listening = socket.create_server(("127.0.0.1", 0))

    async def inside() -> None:
        sender = AlertSender(f"http://127.0.0.1:{listening.getsockname()[1]}/")
        sender.send(ALERT)
        await sender.close(0.1)

    with listening:
        began = time.monotonic()
        asyncio.run(inside())
        assert time.monotonic() - began < CALL_SECONDS - 1, "a thread of the loop's own would be waited for"


def test_a_receiver_that_fails_gets_the_alert_later() -> None:
    receiver = Receiver(failing=2)

    async def inside() -> None:
        sender = AlertSender(receiver.url, again_seconds=0.01)
        sender.send(ALERT)
        await _sent(receiver, 1)
        await sender.close(1.0)

    asyncio.run(inside())
    receiver.close()


def test_the_last_alert_is_sent_when_the_run_ends(receiver: Receiver) -> None:
    async def inside() -> None:
        sender = AlertSender(receiver.url)
        sender.send(ALERT)
        await sender.close(10.0)

    asyncio.run(inside())
    assert receiver.bodies


def test_an_alert_that_was_not_taken_is_sent_when_the_run_ends() -> None:
    """The next regular call is an hour away."""
    receiver = Receiver(failing=1)

    async def inside() -> None:
        sender = AlertSender(receiver.url, again_seconds=3600.0)
        sender.send(ALERT)
        await until(lambda: receiver.asked == 1, "the call that fails", 20)
        await asyncio.sleep(0.1)
        assert not receiver.bodies
        await sender.close(10.0)

    try:
        asyncio.run(inside())
        assert len(receiver.bodies) == 1
    finally:
        receiver.close()


def test_a_receiver_that_is_away_delays_the_end_no_longer_than_stated() -> None:
    async def inside() -> None:
        sender = AlertSender("http://127.0.0.1:1/nobody")
        sender.send(ALERT)
        async with asyncio.timeout(10):
            await sender.close(0.5)

    asyncio.run(inside())


def test_what_waits_is_bounded() -> None:
    async def inside() -> None:
        sender = AlertSender("http://127.0.0.1:1/nobody")
        for number in range(MAX_ALERTS + 100):
            sender.send(replace(ALERT, key=str(number)))
        assert len(sender._alerts) == MAX_ALERTS
        await sender.close(0.1)

    asyncio.run(inside())


@pytest.mark.parametrize("name", ["drips the status", "drips continues", "drips headers", "is silent"])
def test_a_receiver_that_never_ends_its_answer_costs_one_call(
    name: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next call comes, and the log names the receiver without what is secret in its URL."""
    monkeypatch.setattr("pharoah_protocol.alertmanager.CALL_SECONDS", 0.2)

    async def inside(url: str) -> None:
        sender = AlertSender(url, again_seconds=0.01)
        sender.send(ALERT)
        await until(lambda: caplog.text.count("did not take alerts") >= 2, "a second call", 20)
        await sender.close(0.1)

    with hostile_peer(HOSTILE_PEERS[name]) as port:
        asyncio.run(inside(f"http://user:hunter2@127.0.0.1:{port}/hook/s3cret?key=k3y"))
    assert f"http://127.0.0.1:{port}: it has not answered in 0.2 s" in caplog.text
    assert not [secret for secret in ("hunter2", "s3cret", "k3y") if secret in caplog.text]


def test_a_call_whose_thread_hangs_is_given_up_and_the_next_one_is_made(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pharoah_protocol.alertmanager.GIVEN_UP_SECONDS", 0.2)
    calls, released, real = [], threading.Event(), alertmanager._call

    def call(url: str, body: bytes) -> None:
        calls.append(body)
        if len(calls) == 1:
            released.wait()
        real(url, body)

    monkeypatch.setattr(alertmanager, "_call", call)

    async def inside() -> None:
        sender = AlertSender(receiver.url, again_seconds=0.01)
        sender.send(ALERT)
        await _sent(receiver, 1)
        await sender.close(1.0)

    try:
        asyncio.run(inside())
    finally:
        released.set()
