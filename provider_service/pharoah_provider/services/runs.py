"""`pharoah.v1.Runs`."""

from __future__ import annotations

from collections.abc import AsyncIterator
from math import isfinite

from pharoah_archetypes import Fingerprint, FingerprintError
from pharoah_learning.evidence import OutcomeReport
from pharoah_learning.release import identity
from pharoah_protocol.pseudonyms import PSEUDONYM_BYTES, period_at
from pharoah_protocol.reports import LARGEST_LEVEL, ratio
from pharoah_protocol.v1 import (
    Alert,
    EndRunRequest,
    EndRunResponse,
    IncidentState,
    JoinRunRequest,
    JoinRunResponse,
    ReportRequest,
    ReportResponse,
    RevealRequest,
    RevealResponse,
    WatchAlertsRequest,
)
from pharoah_protocol.vocabulary import Attribution, EndState
from pharoah_provider.clock import Clock
from pharoah_provider.domain import Report, Run
from pharoah_provider.monitoring.intake import Intake
from pharoah_provider.monitoring.monitor import Monitor
from pharoah_provider.shielding import complete_despite_cancellation
from pharoah_provider.storage.base import Storage
from pharoah_provider.ticket_check import verified
from pharoah_serving import Context
from pharoah_serving.call_guard import caller
from pharoah_serving.errors import Invalid, NotReady, Refused, Unknown

LARGEST_BATCH = 4096
MOST_RANKS = 1024
LARGEST_FINGERPRINT = 1 << 18
ID_BYTES = 16
COUNTED_STATES = (EndState.OK, EndState.FAILED)
"""End states that say something about the job and its node."""
OLDEST_SECONDS = 86_400.0
LARGEST_NUMBER = 1 << 40
"""The largest number of a second: 2^40 seconds are thirty thousand years."""


