"""`pharoah.v1.Operator`: for the provider's own people and tools."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator

from pharoah_benchmarks.campaign.plan import PlanError, parse_plan
from pharoah_learning.release import Release
from pharoah_protocol.v1 import (
    ExportAuditBundleRequest,
    ExportAuditBundleResponse,
    LearnRequest,
    LearnResponse,
    ListRequest,
    ListResponse,
    ReinstateRequest,
    ReinstateResponse,
    RevokeRequest,
    RevokeResponse,
    RollbackRequest,
    RollbackResponse,
    RunCampaignRequest,
    RunCampaignResponse,
)
from pharoah_provider.audit_bundle import audit_bundle
from pharoah_provider.campaigns import Campaign
from pharoah_provider.fleet import Fleet
from pharoah_provider.learning import learn
from pharoah_provider.listings import LISTINGS, ListingSources
from pharoah_provider.monitoring.monitor import Monitor
from pharoah_provider.publication import Publisher
from pharoah_provider.storage.base import Storage
from pharoah_serving import Context
from pharoah_serving.errors import Invalid, NotReady
from pharoah_serving.keys import Keys


class OperatorServicer:
    """Decodes calls of operators, and encodes the answers."""

    def __init__(self, store: Storage, keys: Keys, fleet: Fleet, publisher: Publisher, monitor: Monitor) -> None:
        self._store, self._keys, self._fleet = store, keys, fleet
        self._publisher, self._monitor = publisher, monitor
        self._campaign: Campaign | None = None

    async def RunCampaign(self, request: RunCampaignRequest, _: Context) -> AsyncIterator[RunCampaignResponse]:
        try:
            plan = parse_plan(request.campaign)
        except PlanError as error:
            raise Invalid(f"campaign: {error}") from None
        if self._campaign is not None:
            raise NotReady("a campaign is running already")
        self._campaign = Campaign(plan, self._fleet, self._store.evidence)
        try:
            async for progress in self._campaign.run():
                yield RunCampaignResponse(**progress.__dict__)
        finally:
            self._campaign = None

    async def Learn(self, _: LearnRequest, __: Context) -> AsyncIterator[LearnResponse]:
        async for step in learn(self._store):
            if isinstance(step, Release):
                epoch = await self._publisher.publish(step, time.time())
                self._monitor.use(step)
                message = f"release {step.release} sealed as epoch {epoch}"
                yield LearnResponse(message=message, release=step.release, epoch=epoch)
            else:
                yield LearnResponse(message=step)

    async def Rollback(self, _: RollbackRequest, __: Context) -> RollbackResponse:
        release, epoch = await self._publisher.rollback(time.time())
        if (served := await self._store.published.release(release)) is not None:
            self._monitor.use(served)
        return RollbackResponse(release=release, epoch=epoch)

    async def Revoke(self, request: RevokeRequest, _: Context) -> RevokeResponse:
        if not request.rows:
            raise Invalid("rows: none given")
        return RevokeResponse(revoked=await self._publisher.revoke(request.rows))

    async def Reinstate(self, request: ReinstateRequest, _: Context) -> ReinstateResponse:
        if not request.rows:
            raise Invalid("rows: none given")
        return ReinstateResponse(reinstated=await self._publisher.reinstate(request.rows))

    async def ExportAuditBundle(self, request: ExportAuditBundleRequest, _: Context) -> ExportAuditBundleResponse:
        return ExportAuditBundleResponse(content=await audit_bundle(self._store, self._keys, request.epoch))

    async def List(self, request: ListRequest, _: Context) -> ListResponse:
        if request.listing not in LISTINGS:
            raise Invalid(f"listing: {request.listing!r} is not one of {', '.join(LISTINGS.entries)}")
        rows = await LISTINGS[request.listing].rows(ListingSources(self._store, self._fleet.last_seen(), time.time()))
        return ListResponse(rows=[json.dumps(row, default=str) for row in rows])
