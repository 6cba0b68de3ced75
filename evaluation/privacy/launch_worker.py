"""A sidecar that launches job after job: `python -m evaluation.privacy.launch_worker`, for the games about times.

It reads one order per line (JSON, the fields of `Order`) and answers each with one line: when the node was asked for a
ticket, and how long the work before each message took. The check, the run and the connection are those of the shipped
sidecar; each launch has its own.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any

from evaluation.privacy.exchange_site import ticket
from evaluation.privacy.watching_provider import LAUNCH
from pharoah._settings import Settings
from pharoah.sidecar import verdict_client
from pharoah.sidecar.agent_client import NodeAnswer
from pharoah.sidecar.exchange_client import ExchangeClient
from pharoah.sidecar.message_times import MessageTimes
from pharoah.sidecar.provider_connection import ProviderConnection
from pharoah.sidecar.sidecar import Sidecar
from pharoah_protocol.rank_messages import Capture, Check, Launch
from pharoah_protocol.received_profile import ReceivedProfile
from pharoah_protocol.voprf import group, libsodium, pure_python

GIVEN_UP_SECONDS = 30.0
"""A launch takes four seconds at most; one that takes longer is an error."""
POLL_SECONDS = 0.02


class Course(Enum):
    """How far a launch goes."""

    CHECKED = "checked"
    """`pharoah check`: the question, then the decision not to take the node."""
    JOINED = "joined"
    """`pharoah run`: the question, the decision, and the run joins."""
    LATE = "late"
    """A job that could not be dry-run: it joins, a step is captured, and it is asked about then."""


@dataclass(frozen=True)
class Order:
    """One launch."""

    launch: str
    settings: dict[str, Any]
    fingerprint: str
    course: Course = Course.CHECKED
    sodium: bool = True
    warm: bool = True
    """Whether the tables are in memory; else they are read from the disk and checked again."""
    busy_seconds: float = 0.0
    """How long the command is busy between the verdict and the launch, or the job before its captured step."""
    planted_seconds: float | None = None
    """For the control: messages leave as soon as they are ready, and the question after so much more work."""


@dataclass
class Report:
    """What the worker knows of a launch that the provider does not."""

    launch: str
    tickets: list[float] = field(default_factory=list)
    """Monotonic seconds: the node's agent belongs to the provider."""
    work_seconds: list[float] = field(default_factory=list)
    """From an answer until the next message of a question is ready."""


class _LaunchConnection(ProviderConnection):
    """A connection whose calls name their launch."""

    def __init__(self, settings: Settings, launch: str) -> None:
        super().__init__(settings)
        self._launch = launch

    @property
    def metadata(self) -> Sequence[Any]:
        return (*super().metadata, (LAUNCH, self._launch))


class Worker:
    """Launches one job at a time; keeps tables in memory from launch to launch, by provider."""

    def __init__(self) -> None:
        self._tables: dict[str, dict[Any, Any]] = {}

    async def launch(self, order: Order) -> Report:
        """One launch, from the check to the end of the run. Raises TimeoutError."""
        report = Report(order.launch)

        async def node(*_: Any) -> NodeAnswer:
            report.tickets.append(time.monotonic())
            return NodeAnswer(ticket(), ReceivedProfile())

        vars(verdict_client)["ask_node"] = node
        with group.using(libsodium if order.sodium else pure_python):
            async with asyncio.timeout(GIVEN_UP_SECONDS):
                sidecar = Sidecar(Path("unused.sock"), Settings(**order.settings), os.urandom(16))
                self._prepare(sidecar, order, report)
                await _run(sidecar, order)
        return report

    def _prepare(self, sidecar: Sidecar, order: Order, report: Report) -> None:
        settings, client = Settings(**order.settings), sidecar._job.client
        client.provider = _LaunchConnection(settings, order.launch)
        client._exchange = ExchangeClient(client.provider, settings, client.times)
        if order.warm:
            client._exchange._tables._held = self._tables.setdefault(settings.endpoint, {})
        if order.planted_seconds is not None:
            _plant(client._exchange, client.times, order.planted_seconds)
        else:
            _note_work(client.times, report)


async def _run(sidecar: Sidecar, order: Order) -> None:
    nobody: Any = None
    late = order.course is Course.LATE
    await sidecar._check(Check(pending="no dry run") if late else Check(fingerprint=order.fingerprint), nobody)
    if order.course is not Course.CHECKED:
        await asyncio.sleep(0.0 if late else order.busy_seconds)
        await sidecar._launch(Launch(1), nobody)
    if late:
        await asyncio.sleep(order.busy_seconds)
        await sidecar._capture(Capture(0, order.fingerprint), nobody)
        while sidecar._job.client._deciding is None:
            await asyncio.sleep(POLL_SECONDS)
    elif order.course is Course.JOINED:
        while not (sidecar._run.reporter and sidecar._run.reporter.connected):
            await asyncio.sleep(POLL_SECONDS)
    await sidecar._end_run()


def _note_work(times: MessageTimes, report: Report) -> None:
    honest = times.next_time

    def noted(every_seconds: float) -> float:
        if times._last_seen is not None and every_seconds < 0.5:
            report.work_seconds.append(times._clock() - times._last_seen)
        return honest(every_seconds)

    times.next_time = noted  # type: ignore[method-assign]


def _plant(exchange: ExchangeClient, times: MessageTimes, seconds: float) -> None:
    """The leak that the games must find: no schedule, and work before the question that depends on the job."""
    honest = exchange._send

    async def at_once(every_seconds: float = 0.0) -> None:
        await asyncio.sleep(every_seconds)

    async def slower(method: str, request: Any) -> Any:
        until = time.monotonic() + (seconds if method == "Evaluate" else 0.0)
        while time.monotonic() < until:
            pass
        return await honest(method, request)

    times.turn = at_once  # type: ignore[method-assign]
    exchange._send = slower  # type: ignore[method-assign]


async def main() -> None:
    """Serve orders until standard input ends."""
    worker = Worker()
    while line := await asyncio.to_thread(sys.stdin.readline):
        data = json.loads(line)
        report = await worker.launch(Order(**{**data, "course": Course(data["course"])}))
        print(json.dumps(asdict(report)), flush=True)


if __name__ == "__main__":
    asyncio.run(main())