class RunsServicer:
    """Decodes the calls of sidecars about their runs and encodes the answers."""

    def __init__(self, store: Storage, monitor: Monitor, intake: Intake, clock: Clock) -> None:
        self._nodes, self._runs, self._evidence = store.nodes, store.runs, store.evidence
        self._monitor, self._intake, self._clock = monitor, intake, clock

    async def JoinRun(self, request: JoinRunRequest, _: Context) -> JoinRunResponse:
        if len(request.run_id) != ID_BYTES:
            raise Invalid(f"run_id: {len(request.run_id)} bytes, expected {ID_BYTES}")
        if len(request.job_id) not in (0, ID_BYTES):
            raise Invalid(f"job_id: {len(request.job_id)} bytes, expected {ID_BYTES} or none")
        if not 1 <= request.ranks <= MOST_RANKS:
            raise Invalid(f"ranks: {request.ranks}, expected 1 to {MOST_RANKS} on one node")
        if not isfinite(request.consent.limit_seconds) or request.consent.limit_seconds < 0:
            raise Invalid("consent.limit_seconds: not a time")
        return await complete_despite_cancellation(self._join(request, caller().name))

    async def _join(self, request: JoinRunRequest, tenant: str) -> JoinRunResponse:
        ticket, node = await verified(self._nodes, request.ticket.body, request.ticket.signature)
        before = await self._runs.run(request.run_id)
        if (before and before.tenant != tenant) or not await self._runs.take_ticket(ticket.nonce, request.run_id):
            raise Refused("the node ticket is not valid")
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
        )
        await self._runs.put_run(run)
        self._monitor.watch(run)
        return JoinRunResponse(attempt=run.attempt, node_alias=_alias(run))

    async def Report(self, request: ReportRequest, _: Context) -> ReportResponse:
        run = await self._run(request.run_id)
        if request.attempt != run.attempt:
            raise Invalid(f"attempt: {request.attempt} is over; the run is at attempt {run.attempt}")
        reports = decode(request, run.ranks, self._clock.wall())
        if not self._monitor.watches(run):
            raise NotReady(f"attempt {run.attempt} of the run has ended; join again")
        await complete_despite_cancellation(self._intake.take(run, reports, request.dropped))
        return ReportResponse(measuring=self._monitor.measures(run.node))

    async def EndRun(self, request: EndRunRequest, _: Context) -> EndRunResponse:
        run = await self._run(request.run_id)
        state, attribution = _end_state(request.state), _attribution(request.attribution)
        counts = state in COUNTED_STATES and attribution is not Attribution.USER
        outcome = (
            await self._outcome_report(run, request, failed=state is EndState.FAILED)
            if request.pseudonym and counts
            else None
        )
        ended_before = await self._runs.end_state(run)
        await self._runs.end_run(run, state, self._clock.wall(), attribution)
        if outcome is not None and not ended_before:
            await self._evidence.put_outcome_report(outcome)
        self._monitor.unwatch(run.run_id)
        self._intake.forget(run.run_id)
        return EndRunResponse()

    async def Reveal(self, request: RevealRequest, _: Context) -> RevealResponse:
        run = await self._run(request.run_id)
        if not await self._runs.end_state(run):
            raise Invalid("run_id: the run goes on; only what has ended can be revealed")
        try:
            fingerprint = Fingerprint.from_json(request.fingerprint).to_json()
        except FingerprintError as error:
            raise Invalid(f"fingerprint: {error}") from None
        if len(request.fingerprint) > LARGEST_FINGERPRINT:
            raise Invalid(f"fingerprint: {len(request.fingerprint)} bytes, at most {LARGEST_FINGERPRINT}")
        node = await self._nodes.node(run.node)
        await self._evidence.put_revealed(run, node.context_id if node else "", fingerprint)
        return RevealResponse()

    async def _outcome_report(self, run: Run, request: EndRunRequest, *, failed: bool) -> OutcomeReport | None:
        """How a run ended, under the job's name. Raises Invalid."""
        if len(request.pseudonym) != PSEUDONYM_BYTES:
            raise Invalid(f"pseudonym: {len(request.pseudonym)} bytes, expected {PSEUDONYM_BYTES}")
        if abs(request.period - period_at(self._clock.wall())) > 1:
            raise Invalid(f"period: {request.period} is over, or has not begun")
        node, who = await self._nodes.node(run.node), caller().organisation
        return (
            OutcomeReport(run.run_id, request.period, request.pseudonym.hex(), who, node.context_id, failed)
            if node
            else None
        )

    async def WatchAlerts(self, request: WatchAlertsRequest, _: Context) -> AsyncIterator[Alert]:
        run = await self._run(request.run_id)
        async for change in self._monitor.alerts(run.run_id):
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
            )

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


def decode(request: ReportRequest, ranks: int, now: float) -> list[Report]:
    """A row per second and rank; `now` in unix seconds. Raises Invalid naming the field that does not fit."""
    size = len(request.step_levels)
    if len(request.memory_levels) != size:
        raise Invalid(f"memory_levels: {len(request.memory_levels)} values, step_levels has {size}")
    if request.first_second > LARGEST_NUMBER:
        raise Invalid(f"first_second: {request.first_second}, expected at most {LARGEST_NUMBER}")
    if size % ranks or not 0 < size <= LARGEST_BATCH:
        raise Invalid(
            f"step_levels: {size} values, expected up to {LARGEST_BATCH} and the same for each of {ranks} ranks"
        )
    for name in ("step_levels", "memory_levels"):
        if any(abs(level) > LARGEST_LEVEL for level in getattr(request, name)):
            raise Invalid(f"{name}: levels go from -{LARGEST_LEVEL} to {LARGEST_LEVEL}")
    if not isfinite(request.first_ended_at) or abs(request.first_ended_at - now) > OLDEST_SECONDS:
        raise Invalid("first_ended_at: not a time of the last day; is the clock right?")
    return [
        Report(
            request.first_second + at // ranks,
            at % ranks,
            request.first_ended_at + at // ranks,
            1.0,
            ratio(request.step_levels[at]),
            ratio(request.memory_levels[at]),
        )
        for at in range(size)
    ]
