"""One campaign runs at a time, also while a change of its state is being stored. Real DuckDB."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from pharoah_provider.campaigns.book import Campaigns, PlanOptions
from pharoah_provider.campaigns.works import CampaignState
from pharoah_provider.domain import Node
from pharoah_provider.fleet import Fleet
from pharoah_provider.storage.duckdb import DuckStorage
from pharoah_serving.clock import Clock
from pharoah_serving.errors import NotReady, StoreError

PLAN = 'name = "small"\nrepeats = 1\n[[workload]]\nname = "mlp"\n'
CANCEL_SECONDS = 0.3
"""A call that cancels a campaign without waiting for its beginning is over by then."""
MAX_SECONDS = 20.0
"""A campaign that hangs makes its test fail."""


@dataclass
class Gate:
    """It holds back the beginning of campaigns in the store, and fails other changes of their states."""

    stored: Callable[..., Awaitable[None]]
    open: asyncio.Event = field(default_factory=asyncio.Event)
    reached: asyncio.Event = field(default_factory=asyncio.Event)
    failing: frozenset[CampaignState] = frozenset()

    async def set_state(self, campaign_id: str, state: CampaignState, reason: str = "") -> None:
        if state is CampaignState.RUNNING:
            self.reached.set()
            await self.open.wait()
        if state in self.failing:
            raise StoreError("the disk is full")
        await self.stored(campaign_id, state, reason)


class Book(Campaigns):
    """Its campaigns do no works; an event ends them."""

    begun = 0
    ended = 0

    def __init__(self, store: DuckStorage, fleet: Fleet) -> None:
        super().__init__(store, fleet, lambda _: False, Clock())
        self.finish = asyncio.Event()
        self.failure: Exception | None = None
        self.instead_of_cancelled: Exception | None = None
        """What a task group raises that has failed already when it is cancelled."""

    async def _run(self, _: object) -> bool:
        self.begun += 1
        try:
            await self.finish.wait()
        except asyncio.CancelledError:
            if self.instead_of_cancelled:
                raise self.instead_of_cancelled from None
            raise
        finally:
            self.ended += 1
        if self.failure:
            raise self.failure
        return True


def with_book(folder: Path, work: Callable[[Book, Gate], Awaitable[None]]) -> None:
    async def inside() -> None:
        store, fleet = DuckStorage(folder / "p.duckdb"), Fleet()
        fleet.connect(Node("n1", bytes(32), "boot", ("device=cpu",), ("device=cpu",), (0,)))
        gate = Gate(store.campaigns.set_state)
        store.campaigns.set_state = gate.set_state  # type: ignore[method-assign]
        try:
            async with asyncio.timeout(MAX_SECONDS):
                await work(Book(store, fleet), gate)
        finally:
            store.close()

    asyncio.run(inside())


async def planned(book: Book) -> str:
    return (await book.plan(PLAN, PlanOptions())).campaign_id


async def state_of(book: Book, campaign_id: str) -> CampaignState:
    return (await book._require_campaign(campaign_id)).state


async def follow(book: Book, campaign_id: str) -> None:
    async for _ in book.follow(campaign_id):
        pass


def test_a_campaign_that_is_begun_twice_runs_once_and_both_follow_it(tmp_path: Path) -> None:
    async def work(book: Book, gate: Gate) -> None:
        campaign_id = await planned(book)
        both = [asyncio.create_task(follow(book, campaign_id)) for _ in range(2)]
        await gate.reached.wait()
        gate.open.set()
        book.finish.set()
        await asyncio.gather(*both, return_exceptions=False)
        assert book.begun == 1 and await state_of(book, campaign_id) is CampaignState.DONE

    with_book(tmp_path, work)


def test_of_two_campaigns_that_are_begun_at_once_one_runs(tmp_path: Path) -> None:
    async def work(book: Book, gate: Gate) -> None:
        first, second = await planned(book), await planned(book)
        both = [asyncio.create_task(follow(book, one)) for one in (first, second)]
        await gate.reached.wait()
        gate.open.set()
        with pytest.raises(NotReady, match="a campaign is running already"):
            await both[1]
        assert book.begun == 1 and await state_of(book, second) is CampaignState.PLANNED
        book.finish.set()
        await both[0]

    with_book(tmp_path, work)


def test_a_campaign_that_is_cancelled_while_it_begins_is_ended(tmp_path: Path) -> None:
    async def work(book: Book, gate: Gate) -> None:
        campaign_id = await planned(book)
        following = asyncio.create_task(follow(book, campaign_id))
        await gate.reached.wait()
        cancelling = asyncio.create_task(book.cancel(campaign_id))
        await asyncio.wait({cancelling}, timeout=CANCEL_SECONDS)
        gate.open.set()
        await cancelling
        with pytest.raises(NotReady, match="was cancelled"):
            await following
        assert book.begun == book.ended
        assert await state_of(book, campaign_id) is CampaignState.CANCELLED
        book.check_free()

    with_book(tmp_path, work)


@pytest.mark.parametrize("closed", [False, True])
def test_a_campaign_that_fails_while_it_is_cancelled_does_not_hang(tmp_path: Path, closed: bool) -> None:
    async def work(book: Book, gate: Gate) -> None:
        campaign_id = await planned(book)
        gate.open.set()
        book.instead_of_cancelled = NotReady("no node is left")
        following = asyncio.create_task(follow(book, campaign_id))
        while not book.begun:
            await asyncio.sleep(0)
        await (book.close() if closed else book.cancel(campaign_id))
        with pytest.raises(NotReady, match="the provider ends" if closed else "was cancelled"):
            await following
        expected = CampaignState.RUNNING if closed else CampaignState.CANCELLED
        assert await state_of(book, campaign_id) is expected
        book.check_free()

    with_book(tmp_path, work)


def test_followers_of_a_campaign_whose_end_cannot_be_stored_hear_of_its_end(tmp_path: Path) -> None:
    async def work(book: Book, gate: Gate) -> None:
        campaign_id = await planned(book)
        gate.open.set()
        gate.failing = frozenset({CampaignState.PAUSED, CampaignState.DONE})
        book.finish.set()
        with pytest.raises(StoreError, match="the disk is full"):
            await follow(book, campaign_id)
        book.failure = NotReady("no node is left")
        with pytest.raises(NotReady, match="no node is left"):
            await follow(book, campaign_id)
        book.check_free()
        assert await state_of(book, campaign_id) is CampaignState.RUNNING, "the next provider goes on with it"
        gate.failing, book.failure = frozenset(), None
        await book.restore()
        await follow(book, campaign_id)
        assert await state_of(book, campaign_id) is CampaignState.DONE

    with_book(tmp_path, work)
