"""Rows of listings without a provider around the storage."""

from __future__ import annotations

from pharoah_provider.listings import LISTINGS, ListingSources, Row
from pharoah_provider.storage.base import Storage


async def listed(storage: Storage, name: str) -> list[Row]:
    """Rows of a listing as an operator gets them while no agent is connected."""
    return await listed_at(storage, name, 0.0)


async def listed_at(storage: Storage, name: str, now: float) -> list[Row]:
    """The same at a unix time."""
    return await LISTINGS[name].rows(ListingSources(storage, {}, now))
