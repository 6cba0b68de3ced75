"""Rows of listings without a provider around the storage."""

from __future__ import annotations

from pharoah_provider.listings import LISTINGS, ListingSources, Row
from pharoah_provider.storage.base import Storage


async def listed(storage: Storage, name: str) -> list[Row]:
    """Rows of a listing as an operator gets them while no agent is connected."""
    return await LISTINGS[name].rows(ListingSources(storage, {}, 0.0))
