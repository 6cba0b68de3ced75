"""A publisher without the provider around it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

from pharoah_provider.publication import Publisher
from pharoah_provider.storage.base import Storage
from pharoah_provider.storage.duckdb import DuckStorage
from pharoah_provider.transparency_log import TransparencyLog
from pharoah_serving.keys import open_keys
from tests.harness.exchange import RELEASE
from tests.harness.loopback import node


def with_publisher(folder: Path, work: Callable[[Publisher, Storage], Awaitable[None]]) -> None:
    """A publisher on the files of a provider, without the provider: its clock is ours. Again: a restart."""

    async def inside() -> None:
        if not (folder / "p.duckdb").exists():
            store = DuckStorage(folder / "p.duckdb")
            await store.nodes.put_node(node("n1"))
            await store.published.put_release(RELEASE)
            store.close()
        store, keys = DuckStorage(folder / "p.duckdb"), open_keys(folder / "keys")
        publisher = Publisher(store, keys, TransparencyLog(await store.log.log_entries(), keys.signing_key))
        try:
            await work(publisher, store)
        finally:
            store.close()

    asyncio.run(inside())
