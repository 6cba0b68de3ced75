"""`pharoah.v1.Runs`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from math import isfinite

from pharoah.proto.v1 import (
    Alert,
    AlertState,
    EndRunRequest,
    EndRunResponse,
    EndState,
    JoinRunRequest,
    JoinRunResponse,
    ReportRequest,
    ReportResponse,
    WatchAlertsRequest,
)
from pharoah_provider.domain import Report, Run, identity
from pharoah_provider.errors import Invalid, Refused, Unknown
from pharoah_provider.monitoring.monitor import Monitor
from pharoah_provider.services import Context
from pharoah_provider.services.gate import caller
from pharoah_provider.store import Store
from pharoah_provider.tickets import verified

LARGEST_BATCH = 2048
COLUMNS = ("ended_at", "span_seconds", "ranks", "step_ratio", "memory_ratio")


class RunsServicer:
    def __init__(self, store: Store, monitor: Monitor) -> None:
        self._store, self._monitor = store, monitor
        self._taking: dict[bytes, asyncio.Lock] = {}

    async def JoinRun(self, request: JoinRunRequest, _: Context) -> JoinRunResponse:
        if len(request.run_id) != 16:
            raise Invalid(f"run_id: {len(request.run_id)} bytes, expected 16")
        tenant = caller().name
        ticket, node = await verified(self._store, request.ticket.body, request.ticket.signature)
        owner, before = await self._store.ticket_owner(ticket.nonce), await self._store.run(request.run_id)
        if owner not in (None, request.run_id) or (before and before.tenant != tenant):
            raise Refused("the node ticket is not valid")
        run = Run(
            request.run_id,
            tenant,
            node.node,
            before.attempt + 1 if before else 1,
            max(1, request.ranks),
            request.consent.beside_job,
            request.consent.limit_seconds,
        )
        await self._store.put_run(run, ticket.nonce)
        self._monitor.watch(run)
        return JoinRunResponse(attempt=run.attempt, node_alias=f"node-{identity([tenant, node.node])[:6]}")

    async def Report(self, request: ReportRequest, _: Context) -> ReportResponse:
        run = await self._run(request.run_id)
        if request.attempt != run.attempt:
            raise Invalid(f"attempt: {request.attempt} is over; the run is at attempt {run.attempt}")
        reports, rejected = _decode(request)
        async with self._taking.setdefault(run.run_id, asyncio.Lock()):
            last = await self._store.last_row_number(run.run_id, run.attempt)
            fresh = [report for report in reports if report.row_number > last]
            if fresh:
                masked, risks = self._monitor.score(run, fresh)
                await self._store.append_reports(run, fresh, masked, risks)
                await self._monitor.react(run, fresh, masked, risks)
        message = f"{rejected} rows are not finite positive numbers" if rejected else ""
        return ReportResponse(rejected=rejected, message=message)

    async def EndRun(self, request: EndRunRequest, _: Context) -> EndRunResponse:
        run = await self._run(request.run_id)
        if request.state not in EndState.values() or not request.state:
            raise Invalid(f"state: {request.state} is not an end state")
        await self._store.end_run(run.run_id, EndState.Name(request.state).removeprefix("END_STATE_").lower())
        await self._monitor.unwatch(run.run_id)
        self._taking.pop(run.run_id, None)
        return EndRunResponse()

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
        run = await self._store.run(run_id)
        if run is None or run.tenant != caller().name:
            raise Unknown("no such run")
        return run


def _decode(request: ReportRequest) -> tuple[list[Report], int]:
    """Rows that make sense, and how many do not. Raises Invalid when the columns do not fit together."""
    size = len(request.ended_at)
    for name in COLUMNS:
        if len(getattr(request, name)) != size:
            raise Invalid(f"{name}: {len(getattr(request, name))} values, ended_at has {size}")
    if size > LARGEST_BATCH:
        raise Invalid(f"ended_at: {size} rows, at most {LARGEST_BATCH} in one report")
    reports = [
        Report(
            request.first_row + i,
            request.ranks[i],
            request.ended_at[i],
            request.span_seconds[i],
            request.step_ratio[i],
            request.memory_ratio[i],
        )
        for i in range(size)
    ]
    sane = [
        r
        for r in reports
        if all(isfinite(v) and v > 0 for v in (r.ended_at, r.span_seconds, r.step_ratio, r.memory_ratio))
    ]
    return sane, size - len(sane)
