"""A real provider process with many runs and nodes, which joined before it was started, and callers for all of them.

What is real: the provider, its Unix socket, tokens, gRPC, checks, budgets, scoring, the database and its commits. What
is simulated: jobs and agents are coroutines of one load generator, the process of the evaluation, and the runs are
written into the database instead of joining one by one.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import grpc.aio

from evaluation.hardening.flooded_site import STOP_SECONDS, FloodedSite, site_on_a_socket
from pharoah_provider.domain import Node, Run
from pharoah_provider.storage.duckdb import DuckStorage

RANKS = 8
"""Ranks of each run: a node with eight GPUs."""
NO_RETRIES = ("grpc.enable_retries", 0)
OWN_CONNECTION = ("grpc.use_local_subchannel_pool", 1)
PUT_AT_ONCE = 256
"""Runs that are written into the database at the same time."""


@dataclass(frozen=True)
class Size:
    """How many parties there are. Runs are spread over organisations and nodes in turn."""

    runs: int
    organisations: int
    nodes: int

    def organisation(self, number: int) -> str:
        """The account that a run belongs to, as a caller."""
        return f"tenant/o{number % self.organisations}/a"

    def node(self, number: int) -> str:
        """The name of the node that a run is on."""
        return f"n{number % self.nodes}"

    @property
    def callers(self) -> tuple[str, ...]:
        """All accounts and agents."""
        tenants = [self.organisation(number) for number in range(self.organisations)]
        return (*tenants, *(f"agent/{self.node(number)}" for number in range(self.nodes)))


def run_id(number: int) -> bytes:
    """The name of a run."""
    return number.to_bytes(16, "big")


@dataclass(frozen=True)
class IngestSite:
    """The provider and who calls it."""

    site: FloodedSite
    size: Size
    began_at: float
    """Unix seconds at which the first second of every run began."""

    def channel(self, caller: str) -> grpc.aio.Channel:
        """A connection of its own."""
        return self.site.access(caller).aio_channel(NO_RETRIES, OWN_CONNECTION)

    def database(self) -> Path:
        """The file of the provider's database."""
        return self.site.folder / "p.duckdb"

    def stop(self) -> None:
        """End the provider as its service manager does, so that its database can be read."""
        self.site.process.terminate()
        self.site.process.wait(STOP_SECONDS)


@contextmanager
def ingest_site(folder: Path, size: Size) -> Iterator[IngestSite]:
    """A provider that knows the runs and nodes; it ends with the context."""
    with site_on_a_socket(folder, size.callers) as site:
        found = IngestSite(site, size, time.time())
        found.stop()
        asyncio.run(_fill(found))
        site.restart()
        yield found


async def _fill(site: IngestSite) -> None:
    """Nodes and runs, as they are in the database of a provider that is started again."""
    storage = DuckStorage(site.database())
    size = site.size
    try:
        nodes = [_node(size.node(number), number) for number in range(size.nodes)]
        runs = [
            Run(
                run_id=run_id(number),
                tenant=size.organisation(number).partition("/")[2],
                node=size.node(number),
                attempt=1,
                ranks=RANKS,
                beside_job=False,
                limit_seconds=0.0,
                joined_at=site.began_at,
            )
            for number in range(size.runs)
        ]
        for at in range(0, len(nodes), PUT_AT_ONCE):
            await asyncio.gather(*(storage.nodes.put_node(node) for node in nodes[at : at + PUT_AT_ONCE]))
        for at in range(0, len(runs), PUT_AT_ONCE):
            await asyncio.gather(*(storage.runs.put_run(run) for run in runs[at : at + PUT_AT_ONCE]))
    finally:
        storage.close()


def _node(name: str, number: int) -> Node:
    return Node(
        name, number.to_bytes(32, "big"), "boot", ("device=cpu",), ("device=cpu",), (0,), host=f"host of {name}"
    )
