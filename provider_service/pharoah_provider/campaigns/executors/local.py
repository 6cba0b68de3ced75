"""A pool of processes on the provider's own machine, each a fork server under one node profile."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, nullcontext
from dataclasses import replace

from pharoah_protocol.node_profile import NodeProfile, check_profile
from pharoah_protocol.vocabulary import DeviceKind
from pharoah_provider.agent.child_processes import ChildDied, read_json
from pharoah_provider.agent.environment_children import EnvironmentChildren
from pharoah_provider.agent.fork_servers import cell_answer, fork_servers
from pharoah_provider.campaigns.executor_settings import ExecutorSettings
from pharoah_provider.campaigns.executors._cell_processes import check_result, node_without_context
from pharoah_provider.campaigns.executors._executor import Executor, ExecutorKind
from pharoah_provider.campaigns.works import Work, WorkResult
from pharoah_provider.domain import Node
from pharoah_provider.fleet import Fleet
from pharoah_serving.errors import NotReady

AWAY_SECONDS = 5.0
"""Its processes are always there; only a change of their number between two starts leaves a block behind."""


class LocalExecutor:
    """Gives each process one cell at a time. A process that has ended is started again for its next cell."""

    away_seconds = AWAY_SECONDS

    def __init__(self, processes: Mapping[str, EnvironmentChildren]) -> None:
        """`processes`: name to its fork servers, inside their scope."""
        self._processes = processes
        self._nodes = [node_without_context(name) for name in processes]
        self._gpu = asyncio.Lock()
        """For cells on a GPU, which all processes share: they would take memory and time from each other."""

    def nodes(self) -> list[Node]:
        return self._nodes

    async def do(self, node: Node, work: Work, order_id: str) -> WorkResult:  # noqa: ARG002
        assert work.cell is not None, "only nodes of the fleet have baselines"
        async with self._gpu if work.cell.ordered_device is DeviceKind.CUDA else nullcontext():
            return await check_result(node, work.cell, await cell_answer(self._processes[node.node], work.cell))

    def release(self, node: str, order_id: str) -> None:
        """Nothing is kept here."""


def profiles(settings: ExecutorSettings) -> list[NodeProfile]:
    """The profile of each process: the processors are dealt out among them, so that none takes time from another.

    Without a number of processes there is one for each `threads` processors. With more processes than processors they
    share all.
    """
    cpus = settings.profile.cpus or tuple(sorted(os.sched_getaffinity(0)))
    threads = settings.profile.threads or 1
    slots = settings.slots or max(1, len(cpus) // threads)
    own = [cpus[slot::slots] or cpus for slot in range(slots)]
    return [replace(settings.profile, cpus=each, threads=threads) for each in own]


@asynccontextmanager
async def _open(settings: ExecutorSettings, _: Fleet) -> AsyncIterator[Executor]:
    async with AsyncExitStack() as stack:
        processes = {
            f"local-{number}": await stack.enter_async_context(fork_servers(profile))
            for number, profile in enumerate(profiles(settings))
        }
        try:
            await read_json("pharoah_benchmarks.context", settings.profile)
        except ChildDied as error:
            raise NotReady(f"executor local: {error}; cells need torch on this machine") from None
        yield LocalExecutor(processes)


def _check(settings: ExecutorSettings) -> None:
    check_profile(settings.profile.to_dict())


LOCAL = ExecutorKind(
    name="local",
    help="processes on the provider's own machine, under a node profile",
    has_contexts=False,
    options=("slots", "profile"),
    remedy="see the provider's log for why its processes end",
    check=_check,
    open=_open,
)
