"""Workers in a Ray cluster (`pharoah[ray]`), each a fork server under one node profile.

Ray itself is loaded in a process of its own (`campaigns.ray_driver`). A worker is named after the Ray node that it
stands on, so that a block which was begun there goes on there after the provider was restarted.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from importlib.util import find_spec
from itertools import count

from pharoah_benchmarks.campaign.cell import Cell
from pharoah_benchmarks.environments.answer import BUILD_SECONDS
from pharoah_provider.agent.child_processes import ChildProcess
from pharoah_provider.agent.fork_servers import BEYOND_SECONDS
from pharoah_provider.agent_connection import AgentAway
from pharoah_provider.campaigns.executor_settings import ExecutorSettings
from pharoah_provider.campaigns.executors._cell_processes import check_result, node_without_context
from pharoah_provider.campaigns.executors._executor import Executor, ExecutorKind
from pharoah_provider.campaigns.ray_messages import (
    CellDone,
    CellLost,
    CellRequest,
    ClusterFailed,
    RayMessage,
    Workers,
    from_line,
    to_line,
)
from pharoah_provider.campaigns.works import Work, WorkResult
from pharoah_provider.domain import Node
from pharoah_provider.fleet import Fleet
from pharoah_provider.owned_tasks import OwnedTasks
from pharoah_serving.errors import NotReady
from pharoah_system.had_time import MAX_WALL_RATIO
from pharoah_system.own_python import own_environment, own_module
from pharoah_system.with_parent import WITH_PARENT

log = logging.getLogger("pharoah.provider.campaigns")

_MODULE = "pharoah_provider.campaigns.ray_driver"
ANY_CLUSTER = "auto"
"""Ray's own word for the cluster that this machine belongs to."""
START_SECONDS = 120.0
"""How long the first worker may take: Ray is imported and connects, and starts a process on some node."""
AWAY_SECONDS = 15.0
"""How long a worker that is lost keeps its block: one that is replaced on the same Ray node is back by then."""
AGAIN_SECONDS = 2.0
"""Pause before a driver that has ended is started again."""


class RayExecutor:
    """Sends cells to the workers of one driver, which is started again whenever it has ended."""

    away_seconds = AWAY_SECONDS

    def __init__(self, command: Sequence[str]) -> None:
        """`command`: starts the driver. Must be called inside a running event loop."""
        self._command = command
        self._process: ChildProcess | None = None
        self._nodes: dict[str, Node] = {}
        self._waiting: dict[int, asyncio.Future[str]] = {}
        """Requests whose result has not come, by their number. A second answer to one finds nobody who waits."""
        self._numbers = count()
        self.started: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done with the first worker; it raises NotReady for a cluster that cannot be used."""

    def nodes(self) -> list[Node]:
        return list(self._nodes.values())

    async def do(self, node: Node, work: Work, order_id: str) -> WorkResult:  # noqa: ARG002
        assert work.cell is not None, "only nodes of the fleet have baselines"
        if self._process is None or node.node not in self._nodes:
            raise AgentAway(f"{node.node}: this Ray worker is gone")
        number, result = next(self._numbers), asyncio.get_running_loop().create_future()
        self._waiting[number] = result
        request = CellRequest(number, node.node, work.cell.to_json(), _longest_seconds(work.cell))
        try:
            self._process.writer.write(to_line(request))
            return await check_result(node, work.cell, await result)
        finally:
            del self._waiting[number]

    def release(self, node: str, order_id: str) -> None:
        """Nothing is kept here."""

    async def keep_connected(self) -> None:
        """Have a driver for as long as this task runs."""
        while True:
            try:
                await self._drive()
            except (OSError, ValueError) as error:
                log.warning("the Ray driver: %s", error)
            self._lose_all("the Ray driver has ended")
            await asyncio.sleep(AGAIN_SECONDS)

    async def _drive(self) -> None:
        self._process = process = await ChildProcess.start(self._command, own_environment(os.environ))
        try:
            while line := await process.reader.readline():
                self._take(from_line(line))
        finally:
            self._process = None
            await process.end()

    def _take(self, message: RayMessage) -> None:
        match message:
            case Workers(names):
                self._nodes = {name: self._nodes.get(name) or node_without_context(name) for name in names}
                if names and not self.started.done():
                    self.started.set_result(None)
            case CellDone(number, result) if number in self._waiting and not self._waiting[number].done():
                self._waiting[number].set_result(result)
            case CellLost(number, reason) if number in self._waiting and not self._waiting[number].done():
                self._waiting[number].set_exception(AgentAway(f"a Ray worker was lost: {reason}"))
            case ClusterFailed(reason):
                self._lose_all(reason)
            case _:
                log.warning("the Ray driver answers a request that nobody waits for; its answer is dropped")

    def _lose_all(self, reason: str) -> None:
        self._nodes = {}
        for result in self._waiting.values():
            if not result.done():
                result.set_exception(AgentAway(f"a Ray worker was lost: {reason}"))
        if not self.started.done():
            self.started.set_exception(NotReady(f"executor ray: {reason}"))


def _longest_seconds(cell: Cell) -> float:
    """What a worker may take for a cell in wall time, whose environment it may have to build first."""
    return MAX_WALL_RATIO * (cell.limit_seconds + BEYOND_SECONDS) + (BUILD_SECONDS if cell.environment else 0.0)


@asynccontextmanager
async def _open(settings: ExecutorSettings, _: Fleet) -> AsyncIterator[Executor]:
    profile = json.dumps(settings.profile.to_dict())
    arguments = (settings.address or ANY_CLUSTER, str(settings.slots), profile)
    executor = RayExecutor(own_module(WITH_PARENT, str(os.getpid()), _MODULE, *arguments))
    async with OwnedTasks() as tasks:
        tasks.start(executor.keep_connected())
        try:
            async with asyncio.timeout(START_SECONDS):
                await executor.started
        except TimeoutError:
            raise NotReady(f"executor ray: no worker has started within {START_SECONDS:g} s") from None
        yield executor


def _check(settings: ExecutorSettings) -> None:
    if settings.profile.cpus:
        raise ValueError("executor.profile: Ray places its workers; leave `cpus` out")
    if find_spec("ray") is None:
        raise ValueError("executor: Ray is not installed beside the provider; install pharoah[ray]")


RAY = ExecutorKind(
    name="ray",
    help="workers in a Ray cluster, under a node profile (`pharoah[ray]`)",
    has_contexts=False,
    options=("slots", "address", "profile"),
    remedy="see `ray status` of the cluster",
    check=_check,
    open=_open,
)
