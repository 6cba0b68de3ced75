"""A campaign over one connected node that answers every order at once, and what was ordered of it."""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path

from pharoah_benchmarks.campaign.cell import Cell, CellResult
from pharoah_learning.evidence import BenchmarkResult
from pharoah_protocol.vocabulary import Outcome
from pharoah_provider.agent_connection import Connection, OrderKind
from pharoah_provider.campaigns.book import Campaigns, PlanOptions
from pharoah_provider.domain import Node
from pharoah_provider.fleet import Fleet
from pharoah_provider.storage.duckdb import DuckStorage
from pharoah_serving.clock import Clock

PLAN = 'name = "recorded"\nrepeats = 1\n[[workload]]\nname = "mlp"\n'


async def orders_of_a_campaign(database: Path) -> set[tuple[tuple[str, ...], int, float]]:
    """Benchmarks, repeats and time limit of every order for micro-benchmarks in a campaign."""
    fleet, ordered = Fleet(), set[tuple[tuple[str, ...], int, float]]()
    connection = fleet.connect(Node("n1", bytes(32), "boot", ("device=cpu",), ("device=cpu",), (0,)))
    storage = DuckStorage(database)
    try:
        async with asyncio.TaskGroup() as group:  # an agent that fails ends the campaign, too
            answering = group.create_task(_answer(connection, ordered))
            campaigns = Campaigns(storage, fleet, lambda _: False, Clock())
            async for _ in campaigns.follow((await campaigns.plan(PLAN, PlanOptions())).campaign_id):
                pass
            answering.cancel()
    finally:
        storage.close()
    return ordered


async def _answer(connection: Connection, ordered: set[tuple[tuple[str, ...], int, float]]) -> None:
    while True:
        order = await connection.orders.get()
        order_id, content = order.order_id, order.content
        if order.kind is OrderKind.CELL:
            cell = Cell.from_json(content["cell"])
            connection.result(order_id, CellResult(cell=cell.id, outcome=Outcome.OK, step_seconds=[0.1]))
        if order.kind is not OrderKind.PROBE:
            continue
        ordered.add((tuple(content["benchmarks"]), content["repeats"], content["limit_seconds"]))
        now = time.time()
        for benchmark in content["benchmarks"]:
            seconds = (0.01,) * content["repeats"]
            connection.result(
                order_id, BenchmarkResult(order_id, "n1", benchmark, content["beside_job"], now, now, seconds)
            )


if __name__ == "__main__":
    print(asyncio.run(orders_of_a_campaign(Path(sys.argv[1]))))  # noqa: T201
