"""The Ray driver: the process in which Ray is loaded.

    python -m pharoah_provider.campaigns.ray_driver ADDRESS WORKERS PROFILE

It is a child of the provider, because Ray ends a process that has lost its cluster. Standard input and output carry
the messages of `ray_messages`. It keeps so many workers (0: one for each processor of the cluster) as actors that Ray
spreads over its nodes. A worker whose node has died is lost with the cell that it ran, and a new one is asked for;
Ray starts it as soon as a node has room.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import sys
from typing import Any

import ray
from ray.exceptions import RayError

from pharoah_protocol.node_profile import NodeProfile, check_profile
from pharoah_provider.agent.child_processes import MAX_LINE_BYTES
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
from pharoah_provider.campaigns.ray_worker import CellWorker
from pharoah_provider.owned_tasks import OwnedTasks
from pharoah_system.parent_process import end_with_parent
from pharoah_system.standard_streams import say

AGAIN_SECONDS = 1.0
"""Pause before a worker that was lost is replaced."""
GRACE_SECONDS = 15.0
"""Time for a result to come back from a worker, beyond the time that its cell has there."""


class _Driver:
    """Keeps workers in the cluster, and gives them cells."""

    def __init__(self, writer: asyncio.StreamWriter, profile: NodeProfile) -> None:
        self._writer, self._profile = writer, profile
        self._workers: dict[str, Any] = {}
        """Name to actor."""

    async def keep_worker(self) -> None:
        """Have one worker, and another one whenever it is lost."""
        threads = self._profile.threads or 1
        remote = ray.remote(CellWorker).options(num_cpus=threads, scheduling_strategy="SPREAD")
        while True:
            actor, name = remote.remote(json.dumps(self._profile.to_dict())), ""
            try:
                name = self._free_name(await actor.start.remote())
                self._workers[name] = actor
                self._send(Workers(list(self._workers)))
                await actor.stay.remote()
            except RayError as error:
                say(f"Ray worker {name or '(not started)'} is lost: {_first_line(error)}")
            if name:
                del self._workers[name]
                self._send(Workers(list(self._workers)))
            ray.kill(actor)  # it may only have been out of reach: its cell is run again elsewhere
            await asyncio.sleep(AGAIN_SECONDS)

    async def run(self, request: CellRequest) -> None:
        """Run one cell, and send what came of it."""
        actor = self._workers.get(request.worker)
        if actor is None:
            self._send(CellLost(request.request_id, f"{request.worker} is not there"))
            return
        try:
            async with asyncio.timeout(request.limit_seconds + GRACE_SECONDS):
                self._send(CellDone(request.request_id, await actor.run.remote(request.cell)))
        except (RayError, TimeoutError) as error:
            self._send(CellLost(request.request_id, f"{type(error).__name__}: {_first_line(error)}"))

    def _free_name(self, node_id: str) -> str:
        """The name of a worker: its Ray node, and its number there. It is the same after the driver was restarted."""
        names = (f"ray-{node_id[:12]}-{number}" for number in range(len(self._workers) + 1))
        return next(name for name in names if name not in self._workers)

    def _send(self, message: RayMessage) -> None:
        self._writer.write(to_line(message))


async def _serve(address: str, workers: int, profile: NodeProfile, ours: socket.socket) -> None:
    reader, writer = await asyncio.open_connection(sock=ours, limit=MAX_LINE_BYTES)
    try:
        ray.init(address=address, log_to_driver=False, logging_level="ERROR")
    except (ConnectionError, ValueError, RuntimeError, RayError) as error:
        writer.write(to_line(ClusterFailed(f"no Ray cluster at {address}: {_first_line(error)}")))
        await writer.drain()
        return
    driver = _Driver(writer, profile)
    wanted = workers or max(1, int(ray.cluster_resources().get("CPU", 1)) // (profile.threads or 1))
    async with OwnedTasks() as tasks:
        for _ in range(wanted):
            tasks.start(driver.keep_worker())
        while line := await reader.readline():
            message = from_line(line)
            if isinstance(message, CellRequest):
                tasks.start(driver.run(message))


def _first_line(error: BaseException) -> str:
    return str(error).strip().partition("\n")[0][:300]


def main() -> None:
    """Serve the provider until it closes the connection."""
    end_with_parent()
    ours = socket.socket(fileno=os.dup(0))
    os.dup2(2, 1)  # Ray prints to standard output, which carries messages
    address, workers, profile = sys.argv[1:]
    asyncio.run(_serve(address, int(workers), check_profile(json.loads(profile)), ours))


if __name__ == "__main__":
    main()
