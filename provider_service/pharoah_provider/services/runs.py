"""`pharoah.v1.Runs`."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from math import isfinite

from pharoah_archetypes import Fingerprint, FingerprintError
from pharoah_learning.evidence import OutcomeReport
from pharoah_learning.release import identity
from pharoah_protocol.pseudonyms import PSEUDONYM_BYTES, period_at
from pharoah_protocol.reports import LARGEST_LEVEL, ratio
from pharoah_protocol.v1 import (
    Alert,
    AlertState,
    EndRunRequest,
    EndRunResponse,
    EndState,
    JoinRunRequest,
    JoinRunResponse,
    ReportRequest,
    ReportResponse,
    RevealRequest,
    RevealResponse,
    WatchAlertsRequest,
)
from pharoah_provider.domain import Report, Run
from pharoah_provider.monitoring.monitor import Monitor
from pharoah_provider.shielding import complete_despite_cancellation
from pharoah_provider.storage.base import Storage
from pharoah_provider.ticket_check import verified
from pharoah_serving import Context
from pharoah_serving.call_guard import caller
from pharoah_serving.errors import Exhausted, Invalid, Refused, Unknown

LARGEST_BATCH = 4096
MOST_RANKS = 1024
LARGEST_FINGERPRINT = 1 << 18
COUNTED = ("ok", "failed")
"""End states that say something about the job and its node."""
OLDEST_SECONDS = 86_400.0
Rows = list[Report]
LARGEST_NUMBER = 1 << 40
"""Of a second: a run of thirty thousand years."""
AT_ONCE = 128
"""Rows that are scored in one go; others get their turn in between."""
CAUGHT_UP_SECONDS, REPORTED_RATIO = 2 * 3600.0, 1.1
"""A run may report as many seconds as a sidecar keeps, and then hardly more than pass."""


class RunsServicer:
    def __init__(self, store: Storage, monitor: Monitor) -> None:
        self._store, self._monitor = store, monitor
        self._taking: dict[bytes, asyncio.Lock] = {}
        self._allowed: dict[bytes, tuple[float, float]] = {}
        """By run: how many seconds it might report, and when that was."""

    async def JoinRun(self, request: JoinRunRequest, _: Context) -> JoinRunResponse:
        if len(request.run_id) != 16:
            raise Invalid(f"run_id: {len(request.run_id)} bytes, expected 16")
        if not 1 <= request.ranks <= MOST_RANKS:
            raise Invalid(f"ranks: {request.ranks}, expected 1 to {MOST_RANKS} on one node")
        if not isfinite(request.consent.limit_seconds) or request.consent.limit_seconds < 0:
            raise Invalid("consent.limit_seconds: not a time")
        return await complete_despite_cancellation(self._join(request, caller().name))

    async def _join(self, request: JoinRunRequest, tenant: str) -> JoinRunResponse:
        ticket, node = await verified(self._store.nodes, request.ticket.body, request.ticket.signature)
        before = await self._store.runs.run(request.run_id)
        if (before and before.tenant != tenant) or not await self._store.runs.take_ticket(ticket.nonce, request.run_id):
            raise Refused("the node ticket is not valid")
        run = Run(
            request.run_id,
            tenant,
            node.node,
            before.attempt + 1 if before else 1,
            request.ranks,
            request.consent.beside_job and request.consent.limit_seconds > 0,
            request.consent.limit_seconds,
        )
        await self._store.runs.put_run(run)
        self._monitor.watch(run)
        return JoinRunResponse(attempt=run.attempt, node_alias=f"node-{identity([tenant, node.node])[:6]}")

    async def Report(self, request: ReportRequest, _: Context) -> ReportResponse:
        run = await self._run(request.run_id)
        if request.attempt != run.attempt:
            raise Invalid(f"attempt: {request.attempt} is over; the run is at attempt {run.attempt}")
        reports = _decode(request, run.ranks)
        await complete_despite_cancellation(self._take(run, reports))
        return ReportResponse(measuring=self._monitor.measures(run.node))

    def _allow(self, run_id: bytes, seconds: float) -> None:
        """Raises Exhausted for a run that reports more seconds than pass."""
        now = time.monotonic()
        left, at = self._allowed.get(run_id, (CAUGHT_UP_SECONDS, now))
        left = min(CAUGHT_UP_SECONDS, left + REPORTED_RATIO * (now - at))
        if seconds > left:
            raise Exhausted(f"a run has {REPORTED_RATIO} seconds to report in a second")
        self._allowed[run_id] = left - seconds, now

    async def _take(self, run: Run, reports: Rows) -> None:
        """Keep rows that are new, and let the monitor act on what is kept. Raises Exhausted."""
        async with self._taking.setdefault(run.run_id, asyncio.Lock()):
            last = await self._store.runs.last_row_number(run.run_id, run.attempt)
            fresh = [report for report in reports if report.row_number > last]
            self._allow(run.run_id, len(fresh) / run.ranks)  # what is told again costs nothing
            for at in range(0, len(fresh), step := AT_ONCE // run.ranks * run.ranks or run.ranks):
                part = fresh[at : at + step]
                masked, risks = self._monitor.score(run, part)
                await self._store.runs.append_reports(run, part, masked, risks)
                await self._monitor.react(run, part, masked, risks)

    async def EndRun(self, request: EndRunRequest, _: Context) -> EndRunResponse:
        run = await self._run(request.run_id)
        if request.state not in EndState.values() or not request.state:
            raise Invalid(f"state: {request.state} is not an end state")
        state = EndState.Name(request.state).removeprefix("END_STATE_").lower()
        vote = (
            await self._vote(run, request, failed=state == "failed") if request.pseudonym and state in COUNTED else None
        )
        ended_before = await self._store.runs.end_state(run.run_id)
        await self._store.runs.end_run(run.run_id, state)
        if vote is not None and not ended_before:
            await self._store.evidence.put_vote(vote)
        await self._monitor.unwatch(run.run_id)
        self._taking.pop(run.run_id, None)
        self._allowed.pop(run.run_id, None)
        return EndRunResponse()

    async def Reveal(self, request: RevealRequest, _: Context) -> RevealResponse:
        run = await self._run(request.run_id)
        if not await self._store.runs.end_state(run.run_id):
            raise Invalid("run_id: the run goes on; only what has ended can be revealed")
        try:
            told = Fingerprint.from_json(request.fingerprint).to_json()
        except FingerprintError as error:
            raise Invalid(f"fingerprint: {error}") from None
        if len(request.fingerprint) > LARGEST_FINGERPRINT:
            raise Invalid(f"fingerprint: {len(request.fingerprint)} bytes, at most {LARGEST_FINGERPRINT}")
        node = await self._store.nodes.node(run.node)
        await self._store.evidence.put_revealed(run, node.context_id if node else "", told)
        return RevealResponse()

    async def _vote(self, run: Run, request: EndRunRequest, *, failed: bool) -> OutcomeReport | None:
        """How a run ended, under the job's name. Raises Invalid."""
        if len(request.pseudonym) != PSEUDONYM_BYTES:
            raise Invalid(f"pseudonym: {len(request.pseudonym)} bytes, expected {PSEUDONYM_BYTES}")
        if abs(request.period - period_at(time.time())) > 1:
            raise Invalid(f"period: {request.period} is over, or has not begun")
        node, who = await self._store.nodes.node(run.node), caller().organisation
        return (
            OutcomeReport(run.run_id, request.period, request.pseudonym.hex(), who, node.context_id, failed)
            if node
            else None
        )

    async def WatchAlerts(self, request: WatchAlertsRequest, _: Context) -> AsyncIterator[Alert]:
        run = await self._run(request.run_id)
        alias = f"node-{identity([run.tenant, run.node])[:6]}"
        async for alert in self._monitor.alerts(run.run_id):
            yield Alert(
                alert_id=alert["alert_id"],
                state=AlertState.Value(f"ALERT_STATE_{alert['state'].upper()}"),
                node_alias=alias,
                fault_domain=alert["fault_domain"],
                what=alert["what"],
                evidence=alert["evidence"],
                since=alert["since"],
                at=alert["changed_at"],
                step_ratio=alert["step_ratio"],
            )

    async def _run(self, run_id: bytes) -> Run:
        run = await self._store.runs.run(run_id)
        if run is None or run.tenant != caller().name:
            raise Unknown("no such run")
        return run


def _decode(request: ReportRequest, ranks: int) -> list[Report]:
    """A row per second and rank. Raises Invalid naming the field that does not fit."""
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
    if not isfinite(request.first_ended_at) or abs(request.first_ended_at - time.time()) > OLDEST_SECONDS:
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
