"""A campaign over one connected node that answers every order at once, and what was ordered of it."""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path

from pharoah_benchmarks.campaign.cell import Cell, Outcome
from pharoah_benchmarks.campaign.plan import parse_plan
from pharoah_learning.evidence import BenchmarkResult
from pharoah_provider.campaigns import Campaign
from pharoah_provider.domain import Node
from pharoah_provider.fleet import Connection, Fleet
from pharoah_provider.storage.duckdb import DuckStorage

PLAN = 'name = "recorded"\nrepeats = 1\n[[workload]]\nname = "mlp"\n'


async def orders_of_a_campaign(database: Path) -> set[tuple[tuple[str, ...], int, float]]:
    """Benchmarks, repeats and time limit of every order for micro-benchmarks in a campaign."""
    fleet, ordered = Fleet(), set[tuple[tuple[str, ...], int, float]]()
    connection = fleet.connect(Node("n1", bytes(32), "boot", ("device=cpu",), ("device=cpu",), (0,)))
    answering = asyncio.create_task(_answer(connection, ordered))
    storage = DuckStorage(database)
    try:
        async for _ in Campaign(parse_plan(PLAN), fleet, storage.evidence).run():
            pass
    finally:
        answering.cancel()
        storage.close()
    return ordered


async def _answer(connection: Connection, ordered: set[tuple[tuple[str, ...], int, float]]) -> None:
    while True:
        kind, order_id, content = await connection.orders.get()
        if kind == "cell":
            cell = Cell.from_json(content["cell"])
            connection.result(order_id, Outcome(cell.id, "ok", step_seconds=[0.1]))
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
