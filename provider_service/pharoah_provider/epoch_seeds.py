"""Seeds of epochs: made for an epoch that is sealed next, and destroyed when no audit can ask for them any more.

No audit ever asks for the seed of an epoch that was not committed, and no other epoch gets its number.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from pharoah_provider.storage.base import PublishedStore
from pharoah_serving.errors import StoreError
from pharoah_serving.keys import Keys
from pharoah_serving.time_guard import TimeGuard

log = logging.getLogger("pharoah.provider.epochs")


class EpochSeeds:
    """The seeds of one provider. One change at a time, which the publisher ensures."""

    def __init__(self, published: PublishedStore, keys: Keys, guard: TimeGuard) -> None:
        self._published, self._keys, self._guard = published, keys, guard

    @asynccontextmanager
    async def new(self, epoch: int) -> AsyncIterator[bytes]:
        """A seed for an epoch that is sealed and committed inside. Where that fails, the seed is destroyed: an epoch
        that is due is tried again each minute, each time with another number and seed. Raises StoreError."""
        seed = await asyncio.to_thread(self._keys.new_epoch_seed, epoch)
        try:
            yield seed
        except Exception:
            await self._forget_uncommitted(epoch)
            raise

    async def destroy_old(self, retention_seconds: float) -> None:
        """Destroy seeds that are past their audit retention by every clock, and were so a day ago as well."""
        kept = {str(number): number for number in await self._published.seeds_before(float("inf"))}
        old = await self._published.seeds_before(self._guard.now() - retention_seconds)
        due = self._guard.destroyable(set(kept), {str(number) for number in old}, retention_seconds)
        for number in sorted(kept[name] for name in due):
            await asyncio.to_thread(self._keys.forget_epoch, number)
            await self._published.put_seed_destroyed(number)

    async def _forget_uncommitted(self, epoch: int) -> None:
        """Destroy the seed of an epoch that is not in the database. Where the database cannot say so, the seed stays:
        an error may also come after a commit."""
        try:
            if await self._published.epoch(epoch) is None:
                await asyncio.to_thread(self._keys.forget_epoch, epoch)
        except (StoreError, OSError) as error:
            log.warning("epoch %d could not be made, and its seed stays: %s", epoch, error)
