"""`pharoah.v1.Operator`: for the provider's own people and tools."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator
from typing import Any

from pharoah_benchmarks.campaign.plan import PlanError, parse_plan
from pharoah_learning.models.proportions import wilson
from pharoah_learning.release import Release
from pharoah_protocol.v1 import (
    HandOverRequest,
    HandOverResponse,
    LearnRequest,
    LearnResponse,
    Listing,
    ListRequest,
    ListResponse,
    RevokeRequest,
    RevokeResponse,
    RollbackRequest,
    RollbackResponse,
    RunCampaignRequest,
    RunCampaignResponse,
)
from pharoah_provider.audit_bundle import hand_over
from pharoah_provider.campaigns import Campaign
from pharoah_provider.fleet import Fleet
from pharoah_provider.learning import learn
from pharoah_provider.monitoring.monitor import Monitor
from pharoah_provider.publication import Publisher
from pharoah_provider.storage.base import Storage
from pharoah_serving import Context
from pharoah_serving.errors import Invalid, NotReady
from pharoah_serving.keys import Keys

ROWS_OF = {"table": ("arch", "name"), "near_duplicates": ("band",)}
"""Kinds of rows in each listing of the newest release."""


class OperatorServicer:
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
        async for said in learn(self._store):
            if isinstance(said, Release):
                epoch = await self._publisher.publish(said, time.time())
                self._monitor.use(said)
                yield LearnResponse(
                    message=f"release {said.release} sealed as epoch {epoch}",
                    release=said.release,
                    epoch=epoch,
                )
            else:
                yield LearnResponse(message=said)

    async def Rollback(self, _: RollbackRequest, __: Context) -> RollbackResponse:
        release, epoch = await self._publisher.rollback(time.time())
        if (served := await self._store.published.release(release)) is not None:
            self._monitor.use(served)
        return RollbackResponse(release=release, epoch=epoch)

    async def Revoke(self, request: RevokeRequest, _: Context) -> RevokeResponse:
        if not request.rows:
            raise Invalid("rows: none given")
        change = self._publisher.give_back if request.undo else self._publisher.revoke
        return RevokeResponse(revoked=await change(request.rows))

    async def HandOver(self, request: HandOverRequest, _: Context) -> HandOverResponse:
        return HandOverResponse(content=await hand_over(self._store, self._keys, request.epoch))

    async def List(self, request: ListRequest, _: Context) -> ListResponse:
        if request.listing not in Listing.values() or not request.listing:
            raise Invalid(f"listing: {request.listing} is not one of {', '.join(Listing.keys()[1:])}")
        name = Listing.Name(request.listing).removeprefix("LISTING_").lower()
        kinds = ROWS_OF.get(name)
        rows = await self._rows(kinds) if kinds else await self._store.listing(name)
        if name == "nodes":
            rows = self._with_connections(rows)
        return ListResponse(rows=[json.dumps(row, default=str) for row in rows])

    def _with_connections(self, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Nodes as the database knows them, with what their agents have said since."""
        now, heard = time.time(), self._fleet.last_seen()
        return [
            {
                **row,
                "connected": "yes" if row["node"] in heard else "no",
                "seen_seconds_ago": round(now - max(heard.get(row["node"], 0.0), row["last_seen"]), 1),
            }
            for row in rows
        ]

    async def _rows(self, kinds: tuple[str, ...]) -> list[dict[str, Any]]:
        """The newest release's rows of some kinds, with their intervals."""
        release = await self._store.published.newest_release()
        if release is None:
            return []
        revoked = set(await self._store.log.revoked_ids())
        nodes = await self._store.nodes.nodes()
        names = {node.context_id: "+".join(n.node for n in nodes if n.context_id == node.context_id) for node in nodes}
        return [
            {
                "id": row.id,
                "release": release.release,
                "scope": row.scope,
                "context": row.group_id,
                "nodes": names.get(row.group_id, ""),
                "rung": row.rung,
                "title": row.title,
                "severity": "revoked" if row.id in revoked else row.severity,
                "outcome": row.outcome,
                "failed": f"{row.failures}/{row.runs}",
                "base": f"{row.base_failures}/{row.base_runs}",
                "failures": row.failures,
                "runs": row.runs,
                "rate_low": round(wilson(row.failures, row.runs)[0], 3),
                "rate_high": round(wilson(row.failures, row.runs)[1], 3),
                "base_failures": row.base_failures,
                "base_runs": row.base_runs,
                "remedy": row.remedy,
            }
            for row in release.rows
            if row.kind in kinds
        ]
