"""A run while it runs: join, report, listen, end. The provider may vanish and come back at any time."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import deque
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

import grpc.aio

from pharoah._alert import Alert
from pharoah._errors import UnknownReason
from pharoah._settings import Settings
from pharoah.sidecar.agent_client import ask_node
from pharoah.sidecar.provider_connection import ProviderConnection, reason
from pharoah_protocol.backoff import Backoff
from pharoah_protocol.incident_states import QUIET, IncidentState
from pharoah_protocol.pseudonyms import Pseudonym
from pharoah_protocol.reports import ReportedLevels
from pharoah_protocol.rpc import Stub
from pharoah_protocol.text import sanitize_text
from pharoah_protocol.v1 import (
    Consent,
    EndRunRequest,
    JoinRunRequest,
    NodeTicket,
    ReportRequest,
    RevealRequest,
    WatchAlertsRequest,
)
from pharoah_protocol.vocabulary import EndState

log = logging.getLogger("pharoah.sidecar")

KEPT_SECONDS = 3600
"""How many seconds of reports are kept while the provider is away: an hour."""
LARGEST_BATCH_LEVELS = 1024
"""Levels in one report at most."""
REPORT_SECONDS = 1.0
FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 2.0, 15.0
"""Pauses after a call that failed; a provider that restarts is away for seconds."""
REMEMBERED_ALERTS = 1024
"""Alerts that were delivered; the provider sends those that still fire again after a reconnect."""
ALERTS_AT_ONCE, ALERT_SECONDS = 64, 1.0
"""The first alerts of a run are delivered as they come, later ones one per second: a provider must not fill this
machine's memory or its terminal."""
LATEST_UNIX_SECONDS = 1 << 33
"""The year 2242. A later time is an error, and would not fit into a date."""


