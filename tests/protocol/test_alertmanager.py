"""Alerts for an Alertmanager: a real receiver on a real port."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace

import pytest

from pharoah_protocol.alertmanager import AlertSender, OutsideAlert
from tests.harness.alert_receiver import Receiver

ALERT = OutsideAlert(labels={"alertname": "Pharoah", "where": "n1"}, annotations={"summary": "slow"}, began_at=1e9)


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
        for number in range(3000):
            sender.send(replace(ALERT, labels={"number": str(number)}))
        assert len(sender._alerts) == 1024
        await sender.close(0.1)

    asyncio.run(inside())
