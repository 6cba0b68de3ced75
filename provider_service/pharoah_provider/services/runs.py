"""`pharoah.v1.Runs`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager
from math import isfinite
from typing import overload
from weakref import WeakValueDictionary

from pharoah_learning.context_rule import identity
from pharoah_learning.evidence import OutcomeReport, end_counts
from pharoah_protocol.bounds import MAX_FINGERPRINT_BYTES
from pharoah_protocol.guest_probes import KEY_BYTES
from pharoah_protocol.node_ticket import LIFETIME_SECONDS
from pharoah_protocol.pseudonyms import PSEUDONYM_BYTES, period_at
from pharoah_protocol.reports import MAX_LEVEL, ratio
from pharoah_protocol.v1 import (
    Alert,
    AskValidationRequest,
    AskValidationResponse,
    EndRunRequest,
    EndRunResponse,
    IncidentState,
    JoinRunRequest,
    JoinRunResponse,
    ReportRequest,
    ReportResponse,
    RevealRequest,
    RevealResponse,
    RunOrder,
    SendProbeResultRequest,
    SendProbeResultResponse,
    WatchAlertsRequest,
    WatchOrdersRequest,
)
from pharoah_protocol.vocabulary import Attribution, EndState
from pharoah_provider import shared_votes
from pharoah_provider.contexts import Contexts
from pharoah_provider.domain import Node, Report, Run
from pharoah_provider.monitoring.incident_advice import advice
from pharoah_provider.monitoring.intake import Intake
from pharoah_provider.monitoring.monitor import Monitor
from pharoah_provider.monitoring.run_budgets import JoinBudgets
from pharoah_provider.services.guest_probes import GuestResults, run_order
from pharoah_provider.shielding import complete_despite_cancellation
from pharoah_provider.storage.base import Storage
from pharoah_provider.ticket_check import verify
from pharoah_serving.call_guard import caller
from pharoah_serving.clock import Clock
from pharoah_serving.context import Context
from pharoah_serving.errors import Invalid, NotReady, Refused, Unknown
from pharoah_serving.quotas import Quotas
from pharoah_serving.reading_processes import ReadingProcesses, Unreadable

MAX_BATCH = 4096
MAX_RANKS = 1024
ID_BYTES = 16
OLDEST_SECONDS = 86_400.0
SHORTEST_RENEWAL_SECONDS = 60.0
"""A node ticket that comes sooner after another one is not looked at."""
MAX_NUMBER = 1 << 40
"""The largest number of a second: 2^40 seconds are thirty thousand years."""


class RunsServicer:
    """Decodes the calls of sidecars about their runs and encodes the answers."""

    def __init__(
        self,
        store: Storage,
        monitor: Monitor,
        intake: Intake,
        joins: JoinBudgets,
        quotas: Quotas,
        clock: Clock,
        contexts: Contexts,
        reading: ReadingProcesses,
    ) -> None:
        self._nodes, self._runs, self._sharing = store.nodes, store.runs, store.sharing
        self._monitor, self._intake, self._joins, self._quotas = monitor, intake, joins, quotas
        self._clock, self._contexts, self._reading = clock, contexts, reading
        self._guest_results = GuestResults(store.runs, monitor.guests, quotas, clock)
        self._locks: WeakValueDictionary[bytes, asyncio.Lock] = WeakValueDictionary()
        """One change of a run at a time: it joins, or it ends."""

    async def JoinRun(self, request: JoinRunRequest, _: Context) -> JoinRunResponse:
        if len(request.run_id) != ID_BYTES:
            raise Invalid(f"run_id: {len(request.run_id)} bytes, expected {ID_BYTES}")
        if len(request.job_id) not in (0, ID_BYTES):
            raise Invalid(f"job_id: {len(request.job_id)} bytes, expected {ID_BYTES} or none")
        if not 1 <= request.ranks <= MAX_RANKS:
            raise Invalid(f"ranks: {request.ranks}, expected 1 to {MAX_RANKS} on one node")
        if not isfinite(request.consent.limit_seconds) or request.consent.limit_seconds < 0:
            raise Invalid("consent.limit_seconds: not a time")
        if len(request.consent.probe_key) not in (0, KEY_BYTES):
            raise Invalid(f"consent.probe_key: {len(request.consent.probe_key)} bytes, expected {KEY_BYTES} or none")
        return await complete_despite_cancellation(self._join(request, caller().name))

    async def _join(self, request: JoinRunRequest, tenant: str) -> JoinRunResponse:
        ticket, node = await verify(self._nodes, request.ticket.body, request.ticket.signature, self._clock)
        async with self._alone(request.run_id):
            before = await self._runs.run(request.run_id)
            if before and before.tenant != tenant:
                raise Refused("the node ticket is not valid")
            self._joins.take(tenant, node.node, request.run_id, request.ranks)
            if not await self._runs.take_ticket(ticket.nonce, request.run_id):
                raise Refused("the node ticket is not valid")
            return await self._join_run(request, tenant, node, before)

    async def _join_run(self, request: JoinRunRequest, tenant: str, node: Node, before: Run | None) -> JoinRunResponse:
        run = Run(
            run_id=request.run_id,
            tenant=tenant,
            node=node.node,
            attempt=before.attempt + 1 if before else 1,
            ranks=request.ranks,
            beside_job=request.consent.beside_job and request.consent.limit_seconds > 0,
            limit_seconds=request.consent.limit_seconds,
            job_id=request.job_id,
            joined_at=self._clock.wall(),
            probe_key=request.consent.probe_key if request.consent.beside_job else b"",
        )
        await self._runs.put_run(run)
        missed = await self._monitor.list_missed_since(before) if before and before.node == run.node else ()
        self._monitor.watch(run, missed)
        self._joins.add_run(run)
        return JoinRunResponse(attempt=run.attempt, node_alias=_alias(run))

    async def Report(self, request: ReportRequest, _: Context) -> ReportResponse:
        run = self._active(request.run_id) or await self._run(request.run_id)
        if request.attempt != run.attempt:
            raise NotReady(f"attempt: {request.attempt} is over; the run is at attempt {run.attempt}; join again")
        reports = decode(request, run.ranks, self._clock.wall())
        if not self._monitor.watches(run):
            raise NotReady(f"attempt {run.attempt} of the run has ended; join again")
        if request.HasField("ticket"):
            await complete_despite_cancellation(self._renew(run, request))
        if not self._monitor.runs.holds_node(run.run_id):
            raise NotReady("the node ticket is too old; is the agent of the node running?")
        await complete_despite_cancellation(self._intake.take(run, reports, request.dropped))
        return ReportResponse(measuring=self._monitor.measures(run.node))

    async def _renew(self, run: Run, request: ReportRequest) -> None:
        """The run shows that it is still on its node. A ticket counts from when it was issued, so an old one, or the
        same one again, keeps no run. Raises Refused for a ticket that is not one of this run."""
        if self._monitor.runs.ticket_seconds(run.run_id) < SHORTEST_RENEWAL_SECONDS:
            return  # nobody needs one so soon, and looking at it costs time
        ticket, node = await verify(self._nodes, request.ticket.body, request.ticket.signature, self._clock)
        if node.node != run.node or not await self._runs.take_ticket(ticket.nonce, run.run_id):
            raise Refused("the node ticket is not valid")
        self._monitor.runs.renew(run.run_id, ticket.expires_at - LIFETIME_SECONDS)

    async def EndRun(self, request: EndRunRequest, _: Context) -> EndRunResponse:
        run = await self._run(request.run_id)
        state, attribution = _end_state(request.state), _attribution(request.attribution)
        outcome = (
            await self._outcome_report(run, request, failed=state is EndState.FAILED)
            if request.pseudonym and end_counts(state, attribution)
            else None
        )
        await complete_despite_cancellation(self._end(run, state, attribution, outcome))
        return EndRunResponse()

    async def _end(self, run: Run, state: EndState, attribution: Attribution, outcome: OutcomeReport | None) -> None:
        """Store the end of a run together with what its tenant shares of it; sent again, it changes nothing.

        A run that the provider has declared lost gets the end state that its sidecar reports. Raises NotReady for an
        outcome that contradicts the end state that stands.
        """
        async with self._alone(run.run_id):
            stands = await self._runs.end_state(run)
            if outcome is not None and stands not in (None, EndState.LOST, state):
                raise NotReady(f"state: this attempt has ended as {stands}; it cannot be shared as {state}")
            await self._runs.end_run(run, state, self._clock.wall(), attribution, outcome)
            if self._monitor.watches(run):
                self._monitor.unwatch(run.run_id)
                self._intake.forget(run.run_id)
            self._monitor.runs.forget_lost(run.run_id)
            self._joins.end_run(run)

    async def AskValidation(self, request: AskValidationRequest, _: Context) -> AskValidationResponse:
        run = self._active(request.run_id) or await self._run(request.run_id)
        if not self._monitor.watches(run):
            raise NotReady("run_id: the run has ended")
        self._quotas.take_asked_validation(caller(), self._clock.wall())
        await complete_despite_cancellation(self._monitor.ask(run))
        return AskValidationResponse()

    async def Reveal(self, request: RevealRequest, _: Context) -> RevealResponse:
        run = await self._run(request.run_id)
        if not await self._runs.end_state(run):
            raise Invalid("run_id: the run goes on; only what has ended can be revealed")
        if len(request.fingerprint) > MAX_FINGERPRINT_BYTES:
            raise Invalid(f"fingerprint: {len(request.fingerprint)} bytes, at most {MAX_FINGERPRINT_BYTES}")
        self._quotas.take_reveal(caller(), self._clock.wall())  # it counts first, because reading it may take seconds
        try:
            (fingerprint,) = await self._reading.read("fingerprint", request.fingerprint.encode())
        except Unreadable as error:
            raise Invalid(f"fingerprint: {error}") from None
        node = await self._nodes.node(run.node)
        await self._sharing.put_revealed(run, self._contexts.find_name(node) if node else "", fingerprint.decode())
        return RevealResponse()

    async def _outcome_report(self, run: Run, request: EndRunRequest, *, failed: bool) -> OutcomeReport | None:
        """How a run ended, under the job's name; None when it is no vote. The name of a run is made when it begins, so
        that of a long run is no vote any more. Raises Invalid."""
        if len(request.pseudonym) != PSEUDONYM_BYTES:
            raise Invalid(f"pseudonym: {len(request.pseudonym)} bytes, expected {PSEUDONYM_BYTES}")
        current = period_at(self._clock.wall())
        if request.period > current + 1:
            raise Invalid(f"period: {request.period} has not begun")
        if request.period < current - 1:
            return None
        node, who, name = await self._nodes.node(run.node), caller().organisation, request.pseudonym.hex()
        now = self._clock.wall()
        if node is None or not await shared_votes.counts(self._sharing, run, who, request.period, name, now):
            return None
        return OutcomeReport(
            run.run_id, request.period, name, who, self._contexts.find_name(node), failed, node.server_facts
        )

    async def WatchAlerts(self, request: WatchAlertsRequest, _: Context) -> AsyncIterator[Alert]:
        run = await self._run(request.run_id)
        async for change in self._monitor.alerts(run.run_id):
            said = advice(change)
            yield Alert(
                alert_id=change.incident_id,
                state=IncidentState.ValueType(change.state.code),
                node_alias=_alias(run),
                fault_domain=change.fault_domain,
                what=change.what,
                evidence=change.evidence,
                since=change.since,
                at=change.changed_at,
                step_ratio=change.step_ratio,
                resource=change.resource or "",
                likely=said.likely,
                action=said.action,
            )

    async def WatchOrders(self, request: WatchOrdersRequest, _: Context) -> AsyncIterator[RunOrder]:
        run = self._active(request.run_id) or await self._run(request.run_id)
        if not self._monitor.watches(run):
            raise NotReady("run_id: the run has ended")
        if not run.probe_key:
            raise NotReady("run_id: the run has joined without consent.probe_key")
        async with aclosing(self._monitor.guests.orders(run)) as orders:
            async for order in orders:
                yield run_order(order)

    async def SendProbeResult(self, request: SendProbeResultRequest, _: Context) -> SendProbeResultResponse:
        await self._guest_results.take(request)
        return SendProbeResultResponse()

    def _active(self, run_id: bytes) -> Run | None:
        """A run of the caller that goes on; from memory, because every run reports once a second."""
        run = self._monitor.active(run_id)
        return run if run is not None and run.tenant == caller().name else None

    @asynccontextmanager
    async def _alone(self, run_id: bytes) -> AsyncIterator[None]:
        # Whoever waits for a lock holds a reference to it; the last one to leave lets it go.
        if (lock := self._locks.get(run_id)) is None:
            self._locks[run_id] = lock = asyncio.Lock()
        async with lock:
            yield

    async def _run(self, run_id: bytes) -> Run:
        run = await self._runs.run(run_id)
        if run is None or run.tenant != caller().name:
            raise Unknown("no such run")
        return run


def _alias(run: Run) -> str:
    """How the tenant may call the node: another name for every tenant."""
    return f"node-{identity([run.tenant, run.node])[:6]}"


def _end_state(code: int) -> EndState:
    """Raises Invalid for what no tenant may say."""
    try:
        state = EndState.from_code(code)
    except ValueError:
        raise Invalid(f"state: {code} is not an end state") from None
    if state is EndState.LOST:
        raise Invalid("state: the provider alone finds that a run is lost")
    return state


def _attribution(code: int) -> Attribution:
    """Raises Invalid for a code that this release does not know."""
    try:
        return Attribution.from_code(code)
    except ValueError:
        raise Invalid(f"attribution: {code} is not known") from None


class ReportBatch(Sequence[Report]):
    """The rows of a request, a row per second and rank. Each is made when it is read: a large request is worked on in
    parts, between which others have their turn."""

    def __init__(self, request: ReportRequest, ranks: int) -> None:
        self._first_second, self._first_ended_at = request.first_second, request.first_ended_at
        self._steps, self._memory, self._ranks = list(request.step_levels), list(request.memory_levels), ranks

    def __len__(self) -> int:
        return len(self._steps)

    @overload
    def __getitem__(self, at: int) -> Report: ...
    @overload
    def __getitem__(self, at: slice) -> list[Report]: ...
    def __getitem__(self, at: int | slice) -> Report | list[Report]:
        numbers = range(len(self))[at]
        return self._row(numbers) if isinstance(numbers, int) else [self._row(number) for number in numbers]

    def _row(self, number: int) -> Report:
        second, rank = divmod(number, self._ranks)
        return Report(
            self._first_second + second,
            rank,
            self._first_ended_at + second,
            1.0,
            ratio(self._steps[number]),
            ratio(self._memory[number]),
        )


def decode(request: ReportRequest, ranks: int, now: float) -> Sequence[Report]:
    """A row per second and rank; `now` in unix seconds. Raises Invalid naming the field that does not fit."""
    size = len(request.step_levels)
    if len(request.memory_levels) != size:
        raise Invalid(f"memory_levels: {len(request.memory_levels)} values, step_levels has {size}")
    if request.first_second > MAX_NUMBER:
        raise Invalid(f"first_second: {request.first_second}, expected at most {MAX_NUMBER}")
    if size % ranks or not 0 < size <= MAX_BATCH:
        raise Invalid(f"step_levels: {size} values, expected up to {MAX_BATCH} and the same for each of {ranks} ranks")
    for name in ("step_levels", "memory_levels"):
        levels = getattr(request, name)
        if max(levels) > MAX_LEVEL or min(levels) < -MAX_LEVEL:
            raise Invalid(f"{name}: levels go from -{MAX_LEVEL} to {MAX_LEVEL}")
    if not isfinite(request.first_ended_at) or abs(request.first_ended_at - now) > OLDEST_SECONDS:
        raise Invalid("first_ended_at: not a time of the last day; is the clock right?")
    return ReportBatch(request, ranks)
