"""Clocks that jump: verdicts go on, no seed is lost, and the right time is found again."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from grpc_health.v1 import health_pb2

from pharoah.sidecar.log_client import LogClient
from pharoah_protocol.log.view import AUDIT, Entry, View
from pharoah_protocol.tables import epoch_head
from pharoah_protocol.tables.epoch_head import EpochHead, HeadError, verify_head
from pharoah_provider.first_start import make_provider
from pharoah_provider.services import upkeep
from pharoah_serving.clock import Clock
from pharoah_serving.errors import NotReady
from pharoah_serving.keys import Keys
from pharoah_serving.pseudonym_keys import PseudonymKeys
from pharoah_serving.time_guard import HOLD_SECONDS, TimeGuard, confirm
from tests.harness.clock import OffsetClock, SimulatedClock
from tests.harness.exchange import RELEASE, answered
from tests.harness.loopback import Loopback, loopback
from tests.harness.publisher import SEALING_STEPS, PublisherSite, before_step, publisher_site
from tests.harness.until import until

DAY = 86_400.0
YEAR = 365 * DAY
WRONG = (-50 * YEAR, -40 * DAY, -2 * 3600.0, 2 * 3600.0, 40 * DAY, 50 * YEAR)
"""Errors of a clock, in seconds."""


@pytest.fixture(autouse=True)
def looks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upkeep, "LOOK_SECONDS", 0.02)


async def health(site: Loopback) -> int:
    check = site.channel.unary_unary("/grpc.health.v1.Health/Check")
    return int(health_pb2.HealthCheckResponse.FromString(await check(b"", timeout=5)).status)


def on_a_clock(folder: Path, clock: OffsetClock, work: Callable[[Loopback], Awaitable[None]]) -> None:
    async def inside() -> None:
        async with loopback(folder, RELEASE, clock=clock.clock) as site:
            await work(site)

    asyncio.run(inside())


def test_a_clock_that_is_ahead_for_a_moment_costs_no_verdict_and_no_seed(tmp_path: Path) -> None:
    clock = OffsetClock()

    async def work(site: Loopback) -> None:
        assert await answered(site)
        for error in WRONG:
            clock.error = error
            await until(lambda: not_serving(site), "the provider to notice the jump")
            assert await answered(site), "what is served goes on being served"
            clock.error = 0.0
            await until(lambda: serving(site), "the provider to notice that the clock is right")
            assert await answered(site)
        assert sorted(path.name for path in (tmp_path / "keys").glob("*.seed")) == ["epoch-1.seed"], (
            "nothing was sealed"
        )

    on_a_clock(tmp_path, clock, work)


async def serving(site: Loopback) -> bool:
    return await health(site) == health_pb2.HealthCheckResponse.SERVING


async def not_serving(site: Loopback) -> bool:
    return not await serving(site)


@pytest.mark.parametrize("error", [-40 * DAY, 40 * DAY, 50 * YEAR])
def test_a_provider_that_began_with_a_wrong_clock_recovers_when_it_is_right(tmp_path: Path, error: float) -> None:
    """The first epoch has the wrong time. A node's ticket shows which of the two times is right."""
    clock = OffsetClock(error)

    async def work(site: Loopback) -> None:
        assert not await answered(site), "the head is of another time"
        clock.error = 0.0
        await until(lambda: answered(site), "verdicts")
        await until(lambda: serving(site), "the health status")
        assert len(list((tmp_path / "keys").glob("*.seed"))) == 2, "no seed is lost"

    on_a_clock(tmp_path, clock, work)


