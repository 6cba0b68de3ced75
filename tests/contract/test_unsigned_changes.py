"""Changes that are committed and cannot be signed or sealed, because a disk is full or a release is at fault."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from pharoah_archetypes import rung_tokens
from pharoah_protocol.log.forgotten import ForgetKind
from pharoah_protocol.vocabulary import Rung
from pharoah_provider import publication
from pharoah_provider.high_water import HighWater
from pharoah_provider.publication import Publisher
from pharoah_provider.storage.base import Storage
from pharoah_serving.errors import Invalid, StoreError
from tests.harness.exchange import KNOWN, RELEASE, ROW
from tests.harness.publisher import fill, with_publisher


def no_space(*_: object) -> None:
    raise StoreError("no space left on the device")


def cannot_be_sealed(*_: object) -> None:
    raise ValueError("a row is too long")


@pytest.mark.parametrize("change", ["forget", "revoke"])
def test_a_change_after_one_that_could_not_be_signed_is_signed_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    other = replace(ROW, rung=Rung.MINOR, tokens=rung_tokens(KNOWN, Rung.MINOR))

    async def work(publisher: Publisher, _: Storage) -> None:
        await publisher.open()
        with monkeypatch.context() as full:
            full.setattr(HighWater, "extend", no_space)
            with pytest.raises(StoreError):
                await publisher.revoke([ROW.id])
        if change == "forget":
            await publisher.forget(ForgetKind.NODE, "n1")
        else:
            await publisher.revoke([other.id])
        assert publisher.log.view == publisher.log.tip
        assert len(publisher.list_revoked_rows(1)) == (1 if change == "forget" else 2)
        publisher.log.view.check(publisher.epoch().body, publisher.list_revoked())

    async def again(publisher: Publisher, _: Storage) -> None:
        await publisher.open()
        publisher.log.view.check(publisher.epoch().body, publisher.list_revoked())

    asyncio.run(fill(tmp_path, replace(RELEASE, rows=(ROW, other))))
    with_publisher(tmp_path, work)
    with_publisher(tmp_path, again)


async def cut_off_rollback(
    publisher: Publisher, store: Storage, monkeypatch: pytest.MonkeyPatch, release: int = 0
) -> None:
    """Releases 1 to 3 are there, and the rollback of the newest one is cut off by a full disk."""
    for number in (2, 3):
        await store.published.put_release(replace(RELEASE, release=number))
    await publisher.open()
    with monkeypatch.context() as full:
        full.setattr(HighWater, "extend", no_space)
        with pytest.raises(StoreError):
            await publisher.rollback(release)


def test_a_rollback_that_was_cut_off_is_completed_by_the_next_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work(publisher: Publisher, store: Storage) -> None:
        await cut_off_rollback(publisher, store, monkeypatch)
        assert (await publisher.rollback()).release == 2
        assert publisher.epoch().head.release == 2
        newest = await store.published.newest_release()
        assert newest is not None and newest.release == 2

    with_publisher(tmp_path, work)


def test_a_rollback_that_is_repeated_with_the_number_rolls_no_other_release_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work(publisher: Publisher, store: Storage) -> None:
        await cut_off_rollback(publisher, store, monkeypatch, 3)
        await publisher.rotate()
        served = publisher.epoch().head
        assert served.release == 2
        assert await publisher.rollback(3) == (2, served.epoch)
        assert publisher.epoch().head == served
        for other in (1, 4):
            with pytest.raises(Invalid, match=f"release: {other} is not the newest one, which is 2"):
                await publisher.rollback(other)
        assert (await publisher.rollback(2)).release == 1

    with_publisher(tmp_path, work)


def test_a_release_that_is_not_served_is_the_one_that_is_rolled_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work(publisher: Publisher, store: Storage) -> None:
        await store.published.put_release(replace(RELEASE, release=2))
        await publisher.open()
        await store.published.put_release(replace(RELEASE, release=3))
        with monkeypatch.context() as broken:
            broken.setattr(publication, "seal", cannot_be_sealed)
            await publisher.rotate()
        assert await publisher.rollback() == (2, 1)
        assert publisher.epoch().head.release == 2 and publisher.epoch().head.epoch == 1
        newest = await store.published.newest_release()
        assert newest is not None and newest.release == 2

    with_publisher(tmp_path, work)
