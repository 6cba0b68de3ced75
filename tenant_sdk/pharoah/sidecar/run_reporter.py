"""A run while it runs: join, report, listen, end. The provider may vanish and come back at any time."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import deque
from collections.abc import Callable, Sequence
from math import inf
from random import Random
from typing import Any

import grpc.aio

from pharoah._alert import Alert
from pharoah._errors import UnknownReason
from pharoah._settings import Settings
from pharoah.end_causes import JudgedEnd
from pharoah.sidecar.agent_client import ask_node
from pharoah.sidecar.asked_validation import AskedValidation
from pharoah.sidecar.provider_connection import ProviderConnection, reason
from pharoah.sidecar.unreported_ends import UnreportedEnds
from pharoah_protocol.backoff import Backoff
from pharoah_protocol.incident_states import QUIET, IncidentState
from pharoah_protocol.pseudonyms import Pseudonym
from pharoah_protocol.random_delay import random_delay
from pharoah_protocol.reports import ReportedLevels
from pharoah_protocol.rpc import Stub
from pharoah_protocol.v1 import (
    AskValidationRequest,
    Consent,
    EndRunRequest,
    JoinRunRequest,
    NodeTicket,
    ReportRequest,
    RevealRequest,
    WatchAlertsRequest,
)
from pharoah_protocol.vocabulary import Resource
from pharoah_system.text import sanitize_text

log = logging.getLogger("pharoah.sidecar")

KEPT_SECONDS = 3600
"""How many seconds of reports are kept while the provider is away: an hour."""
MAX_BATCH_LEVELS = 1024
"""Levels in one report at most."""
REPORT_SECONDS, REPORT_OFFSET_SECONDS, MAX_DELAY_SECONDS = 1.0, 0.25, 0.5
"""A report leaves a quarter of a second after a second has ended, counted from when the run has joined, and after a
random delay: not at the end of a second, when its levels are collected, nor when a late question is prepared or sent.
"""
TIME_STEP_DIGITS = 1
"""Times in a report are multiples of 0.1 s: finer ones would show how busy this machine was when it took them."""
CLOCK_STEP_SECONDS = 0.5
"""From this difference on, between the wall clock and the seconds that were counted, the clock was set."""
RENEWAL_SECONDS, RENEWAL_RETRY_SECONDS = 480.0, 30.0
"""How often the run shows the provider a new node ticket, and when the agent is asked again that did not answer. The
provider wants one that is younger than 15 minutes, so an agent may be away for seven."""
FIRST_PAUSE_SECONDS, MAX_PAUSE_SECONDS = 2.0, 15.0
"""Pauses after a call that failed; a provider that restarts is away for seconds."""
MAX_EARLIER_AT_ONCE = 8
"""Ends of earlier runs that are sent between two reports of this run, so that these are not late."""
REMEMBERED_ALERTS = 1024
"""Alerts that were delivered; the provider sends those that still fire again after a reconnect."""
ALERTS_AT_ONCE, ALERT_SECONDS = 64, 1.0
"""The first alerts of a run are delivered as they come, later ones one per second: a provider must not fill this
machine's memory or its terminal."""
FINAL_ANSWERS = (
    grpc.StatusCode.NOT_FOUND,
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.FAILED_PRECONDITION,
)
"""Answers to the end of a run that stay the same however often it is sent."""
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
        probe_key: bytes = b"",
    ) -> None:
        """`random` draws the pauses after failed calls. `probe_key` signs what the sidecar measures itself; empty where
        it measures nothing."""
        self._provider = provider
        self._stub = Stub(provider.channel, "Runs")
        self._run_id, self._job_id = run_id, job_id
        self._random, self._probe_key = random, probe_key
        self._settings = settings
        self._deliver = deliver
        self._ranks, self._join_time = 1, time.monotonic()
        self._levels: Callable[[], Sequence[ReportedLevels]] = tuple
        self._seconds: deque[tuple[int, float, list[ReportedLevels]]] = deque()
        """Number, end and levels of seconds that were not acknowledged yet."""
        self._attempt, self._tried, self._was_joined = 0, False, False
        """`_tried`: the provider may know this run, because a request to join was sent and not refused."""
        self._ends = UnreportedEnds(settings)
        self._earlier_at = 0.0
        """When those of earlier runs are sent, steady seconds."""
        self._settled = {run_id}
        """Runs whose ends need not be sent as those of earlier ones."""
        self._renewed: NodeTicket | None = None
        """A new node ticket, for the next report."""
        self._tasks: list[asyncio.Task[None]] = []
        self._joining: asyncio.Task[Any] | None = None
        """The newest request to join. It is not cancelled with the rest: the provider must not see the end first."""
        self._seen: deque[tuple[str, str]] = deque(maxlen=REMEMBERED_ALERTS)
        self._heard = 0
        self._asked = AskedValidation()
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
        join_time: float | None = None,
    ) -> None:
        """`levels` gives the levels of each rank now; ranks that have not stepped yet may be missing.

        Nothing is sent before `join_time`, in monotonic seconds; without one, the run joins now.
        """
        self._ranks, self._levels = max(1, ranks), levels
        self._join_time = time.monotonic() if join_time is None else join_time
        work = (self._tick(tick_seconds), self._report(ticket), self._renew(), self._listen())
        self._tasks = [asyncio.create_task(part) for part in work]

    def ask_validation(self) -> None:
        """Ask the provider at the next round time to validate this node."""
        self._asked.wanted = True

    def second(self, number: int, ended_at: float) -> None:
        """Keep a second for the next report; the oldest go, counted, when the provider has been away for too long."""
        levels = [*self._levels()][: self._ranks]
        self._seconds.append((number, ended_at, levels + [ReportedLevels()] * (self._ranks - len(levels))))
        while len(self._seconds) > KEPT_SECONDS:
            self._seconds.popleft()
            self.dropped += 1

    async def _tick(self, seconds: float) -> None:
        """Once a second from the launch on, whatever the job does: when it steps must not show."""
        counted = _CountedSeconds(seconds)
        number = 0
        while True:
            await self._until(self._join_time + (number + 1) * seconds)
            self.second(number, counted.compute_end(number, time.time()))
            number += 1

    async def _until(self, at: float) -> None:
        """Wait until a time on the monotonic clock."""
        await asyncio.sleep(max(0.0, at - time.monotonic()))

    async def end(self, how: JudgedEnd, name: Pseudonym | None = None) -> None:
        """Send what is left and how the run ended, within the shutdown time; with the job's pseudonym, if shared."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if not self._tried:
            return  # the provider knows nothing of this run
        shared = name or Pseudonym(period=0, value=b"")
        end = EndRunRequest(
            run_id=self._run_id,
            state=how.state.code,  # type: ignore[arg-type]
            attribution=how.attribution.code,  # type: ignore[arg-type]
            period=shared.period,
            pseudonym=shared.value,
        )
        try:
            async with asyncio.timeout(0.9 * self._settings.shutdown_timeout_seconds):
                await self._ends.keep(end)  # this process may be killed before the provider answers
                if self._joining:
                    await asyncio.wait({self._joining})
                await self._send_rest()
                await self._send_end(end)
        except (TimeoutError, grpc.aio.AioRpcError) as error:
            log.info("the end of this run will be reported by the next run that joins: %s", error)
        finally:
            if self._joining:
                self._joining.cancel()
                await asyncio.gather(self._joining, return_exceptions=True)

    async def _send_rest(self) -> None:
        """The last seconds, if the provider takes them: the end of the run matters more."""
        try:
            while self._attempt and self._seconds:
                await self._send()
        except grpc.aio.AioRpcError as error:
            log.info("the last %d seconds could not be reported: %s", len(self._seconds), error)

    async def _send_end(self, end: EndRunRequest) -> None:
        """Report the end of this run or of an earlier one. Raises AioRpcError when it is worth another attempt."""
        try:
            await self._call("EndRun", end)
        except grpc.aio.AioRpcError as error:
            if error.code() not in FINAL_ANSWERS:
                raise
            log.info("the provider does not take the end of a run: %s", error.details())
            if error.code() is grpc.StatusCode.NOT_FOUND and end.run_id != self._run_id:
                return  # another tenant's, who is the same user of this machine
        await self._ends.forget(end)

    async def _send_earlier_ends(self) -> None:
        """Some of what earlier runs of this user could not report; others, and what fails, come a moment later."""
        waiting = [end for end in await self._ends.all() if end.run_id not in self._settled]
        self._earlier_at = inf if len(waiting) <= MAX_EARLIER_AT_ONCE else time.monotonic() + FIRST_PAUSE_SECONDS
        for end in waiting[:MAX_EARLIER_AT_ONCE]:
            try:
                if await self._ends.waits(end):
                    await self._send_end(end)
            except grpc.aio.AioRpcError as error:
                log.info("ends of earlier runs wait: %s", error.details())
                self._earlier_at = time.monotonic() + MAX_PAUSE_SECONDS
                return
            self._settled.add(end.run_id)

    async def _report(self, ticket: NodeTicket) -> None:
        await self._until(self._join_time)
        backoff = Backoff(FIRST_PAUSE_SECONDS, MAX_PAUSE_SECONDS, self._random)
        while True:
            try:
                if not self._attempt:
                    await self._join(ticket)
                while self._seconds:
                    await self._send()
                if not self.connected:
                    self._earlier_at = 0.0
                if time.monotonic() >= self._earlier_at:
                    await self._send_earlier_ends()
                await self._ask_if_due()
                self.connected = True
                backoff.reset()
                pause = self._until_report()
            except grpc.aio.AioRpcError as error:
                self.connected = self.measuring = False
                refused = error.code() in (grpc.StatusCode.PERMISSION_DENIED, grpc.StatusCode.UNAUTHENTICATED)
                if refused and not self._was_joined:
                    log.warning("this run is not monitored: %s", error.details())
                    self._tried = False
                    return
                if error.code() is grpc.StatusCode.NOT_FOUND:  # a provider with another database than before
                    self._attempt = 0
                if refused or error.code() is grpc.StatusCode.FAILED_PRECONDITION:
                    await self._show_ticket_or_join()
                pause = backoff.next_pause()
            except Exception:  # a run whose reports stop would count as lost
                log.exception("a report was not sent")
                pause = backoff.next_pause()
            await asyncio.sleep(pause)

    async def _ask_if_due(self) -> None:
        """Ask for a validation, if one is wanted and may be asked for now. Raises AioRpcError when the provider is
        away."""
        if not self._asked.due(time.monotonic(), self._join_time):
            return
        try:
            await self._call("AskValidation", AskValidationRequest(run_id=self._run_id))
        except grpc.aio.AioRpcError as error:
            if error.code() not in (*FINAL_ANSWERS, grpc.StatusCode.RESOURCE_EXHAUSTED):
                self._asked.wanted = True
                raise
            log.info("the provider does not validate this node: %s", error.details())

    async def _show_ticket_or_join(self) -> None:
        """A report was refused: the newest node ticket is too old, or the attempt has ended. The first is mended by a
        new ticket with the next report, the second, or a ticket that did not help, by joining again. No second of the
        reports is lost by either."""
        if self._renewed is not None:
            self._attempt, self._renewed = 0, None
        elif (ticket := await self._ask_for_ticket()) is not None:
            self._renewed = ticket
        else:
            self._attempt = 0

    async def _renew(self) -> None:
        """Every eight minutes a new node ticket, which shows that the run is still on its node."""
        await self._until(self._join_time + RENEWAL_SECONDS)
        while True:
            ticket = await self._ask_for_ticket()
            self._renewed = ticket or self._renewed
            await asyncio.sleep(RENEWAL_SECONDS if ticket else RENEWAL_RETRY_SECONDS)

    async def _ask_for_ticket(self) -> NodeTicket | None:
        """A new ticket of this node's agent; None while it does not answer."""
        try:
            settings = self._settings
            return (await ask_node(settings.node_socket, settings.timeout_seconds, settings.service_users)).ticket
        except UnknownReason as error:
            log.info("no new node ticket: %s", error)
            return None

    def _until_report(self) -> float:
        """Seconds until the next report."""
        earliest = REPORT_SECONDS - (time.monotonic() - self._join_time - REPORT_OFFSET_SECONDS) % REPORT_SECONDS
        return earliest + random_delay(MAX_DELAY_SECONDS)

    async def _join(self, ticket: NodeTicket) -> None:
        """With the ticket of the launch; on a later attempt, when that may have expired, with a new one."""
        if self._tried:
            ticket = await self._ask_for_ticket() or ticket
        self._tried = True
        consent = Consent(
            beside_job=self._settings.allow_beside_job,
            limit_seconds=self._settings.probe_limit_seconds,
            probe_key=self._probe_key,
        )
        request = JoinRunRequest(
            run_id=self._run_id, ticket=ticket, ranks=self._ranks, consent=consent, job_id=self._job_id
        )
        self._joining = asyncio.create_task(self._call("JoinRun", request))
        answer = await asyncio.shield(self._joining)
        self._attempt, self.alias = answer.attempt, sanitize_text(answer.node_alias, 64)
        self._was_joined, self._renewed = True, None

    async def _send(self) -> None:
        batch = list(self._seconds)[: max(1, MAX_BATCH_LEVELS // self._ranks)]
        request = ReportRequest(
            run_id=self._run_id,
            attempt=self._attempt,
            first_second=batch[0][0],
            first_ended_at=round(batch[0][1], TIME_STEP_DIGITS),
            step_levels=[level.step for _, _, levels in batch for level in levels],
            memory_levels=[level.memory for _, _, levels in batch for level in levels],
            dropped=self.dropped,
            ticket=(ticket := self._renewed),
        )
        last = batch[-1][0]
        try:
            self.measuring = (await self._call("Report", request)).measuring
        except grpc.aio.AioRpcError as error:
            if error.code() is not grpc.StatusCode.INVALID_ARGUMENT:
                raise
            # It would not be taken later either, such as seconds from before a clock was corrected.
            log.warning("the provider does not take %d seconds of reports: %s", len(batch), error.details())
            self.dropped += len(batch)
        else:
            if self._renewed is ticket:
                self._renewed = None
        while self._seconds and self._seconds[0][0] <= last:  # some may have been dropped meanwhile
            self._seconds.popleft()

    async def _listen(self) -> None:
        await self._until(self._join_time + REPORT_SECONDS)
        # All streams of a provider end in the same moment when it restarts: drawn pauses spread their return.
        backoff = Backoff(FIRST_PAUSE_SECONDS, MAX_PAUSE_SECONDS, self._random)
        while True:
            with contextlib.suppress(grpc.aio.AioRpcError):
                call = self._stub.WatchAlerts(WatchAlertsRequest(run_id=self._run_id), metadata=self._provider.metadata)
                async for message in call:
                    backoff.reset()
                    self._receive(message)
                    self._heard += 1
                    if self._heard > ALERTS_AT_ONCE:
                        await asyncio.sleep(ALERT_SECONDS)
            await asyncio.sleep(backoff.next_pause())

    def _receive(self, message: Any) -> None:
        try:
            state = IncidentState.from_code(message.state)
        except ValueError:
            state = QUIET
        numbers = (message.since, message.at, message.step_ratio)
        if not state.is_reported or not all(0 <= number < LATEST_UNIX_SECONDS for number in numbers):
            log.warning("an alert with an unknown state or an impossible number was dropped")
            return
        names = ("alert_id", "node_alias", "fault_domain", "what", "evidence", "likely", "action")
        texts: dict[str, Any] = {name: sanitize_text(getattr(message, name)) for name in names}
        if (texts["alert_id"], state) in self._seen:
            return  # sent again after a reconnect
        self._seen.append((texts["alert_id"], state))
        resource = Resource(message.resource) if message.resource in tuple(Resource) else None  # of a newer release
        self._deliver(
            Alert(
                state=state,
                since=message.since,
                at=message.at,
                step_ratio=message.step_ratio,
                resource=resource,
                **texts,
            )
        )

    async def _call(self, method: str, request: Any) -> Any:
        return await self._provider.call(getattr(self._stub, method), request)


class _CountedSeconds:
    """When the seconds of a run ended: counted from the first one, so that the times show no delay of this process."""

    def __init__(self, length_seconds: float) -> None:
        self._length = length_seconds
        self._first: float | None = None

    def compute_end(self, number: int, now: float) -> float:
        """The end of a second, in unix seconds. `now` is the wall clock, which may be set while the run goes on."""
        counted = number * self._length
        if self._first is None or abs(self._first + counted - now) > CLOCK_STEP_SECONDS:
            self._first = round(now, TIME_STEP_DIGITS) - counted
        return self._first + counted


async def reveal(settings: Settings, run_id: bytes, fingerprint: str) -> None:
    """Send the provider the fingerprint of a run. Raises UnknownReason."""
    provider = ProviderConnection(settings)
    try:
        await provider.call(
            Stub(provider.channel, "Runs").Reveal, RevealRequest(run_id=run_id, fingerprint=fingerprint)
        )
    except grpc.aio.AioRpcError as error:
        raise UnknownReason(reason(error)) from None
    finally:
        await provider.channel.close(None)