@pytest.mark.parametrize("error", [-40 * DAY, 40 * DAY])
@pytest.mark.parametrize("step", SEALING_STEPS)
def test_a_jump_at_any_step_of_sealing(
    tmp_path: Path, step: str, error: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = SimulatedClock()

    async def work() -> None:
        async with publisher_site(tmp_path, clock) as site:
            await site.publisher.open()
            clock.forward(DAY + 60)
            before_step(site, step, monkeypatch, lambda: setattr(clock, "error", error))
            await site.publisher.rotate()
            assert clock.error == error, "the step was reached"
            await accepted(site, clock.now)
            for wrong in (error, 0.0):
                clock.error = wrong
                clock.forward(60)
                await site.publisher.rotate()
                await accepted(site, clock.now)
            assert site.publisher.epoch().head.epoch == 2

    asyncio.run(work())


async def accepted(site: PublisherSite, now: float) -> None:
    """A tenant that remembers nothing accepts what is served, at the right time. Raises HeadError otherwise."""
    epoch, log = site.publisher.epoch(), site.publisher.log
    tenant = LogClient(Ed25519PublicKey.from_public_bytes(site.keys.public), (), None)
    assert tenant.follow(log.entries(0), log.checkpoint)
    tenant.verify(epoch.body, epoch.signature, site.publisher.list_revoked(), now)


def test_no_seed_is_destroyed_by_a_wrong_clock_however_long(tmp_path: Path) -> None:
    """Also after the wrong time was accepted because nothing that had been sealed was in force any more."""
    clock = SimulatedClock()

    async def work() -> None:
        async with publisher_site(tmp_path, clock) as site:
            await site.publisher.open()
            clock.error = 50 * YEAR
            for _ in range(20):
                clock.forward(DAY / 4)
                site.guard.keep()
                await site.publisher.rotate()
            clock.error = 0.0
            site.guard.keep()
            await site.publisher.rotate()
            await accepted(site, clock.now)
            assert (tmp_path / "keys" / "epoch-1.seed").exists()
            assert await site.store.published.seeds_before(clock.now + 100 * YEAR), "none was destroyed"

    asyncio.run(work())


def test_no_seed_is_destroyed_because_its_epoch_began_on_a_clock_that_was_behind(tmp_path: Path) -> None:
    clock = SimulatedClock(error=-10 * YEAR)

    async def work() -> None:
        async with publisher_site(tmp_path, clock) as site:
            await site.publisher.open()
            clock.error = 0.0
            site.guard.note_stated_time("n1", clock.now)
            for _ in range(29):
                clock.forward(DAY)
                site.guard.keep()
                await site.publisher.rotate()
            await accepted(site, clock.now)
            assert (tmp_path / "keys" / "epoch-1.seed").exists()
            for _ in range(3):
                clock.forward(DAY)
                await site.publisher.rotate()
            assert not (tmp_path / "keys" / "epoch-1.seed").exists(), "in the end it is"

    asyncio.run(work())


def test_a_rollback_works_after_a_jump_and_waits_during_one(tmp_path: Path) -> None:
    clock = SimulatedClock()

    async def work() -> None:
        async with publisher_site(tmp_path, clock) as site:
            await site.store.published.put_release(replace(RELEASE, release=2))
            await site.publisher.open()
            clock.error = 40 * DAY
            with pytest.raises(NotReady, match="clock of the provider has jumped"):
                await site.publisher.rollback()
            clock.error = 0.0
            assert (await site.publisher.rollback()).release == 1
            await accepted(site, clock.now)

    asyncio.run(work())


def test_a_new_time_is_followed_when_an_operator_confirms_it_or_the_nodes_agree(tmp_path: Path) -> None:
    for wrong, right in ((guarded(tmp_path / "a"), "operator"), (guarded(tmp_path / "b"), "nodes")):
        clock, guard = wrong
        clock.error = 40 * DAY
        assert guard.jumped and guard.now() == clock.now
        guard.note_stated_time("n1", clock.now)
        guard.note_stated_time("n1", clock.now + clock.error)
        assert guard.jumped, "one node says both"
        if right == "operator":
            confirm(tmp_path / "a", clock.now + clock.error)
            guard.keep()
        else:
            for node in ("n2", "n3"):
                guard.note_stated_time(node, clock.now + clock.error)
        assert not guard.jumped and guard.trusted and guard.now() == clock.now + clock.error


def guarded(folder: Path) -> tuple[SimulatedClock, TimeGuard]:
    folder.mkdir()
    clock = SimulatedClock()
    return clock, TimeGuard(clock.clock, folder)


def test_a_jump_while_the_provider_is_not_running_is_noticed_and_a_machine_that_was_off_is_not_a_jump(
    tmp_path: Path,
) -> None:
    clock, guard = guarded(tmp_path / "state")
    guard.keep()
    for error in WRONG:
        clock.error = error
        assert TimeGuard(clock.clock, tmp_path / "state").jumped
    clock.error = 0.0
    clock.reboot(3 * DAY)
    off = TimeGuard(clock.clock, tmp_path / "state")
    assert not off.jumped and off.now() == clock.now and not off.trusted, "it may be the clock that is wrong"
    off.note_stated_time("n1", clock.now)
    assert off.trusted
    off.keep()
    clock.reboot(60)
    clock.error = -50 * YEAR
    unset = TimeGuard(clock.clock, tmp_path / "state")
    assert unset.jumped, "before the newest time that is known"
    clock.forward(30)
    clock.error = 0.0
    assert not unset.jumped and unset.now() == clock.now


def test_small_steps_of_the_clock_are_followed_and_do_not_add_up(tmp_path: Path) -> None:
    clock, guard = guarded(tmp_path / "state")
    for day in range(1, 30):
        clock.error += 600.0 * (-1) ** day * day / 10
        assert not guard.jumped and guard.now() == clock.now + clock.error
        clock.forward(DAY)


def test_a_time_that_stays_is_accepted_after_a_day_with_doubt(tmp_path: Path) -> None:
    clock, guard = guarded(tmp_path / "state")
    clock.error = 40 * DAY
    assert guard.jumped
    clock.forward(HOLD_SECONDS + 60)
    guard.keep()
    assert not guard.jumped and not guard.trusted
    clock.error = 0.0
    assert not guard.jumped and guard.now() == clock.now, "a return to the time from before is followed at once"


def test_a_pseudonym_key_of_the_right_period_is_logged_after_one_of_the_future(tmp_path: Path) -> None:
    entries = [Entry.from_body(b"names", period, b"%d" % period).encode() for period in (10, 2600, 11)]
    view = View().read(entries)
    assert View.from_json(json.loads(json.dumps(view.to_json()))) == view
    assert set(view.pseudonym_keys) == {10, 11, 2600}
    days = View().read(Entry(AUDIT, day, bytes(32)).encode() for day in (5, 6, 900, 7))
    assert all(day in days.days for day in (5, 6, 7, 900)) and 8 not in days.days
    for again in (5, 900):
        with pytest.raises(ValueError, match="second audit log"):
            days.read([Entry(AUDIT, again, bytes(32)).encode()])
    clock, guard = guarded(tmp_path / "state")
    keys = PseudonymKeys(secrets_of(tmp_path), guard.now)
    before = keys.current()
    clock.error = 40 * DAY
    assert keys.current() == before


def secrets_of(folder: Path) -> Keys:
    return make_provider(str(folder / "keys"), folder / "p.duckdb")


def test_a_head_may_begin_an_hour_ahead_and_last_a_day_and_two_hours() -> None:
    key = Ed25519PrivateKey.generate()
    for not_before, not_after, accepted_ in ((3600, 7200, True), (3601, 7200, False), (0, 2**62, False)):
        body = EpochHead(1, 1, 10**9 + not_before, 10**9 + not_after, ()).encode()
        signature = epoch_head.sign(body, key)
        if accepted_:
            verify_head(body, signature, key.public_key(), 1e9)
        else:
            with pytest.raises(HeadError):
                verify_head(body, signature, key.public_key(), 1e9)


def test_old_rows_are_deleted_after_the_machine_was_suspended(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The steady clock stands still then, so that it must not be what the wall clock is compared with."""
    suspended, wrong = [0.0], [0.0]
    clock = Clock(
        wall=lambda: time.time() + suspended[0] + wrong[0],
        since_boot=lambda: time.clock_gettime(time.CLOCK_BOOTTIME) + suspended[0],
    )

    async def work() -> None:
        async with loopback(tmp_path, RELEASE, clock=clock) as site:
            await until(lambda: serving(site), "the start")
            suspended[0] = 5 * 3600.0
            wrong[0] = 40 * DAY
            await until(lambda: not_serving(site), "the provider to notice the jump, at which it looks after its rows")
            wrong[0] = 0.0
            await until(lambda: "rows past their retention: telemetry" in caplog.text, "the rows")

    with caplog.at_level(logging.INFO, "pharoah.provider"):
        asyncio.run(work())
    assert "no old rows are deleted" not in caplog.text
