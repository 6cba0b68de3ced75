"""Epochs that cannot be made: nothing is left of them, and they are not tried again in vain."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from pharoah_learning.release import Release
from pharoah_serving.errors import StoreError
from tests.harness.clock import SimulatedClock
from tests.harness.exchange import ROW
from tests.harness.loopback import node
from tests.harness.publisher import PublisherSite, before_step, publisher_site

DAY = 86_400
UNSEALABLE = Release(2, (ROW, ROW))
"""Two rows have one input."""


def at_site(
    folder: Path,
    work: Callable[[PublisherSite, SimulatedClock], Awaitable[None]],
    clock: SimulatedClock | None = None,
) -> None:
    """Do `work` with a publisher that is open. Again with the same clock: a restart."""
    time = clock or SimulatedClock()

    async def inside() -> None:
        async with publisher_site(folder, time) as site:
            await site.publisher.open()
            await work(site, time)

    asyncio.run(inside())


def seeds(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / "keys").glob("*.seed"))


def test_an_epoch_that_is_not_committed_leaves_no_seed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses() -> None:
        raise StoreError("the disk is full")

    async def work(site: PublisherSite, clock: SimulatedClock) -> None:
        clock.forward(DAY + 60)
        with monkeypatch.context() as patched:
            before_step(site, "put_epoch", patched, refuses)
            for _ in range(3):
                clock.forward(60)
                with pytest.raises(StoreError, match="full"):
                    await site.publisher.rotate()
                assert seeds(tmp_path) == ["epoch-1.seed"]
        await site.publisher.rotate()
        assert site.publisher.epoch().head.epoch == 5, "no number is used twice"
        assert seeds(tmp_path) == ["epoch-1.seed", "epoch-5.seed"]

    at_site(tmp_path, work)


def test_the_seed_of_an_epoch_stays_that_was_committed_before_the_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work(site: PublisherSite, clock: SimulatedClock) -> None:
        honest = site.store.published.put_epoch

        async def put_epoch(*arguments: Any) -> None:
            await honest(*arguments)
            raise StoreError("nobody knows whether it was committed")

        monkeypatch.setattr(site.store.published, "put_epoch", put_epoch)
        clock.forward(DAY + 60)
        with pytest.raises(StoreError, match="nobody knows"):
            await site.publisher.rotate()

    async def after(site: PublisherSite, _: SimulatedClock) -> None:
        assert site.publisher.epoch().head.epoch == 2

    at_site(tmp_path, work, clock := SimulatedClock())
    at_site(tmp_path, after, clock)


def test_the_seed_of_an_epoch_stays_while_the_database_cannot_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def fails(*_: Any) -> None:
        raise StoreError("the database has ended")

    async def work(site: PublisherSite, clock: SimulatedClock) -> None:
        for name in ("put_epoch", "epoch"):
            monkeypatch.setattr(site.store.published, name, fails)
        clock.forward(DAY + 60)
        with pytest.raises(StoreError, match="has ended"):
            await site.publisher.rotate()
        assert seeds(tmp_path) == ["epoch-1.seed", "epoch-2.seed"]
        assert "epoch 2 could not be made, and its seed stays" in caplog.text

    at_site(tmp_path, work)


def test_a_release_that_cannot_be_sealed_is_tried_once_and_again_when_the_nodes_change(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def attempts() -> int:
        return sum("release 2 cannot be sealed" in record.message for record in caplog.records)

    async def work(site: PublisherSite, clock: SimulatedClock) -> None:
        await site.store.published.put_release(UNSEALABLE)
        for _ in range(3):
            clock.forward(60)
            await site.publisher.rotate()
        assert attempts() == 1 and seeds(tmp_path) == ["epoch-1.seed"]
        await site.store.nodes.put_node(node("n2", "memory_limit=5"))
        await site.publisher.rotate()
        assert attempts() == 2 and site.publisher.epoch().head.release == 1
        await site.store.published.put_release(Release(3, (ROW,)))
        await site.publisher.rotate()
        assert site.publisher.epoch().head.release == 3

    at_site(tmp_path, work)
