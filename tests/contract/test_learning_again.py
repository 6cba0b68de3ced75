"""What is learned reaches whoever uses it once, whatever lets it be served; learning and forgetting know each other."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest

from pharoah_benchmarks.campaign.cell import Cell, CellResult
from pharoah_learning.evidence import EvidenceKind, LeftOut
from pharoah_learning.release import Release
from pharoah_protocol.log.forgotten import ForgetKind
from pharoah_protocol.vocabulary import Outcome
from pharoah_provider.monitoring.monitor import Monitor
from pharoah_provider.publication import Publisher
from pharoah_provider.services import operator
from pharoah_provider.storage.base import Storage
from pharoah_provider.storage.duckdb import DuckStorage
from pharoah_provider.storage.duckdb.database import Database
from pharoah_provider.storage.duckdb.evidence import FORGOTTEN
from tests.harness.clock import SimulatedClock
from tests.harness.database import new_database
from tests.harness.exchange import RELEASE
from tests.harness.loopback import loopback, node
from tests.harness.publisher import with_publisher
from tests.harness.scripted_agents import scripted_site

DAY = 86_400.0
CELL, RESULT = Cell("c", "gpt", {}), CellResult(cell="c", outcome=Outcome.OK)


def test_a_release_is_used_once_whether_it_is_learned_rolled_back_or_sealed_later(tmp_path: Path) -> None:
    clock, used = SimulatedClock(), list[int]()

    async def work(publisher: Publisher, store: Storage) -> None:
        await publisher.open()
        publisher.follow(lambda release: used.append(release.release))
        assert used == [1]
        await store.published.put_release(replace(RELEASE, release=2))
        await publisher.rotate()
        assert used == [1, 2], "the upkeep has sealed what `learn` could not"
        clock.forward(DAY + 60)
        await publisher.rotate()
        assert publisher.epoch().head.epoch == 3 and used == [1, 2], "the same release under a fresh seed"
        await publisher.rollback()
        assert used == [1, 2, 1]
        await store.published.put_release(third := replace(RELEASE, release=3))
        await publisher.publish(third)
        assert used == [1, 2, 1, 3]

    with_publisher(tmp_path, work, clock)


def test_the_monitor_uses_the_release_that_is_served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    honest, used = Monitor.use, list[int]()

    def noted(self: Monitor, release: Release) -> None:
        used.append(release.release)
        honest(self, release)

    monkeypatch.setattr(Monitor, "use", noted)

    async def inside() -> None:
        for _ in range(2):
            async with loopback(tmp_path, RELEASE):
                pass

    asyncio.run(inside())
    assert used == [1, 1], "after the first start and after a restart"


def test_a_change_that_waits_for_its_turn_is_dated_when_it_is_made(tmp_path: Path) -> None:
    """Learning meanwhile does not see it, and an auditor takes what is dated before the learning for known to it."""
    clock = SimulatedClock()

    async def work(publisher: Publisher, store: Storage) -> None:
        await publisher.open()
        async with publisher._lock:
            forgetting = asyncio.create_task(publisher.forget(ForgetKind.NODE, "n1"))
            await asyncio.sleep(0)  # it has begun
            clock.forward(60.0)
            read_at = clock.now
            assert await store.log.list_forgotten(read_at) == []
            clock.forward(60.0)
        await forgetting
        assert await store.log.list_forgotten(read_at) == [], "as before"
        (change,) = await store.log.list_forgotten()
        assert change.at == clock.now

    with_publisher(tmp_path, work, clock)


def test_learning_sees_what_is_dated_before_it_and_waits_for_its_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    new_database(tmp_path / "p.duckdb")
    store, free = DuckStorage(tmp_path / "p.duckdb"), asyncio.Event()
    honest = Database.wait_committed

    async def freed(self: Database) -> None:
        free.set()
        await honest(self)

    monkeypatch.setattr(Database, "wait_committed", freed)
    held = store._database

    async def inside() -> None:
        loop, begun = asyncio.get_running_loop(), asyncio.Event()

        def waits(_: Any) -> None:
            loop.call_soon_threadsafe(begun.set)
            asyncio.run_coroutine_threadsafe(free.wait(), loop).result()

        slow = asyncio.create_task(held.apply(waits))
        await begun.wait()
        appending = asyncio.create_task(store.evidence.append_cell("x", node("n1"), CELL, RESULT))
        await asyncio.sleep(0)  # it is queued behind the slow change
        trials = await store.evidence.trials()
        free.set()
        await asyncio.gather(slow, appending)
        assert len(trials) == 1

    asyncio.run(inside())
    store.close()


def test_what_is_forgotten_is_left_out_from_the_next_learning_on(tmp_path: Path) -> None:
    clock = SimulatedClock()

    async def work(publisher: Publisher, store: Storage) -> None:
        await publisher.open()
        await store.evidence.append_cell("x", node("n1"), CELL, RESULT)
        clock.forward(60.0)  # what a node brings later counts
        await publisher.forget(ForgetKind.NODE, "n1")
        await publisher.forget(ForgetKind.NODE, "n1", undone=True)
        await publisher.forget(ForgetKind.NODE, "n1")
        assert [change.undone for change in await store.log.list_forgotten()] == [False, True, False]
        assert await store.evidence.trials(left_out=(left_out := LeftOut())) == []
        assert left_out.counts == {(EvidenceKind.TRIAL, "n1", FORGOTTEN): 1}

    with_publisher(tmp_path, work, clock)


def test_a_second_learning_is_refused_at_once_while_one_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest, begun, free = operator.learn, asyncio.Event(), asyncio.Event()

    async def slow(store: Storage) -> AsyncIterator[str | Release]:
        if not begun.is_set():  # the first one
            begun.set()
            await free.wait()
        async for step in honest(store):
            yield step

    monkeypatch.setattr(operator, "learn", slow)

    async def inside() -> None:
        async with scripted_site(tmp_path, []) as site:
            first = asyncio.create_task(site.learn())
            await begun.wait()
            with pytest.raises(grpc.aio.AioRpcError, match="learning already") as refused:
                await site.learn()
            assert refused.value.code() is grpc.StatusCode.FAILED_PRECONDITION
            free.set()
            with pytest.raises(grpc.aio.AioRpcError, match="nothing to learn from"):
                await first
            with pytest.raises(grpc.aio.AioRpcError, match="nothing to learn from"):
                await site.learn()

    asyncio.run(inside())
