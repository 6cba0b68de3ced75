"""Incidents of nodes while the disk is full for a moment: nothing is lost, and everybody hears of it once."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from pharoah_provider.domain import Transition
from pharoah_provider.monitoring.incident_book import IncidentBook
from pharoah_serving.errors import StoreError
from tests.harness.listings import listed
from tests.harness.monitored import MonitoredSite, monitored_site


def test_a_change_of_an_incident_is_stored_and_reported_when_the_disk_has_room_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put, full = IncidentBook.put, [True]

    async def failing(self: IncidentBook, change: Transition) -> None:
        if full:
            raise StoreError("the disk is full")
        await put(self, change)

    async def states(site: MonitoredSite) -> list[str]:
        return [row["state"] for row in await listed(site.storage, "alerts")]

    monkeypatch.setattr(IncidentBook, "put", failing)

    async def inside() -> None:
        async with monitored_site(tmp_path) as site:
            await site.add_node("n1", 1)
            run = await site.join("n1", beside_job=False)
            with pytest.raises(StoreError):
                await site.monitor.ask(run)
            with pytest.raises(StoreError):
                await site.passes(1.0)
            assert await states(site) == []
            full.clear()
            await site.passes(1.0)
            assert await states(site) == ["suspected"]
            await site.passes(1.0)
            assert await states(site) == ["suspected"]

    asyncio.run(inside())
