"""Signed times of nodes while the provider's clock has jumped: which of them count, and for what."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

import grpc
import pytest

from pharoah_protocol.node_ticket import LIFETIME_SECONDS, Ticket
from pharoah_protocol.v1 import GetOfferRequest, NodeTicket
from pharoah_serving.time_guard import CONFIRMATION_FILE, TimeGuard, confirm
from tests.harness.clock import OffsetClock, SimulatedClock
from tests.harness.exchange import RELEASE, refused
from tests.harness.loopback import KEYS, Loopback, loopback, ticket
from tests.harness.other_user import NOBODY, needs_root

DAY = 86_400.0


def guarded(folder: Path, error: float = 0.0) -> tuple[SimulatedClock, TimeGuard]:
    """A guard that has just seen its wall clock jump by `error` seconds."""
    clock = SimulatedClock()
    guard = TimeGuard(clock.clock, folder)
    clock.error = error
    assert guard.jumped == bool(error)
    return clock, guard


@pytest.mark.parametrize("error", [-40 * DAY, 40 * DAY])
def test_old_tickets_do_not_outvote_the_nodes(tmp_path: Path, error: float) -> None:
    """Neither for the wrong time nor against the right one: they are fresh by no clock."""
    clock, guard = guarded(tmp_path, error)
    for number in range(50):
        guard.note_stated_time(f"old {number}", clock.now - 7200.0)
    for node in ("n1", "n2"):
        guard.note_stated_time(node, clock.now + clock.error)
    assert not guard.jumped, "two nodes show the time of the wall clock"


def test_a_ticket_of_the_past_that_the_wall_clock_shows_again_does_not_count_for_a_node_that_has_said_another_time(
    tmp_path: Path,
) -> None:
    """The clock is two hours behind, and a tenant has kept tickets of two hours ago."""
    clock, guard = guarded(tmp_path, -7200.0)
    for node in ("n1", "n2"):
        guard.note_stated_time(node, clock.now)
    for _ in range(3):
        for node in ("n1", "n2"):
            guard.note_stated_time(node, clock.now + clock.error)
    guard.note_stated_time("n3", clock.now + clock.error)
    assert guard.jumped and guard.now() == clock.now


def test_a_doubt_is_removed_by_a_fresh_ticket_only(tmp_path: Path) -> None:
    clock, guard = guarded(tmp_path)
    guard.keep()
    clock.reboot(3 * DAY)
    off = TimeGuard(clock.clock, tmp_path)
    for at in (clock.now - LIFETIME_SECONDS - 1, clock.now + LIFETIME_SECONDS + 1, float("nan")):
        off.note_stated_time("n1", at)
        assert not off.trusted
    off.note_stated_time("n1", clock.now - LIFETIME_SECONDS + 1)
    assert off.trusted


def test_a_ticket_from_before_the_node_restarted_says_nothing(tmp_path: Path) -> None:
    """Over the wire: with two nodes, two such tickets would be a majority."""
    clock = OffsetClock()

    async def work(site: Loopback) -> None:
        await site.call("Exchange", "GetOffer", GetOfferRequest(ticket=ticket()))
        clock.error = 40 * DAY
        for name, key in KEYS.items():
            body, signature = Ticket.issue(name, "an earlier boot", key, time.time() + clock.error)
            sent = GetOfferRequest(ticket=NodeTicket(body=body, signature=signature))
            code, _ = await refused(site.call("Exchange", "GetOffer", sent))
            assert code is grpc.StatusCode.PERMISSION_DENIED
        again = await site.call("Exchange", "GetOffer", GetOfferRequest(ticket=ticket()))
        assert again.offer_id, "the time from before goes on"

    async def inside() -> None:
        async with loopback(tmp_path, RELEASE, clock=clock.clock) as site:
            await work(site)

    asyncio.run(inside())


def test_a_confirmation_that_cannot_be_read_is_said_and_stops_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    _, guard = guarded(tmp_path, 40 * DAY)
    (tmp_path / CONFIRMATION_FILE).write_bytes(b"\xff\xfe")
    guard.keep()
    assert guard.jumped and "cannot be read" in caplog.text
    (tmp_path / CONFIRMATION_FILE).mkdir()
    guard.keep()
    assert "cannot be removed" in caplog.text and (tmp_path / "clock.json").exists()


@needs_root
def test_a_time_that_root_confirms_can_be_read_by_the_server(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir(mode=0o700)
    os.chown(tmp_path / "state", NOBODY, NOBODY)
    confirm(tmp_path / "state", 1e9)
    found = (tmp_path / "state" / CONFIRMATION_FILE).stat()
    assert (found.st_uid, found.st_mode & 0o777) == (NOBODY, 0o600)
