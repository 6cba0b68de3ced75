"""A publisher without the provider around it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from pharoah_learning.release import Release
from pharoah_protocol.log.checkpoint import log_origin
from pharoah_provider.first_start import make_provider
from pharoah_provider.high_water import FILE, HighWater, Mark
from pharoah_provider.publication import Publisher
from pharoah_provider.storage.base import Storage
from pharoah_provider.storage.duckdb import DuckStorage
from pharoah_provider.transparency_log import TransparencyLog, Witness
from pharoah_serving.keys import Keys, open_keys
from pharoah_serving.time_guard import TimeGuard
from tests.harness.clock import SimulatedClock
from tests.harness.database import new_database
from tests.harness.exchange import RELEASE
from tests.harness.loopback import node

SEALING_STEPS = ("new_epoch_seed", "put_epoch", "append", "serve", "put_checkpoint")


@dataclass(frozen=True)
class PublisherSite:
    """A publisher that is not open yet, and what it works with."""

    publisher: Publisher
    store: Storage
    guard: TimeGuard
    keys: Keys


async def fill(folder: Path, release: Release = RELEASE, nodes: Sequence[str] = ("n1",)) -> None:
    """Keys, nodes and a release, as a provider has them after its first campaign."""
    make_provider(str(folder / "keys"), folder / "p.duckdb")
    new_database(folder / "p.duckdb")
    await fill_database(folder, release, nodes)


async def fill_database(folder: Path, release: Release = RELEASE, nodes: Sequence[str] = ("n1",)) -> None:
    """Nodes and a release, for a provider whose keys are there."""
    store = DuckStorage(folder / "p.duckdb")
    for name in nodes:
        await store.nodes.put_node(node(name))
    await store.published.put_release(release)
    store.close()


@asynccontextmanager
async def publisher_site(
    folder: Path, time: SimulatedClock, witnesses: Sequence[Witness] = ()
) -> AsyncIterator[PublisherSite]:
    """A publisher on the files of a provider, without the provider. Again: a restart. Raises StoreError."""
    if not (folder / "p.duckdb").exists():
        await fill(folder)
    store, keys = DuckStorage(folder / "p.duckdb"), open_keys(folder / "keys")
    try:
        high_water = HighWater(folder / "keys", log_origin(keys.public), time.clock.wall())
        guard = TimeGuard(time.clock, folder / "keys", high_water.mark.signed_at)
        checkpoint = await store.log.checkpoint()
        entries = await store.log.log_entries()
        log = TransparencyLog(entries, keys.signing_key, witnesses, checkpoint, high_water, guard.clock)
        yield PublisherSite(Publisher(store, keys, log, guard), store, guard, keys)
        guard.keep()
    finally:
        store.close()


def forget_signatures(keys: Path) -> None:
    """What a dishonest provider does: its key goes on as if it had signed nothing yet, and its seeds are gone."""
    for path in (keys / FILE, *keys.glob("epoch-*.seed")):
        path.unlink()
    HighWater.begin(keys, Mark(log_origin(open_keys(keys).public)))


def before_step(site: PublisherSite, step: str, monkeypatch: pytest.MonkeyPatch, happens: Callable[[], None]) -> None:
    """Let something happen when a step of sealing (`SEALING_STEPS`) begins."""
    owners: dict[str, Any] = {
        "new_epoch_seed": site.keys,
        "put_epoch": site.store.published,
        "append": site.publisher.log,
        "serve": site.publisher.log,
        "put_checkpoint": site.store.log,
    }
    honest = getattr(owners[step], step)

    def begun(*arguments: Any) -> Any:
        happens()
        return honest(*arguments)

    monkeypatch.setattr(owners[step], step, begun)


def with_publisher(
    folder: Path, work: Callable[[Publisher, Storage], Awaitable[None]], time: SimulatedClock | None = None
) -> None:
    """Do `work` with a publisher, whose clock is ours. Again: a restart."""

    async def inside() -> None:
        async with publisher_site(folder, time or SimulatedClock()) as site:
            await work(site.publisher, site.store)

    asyncio.run(inside())
