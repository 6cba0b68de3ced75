"""Cells that take longer than a connection lasts: gRPC ends each connection after half an hour."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from pharoah_benchmarks.campaign.cell import Cell, CellResult
from pharoah_protocol.vocabulary import Outcome
from pharoah_provider import fleet as fleet_module
from pharoah_provider.agent_connection import Connection, Order, OrderKind
from pharoah_provider.fleet import AGED_SECONDS, Fleet
from pharoah_serving.errors import NotReady
from tests.harness.loopback import node
from tests.harness.monitored import HandClock

CELL = Cell("long", "gpt", {}, seconds=7000.0)
RESULT = CellResult(cell=CELL.id, outcome=Outcome.OK)


def with_a_cell(work: Callable[[HandClock, Fleet, Connection, asyncio.Task[CellResult]], Awaitable[None]]) -> None:
    """Do some work after an agent was sent a cell."""

    async def inside() -> None:
        time = HandClock()
        fleet = Fleet(time.clock)
        connection = fleet.connect(node("n1"))
        running = asyncio.create_task(fleet.run_cell("n1", CELL, "o1"))
        assert (await next_order(connection)).order_id == "o1"
        await work(time, fleet, connection, running)

    asyncio.run(inside())


async def next_order(connection: Connection) -> Order:
    """The next cell, or the next word that an order is to stop."""
    async with asyncio.timeout(10):
        while True:
            order = await connection.orders.get()
            assert order is not None, "the stream has ended"
            if order.kind in (OrderKind.CELL, OrderKind.STOP):
                return order


def test_a_cell_goes_on_when_its_connection_ends_because_of_its_age() -> None:
    async def work(time: HandClock, fleet: Fleet, first: Connection, running: asyncio.Task[CellResult]) -> None:
        connection = first
        for _ in range(4):
            time.now += AGED_SECONDS
            fleet.disconnect(connection)
            await asyncio.sleep(0.01)
            connection = fleet.connect(node("n1"))
            order = await next_order(connection)
            assert (order.kind, order.order_id) == (OrderKind.CELL, "o1"), "the agent works on it already"
        connection.result("o1", RESULT)
        assert await running == RESULT

    with_a_cell(work)


def test_a_cell_that_ends_its_agent_has_failed() -> None:
    async def work(time: HandClock, fleet: Fleet, first: Connection, running: asyncio.Task[CellResult]) -> None:
        time.now += AGED_SECONDS - 1
        fleet.disconnect(first)
        with pytest.raises(NotReady, match="its agent went away"):
            await running

    with_a_cell(work)


def test_an_agent_that_does_not_come_back_is_waited_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fleet_module, "BACK_SECONDS", 0.1)

    async def work(time: HandClock, fleet: Fleet, first: Connection, running: asyncio.Task[CellResult]) -> None:
        time.now += AGED_SECONDS
        fleet.disconnect(first)
        with pytest.raises(NotReady, match="its agent went away"):
            await running

    with_a_cell(work)


def test_a_provider_that_ends_does_not_stop_the_cells_of_agents() -> None:
    async def work(time: HandClock, fleet: Fleet, first: Connection, running: asyncio.Task[CellResult]) -> None:
        fleet.end_streams()
        running.cancel()
        await asyncio.wait({running})
        assert first.orders.get_nowait() is None, "the stream ends before an order to stop is read"

    with_a_cell(work)