class RunReporter:
    """Reports one run to the provider and delivers its alerts. Owns three tasks between `start` and `end`."""

    def __init__(
        self,
        provider: ProviderConnection,
        run_id: bytes,
        job_id: bytes,
        settings: Settings,
        deliver: Callable[[Alert], None],
        random: Random | None = None,
    ) -> None:
        """`random` draws the pauses after failed calls."""
        self._provider = provider
        self._stub = Stub(provider.channel, "Runs")
        self._run_id, self._job_id = run_id, job_id
        self._random = random
        self._settings = settings
        self._deliver = deliver
        self._ranks, self._after = 1, 0.0
        self._levels: Callable[[], Sequence[ReportedLevels]] = tuple
        self._seconds: deque[tuple[int, float, list[ReportedLevels]]] = deque()
        """Number, end and levels of seconds that were not acknowledged yet."""
        self._attempt, self._tried = 0, False
        self._tasks: list[asyncio.Task[None]] = []
        self._seen: deque[tuple[str, str]] = deque(maxlen=REMEMBERED_ALERTS)
        self._heard = 0
        self.dropped = 0
        self.alias = ""
        self.connected = False
        self.measuring = False
        """Whether the provider runs micro-benchmarks beside the job, so that step times do not describe the node."""

    def start(
        self,
        ticket: NodeTicket,
        ranks: int,
        levels: Callable[[], Sequence[ReportedLevels]],
        tick_seconds: float = 1.0,
        after_seconds: float = 0.0,
    ) -> None:
        """`levels` gives the levels of each rank now; ranks that have not stepped yet may be missing.

        Nothing is sent for `after_seconds`.
        """
        self._ranks, self._levels = max(1, ranks), levels
        self._after = after_seconds
        work = (self._tick(tick_seconds), self._report(ticket), self._listen())
        self._tasks = [asyncio.create_task(part) for part in work]

    def second(self, number: int, ended_at: float) -> None:
        """Keep a second for the next report; the oldest go, counted, when the provider has been away for too long."""
        levels = [*self._levels()][: self._ranks]
        self._seconds.append((number, ended_at, levels + [ReportedLevels()] * (self._ranks - len(levels))))
        while len(self._seconds) > KEPT_SECONDS:
            self._seconds.popleft()
            self.dropped += 1

    async def _tick(self, seconds: float) -> None:
        """Once a second from the launch on, whatever the job does: when it steps must not show."""
        await asyncio.sleep(self._after)
        began, number = asyncio.get_running_loop().time(), 0
        while True:
            await asyncio.sleep(max(0.0, began + (number + 1) * seconds - asyncio.get_running_loop().time()))
            self.second(number, time.time())
            number += 1

    async def end(self, state: EndState, name: Pseudonym | None = None) -> None:
        """Send what is left and the end state, within the shutdown time; with the job's pseudonym, if shared."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        try:
            async with asyncio.timeout(0.9 * self._settings.shutdown_timeout_seconds):
                if self._attempt:
                    while self._seconds:
                        await self._send()
                    shared = name or Pseudonym(period=0, value=b"")
                    await self._call(
                        "EndRun",
                        EndRunRequest(
                            run_id=self._run_id,
                            state=state.code,  # type: ignore[arg-type]
                            period=shared.period,
                            pseudonym=shared.value,
                        ),
                    )
        except (TimeoutError, grpc.aio.AioRpcError) as error:
            log.info("the end of the run could not be reported: %s", error)

    async def _report(self, ticket: NodeTicket) -> None:
        await asyncio.sleep(self._after)
        backoff = Backoff(FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS, self._random)
        while True:
            pause = REPORT_SECONDS
            try:
                if not self._attempt:
                    await self._join(ticket)
                while self._seconds:
                    await self._send()
                self.connected = True
                backoff.reset()
            except grpc.aio.AioRpcError as error:
                self.connected = self.measuring = False
                if error.code() in (grpc.StatusCode.PERMISSION_DENIED, grpc.StatusCode.UNAUTHENTICATED):
                    log.warning("this run is not monitored: %s", error.details())
                    return
                if error.code() is grpc.StatusCode.FAILED_PRECONDITION:
                    self._attempt = 0  # the provider has recorded the run as lost: the next attempt joins again
                pause = backoff.next_pause()
            await asyncio.sleep(pause)

    async def _join(self, ticket: NodeTicket) -> None:
        """With the ticket of the launch; on a later attempt, when that may have expired, with a new one."""
        if self._tried:
            with contextlib.suppress(UnknownReason):
                ticket = (await ask_node(self._settings.node_socket, self._settings.timeout_seconds)).ticket
        self._tried = True
        consent = Consent(beside_job=self._settings.allow_beside_job, limit_seconds=self._settings.probe_limit_seconds)
        request = JoinRunRequest(
            run_id=self._run_id, ticket=ticket, ranks=self._ranks, consent=consent, job_id=self._job_id
        )
        answer = await self._call("JoinRun", request)
        self._attempt, self.alias = answer.attempt, sanitize_text(answer.node_alias, 64)

    async def _send(self) -> None:
        batch = list(self._seconds)[: max(1, LARGEST_BATCH_LEVELS // self._ranks)]
        request = ReportRequest(
            run_id=self._run_id,
            attempt=self._attempt,
            first_second=batch[0][0],
            first_ended_at=batch[0][1],
            step_levels=[level.step for _, _, levels in batch for level in levels],
            memory_levels=[level.memory for _, _, levels in batch for level in levels],
            dropped=self.dropped,
        )
        last = batch[-1][0]
        self.measuring = (await self._call("Report", request)).measuring
        while self._seconds and self._seconds[0][0] <= last:  # some may have been dropped meanwhile
            self._seconds.popleft()

    async def _listen(self) -> None:
        await asyncio.sleep(self._after + REPORT_SECONDS)
        # All streams of a provider end in the same moment when it restarts: drawn pauses spread their return.
        backoff = Backoff(FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS, self._random)
        while True:
            with contextlib.suppress(grpc.aio.AioRpcError):
                call = self._stub.WatchAlerts(WatchAlertsRequest(run_id=self._run_id), metadata=self._provider.metadata)
                async for message in call:
                    backoff.reset()
                    self._received(message)
                    self._heard += 1
                    if self._heard > ALERTS_AT_ONCE:
                        await asyncio.sleep(ALERT_SECONDS)
            await asyncio.sleep(backoff.next_pause())

    def _received(self, message: Any) -> None:
        try:
            state = IncidentState.from_code(message.state)
        except ValueError:
            state = QUIET
        numbers = (message.since, message.at, message.step_ratio)
        if not state.is_reported or not all(0 <= number < LATEST_UNIX_SECONDS for number in numbers):
            log.warning("an alert with an unknown state or an impossible number was dropped")
            return
        names = ("alert_id", "node_alias", "fault_domain", "what", "evidence")
        texts = {name: sanitize_text(getattr(message, name)) for name in names}
        if (texts["alert_id"], state) in self._seen:
            return  # sent again after a reconnect
        self._seen.append((texts["alert_id"], state))
        self._deliver(Alert(state=state, since=message.since, at=message.at, step_ratio=message.step_ratio, **texts))

    async def _call(self, method: str, request: Any) -> Any:
        return await getattr(self._stub, method)(
            request, timeout=self._provider.timeout, metadata=self._provider.metadata
        )


async def reveal(settings: Settings, run_id: bytes, fingerprint: str) -> None:
    """Send the provider the fingerprint of a run. Raises UnknownReason."""
    provider = ProviderConnection(settings)
    try:
        call = Stub(provider.channel, "Runs").Reveal
        request = RevealRequest(run_id=run_id, fingerprint=fingerprint)
        await call(request, timeout=provider.timeout, metadata=provider.metadata)
    except grpc.aio.AioRpcError as error:
        raise UnknownReason(reason(error)) from None
    finally:
        await provider.channel.close(None)
