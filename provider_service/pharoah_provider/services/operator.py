"""`pharoah.v1.Operator`: for the provider's own people and tools."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from typing import Any

from pharoah_benchmarks.campaign.plan import PlanError
from pharoah_learning.release import Release
from pharoah_protocol.log.forgotten import ForgetKind
from pharoah_protocol.v1 import (
    AdmitNodeRequest,
    AdmitNodeResponse,
    CancelCampaignRequest,
    CancelCampaignResponse,
    ExportAuditBundleRequest,
    ExportAuditBundleResponse,
    ExportTableRequest,
    ExportTableResponse,
    ForgetRequest,
    ForgetResponse,
    ImportTableRequest,
    ImportTableResponse,
    LearnRequest,
    LearnResponse,
    ListRequest,
    ListResponse,
    PlanCampaignRequest,
    PlanCampaignResponse,
    PlanConfirmationRequest,
    ReinstateRequest,
    ReinstateResponse,
    ReturnNodeRequest,
    ReturnNodeResponse,
    RevokeRequest,
    RevokeResponse,
    RollbackRequest,
    RollbackResponse,
    RunCampaignRequest,
    RunCampaignResponse,
    ShowRowRequest,
    ShowRowResponse,
)
from pharoah_provider.audit_bundle import audit_bundle
from pharoah_provider.campaigns.book import Campaigns, PlanOptions
from pharoah_provider.campaigns.works import Campaign
from pharoah_provider.fleet import Fleet
from pharoah_provider.learning import learn
from pharoah_provider.listings import LISTINGS, ListingSources, Row
from pharoah_provider.node_actions import NodeActions
from pharoah_provider.node_forecasts import NodeForecasts
from pharoah_provider.portable_tables import export_table, import_table, remove_import
from pharoah_provider.publication import Publisher
from pharoah_provider.row_display import row_display
from pharoah_provider.shielding import complete_despite_cancellation
from pharoah_provider.storage.base import Storage
from pharoah_provider.storage.records import ImportedTable
from pharoah_serving.context import Context
from pharoah_serving.costs import in_thread
from pharoah_serving.errors import Invalid, NotReady
from pharoah_serving.keys import Keys
from pharoah_serving.reading_processes import ReadingProcesses, Unreadable

MAX_PROFILE_LENGTH = 1 << 14
"""Characters of a node profile as JSON: a few numbers, and the list of cores."""


class OperatorServicer:
    """Decodes calls of operators, and encodes the answers."""

    def __init__(
        self,
        store: Storage,
        keys: Keys,
        fleet: Fleet,
        publisher: Publisher,
        campaigns: Campaigns,
        node_actions: NodeActions,
        node_forecasts: NodeForecasts,
        reading: ReadingProcesses,
    ) -> None:
        self._store, self._keys, self._fleet = store, keys, fleet
        self._publisher, self._campaigns = publisher, campaigns
        self._node_actions, self._node_forecasts, self._reading = node_actions, node_forecasts, reading
        self._learning = asyncio.Lock()

    async def PlanCampaign(self, request: PlanCampaignRequest, _: Context) -> PlanCampaignResponse:
        return await self._about(await self._plan(request))

    async def PlanConfirmation(self, request: PlanConfirmationRequest, _: Context) -> PlanCampaignResponse:
        """Raises Invalid for suspects that take too many works."""
        options = replace(await self._options(request), most_pairs=request.most_pairs)
        try:
            planned = await self._campaigns.plan_confirmation(request.suspects, options)
        except PlanError as error:
            raise Invalid(str(error)) from None
        return await self._about(planned.campaign, planned.notices, planned.prices)

    async def _about(
        self, campaign: Campaign, notices: Sequence[str] = (), prices: Sequence[str] = ()
    ) -> PlanCampaignResponse:
        works = await self._store.campaigns.works(campaign.campaign_id)
        return PlanCampaignResponse(
            campaign_id=campaign.campaign_id,
            works=len(works),
            blocks=len({work.block for work in works}),
            contexts=len({work.context_id for work in works} - {""}),
            seed=campaign.seed,
            notices=notices,
            prices=prices,
        )

    async def RunCampaign(self, request: RunCampaignRequest, _: Context) -> AsyncIterator[RunCampaignResponse]:
        if bool(request.campaign) == bool(request.campaign_id):
            raise Invalid("campaign, campaign_id: give one of them")
        campaign_id, budget_minutes = request.campaign_id, request.budget_minutes
        if request.campaign:
            self._campaigns.check_free()
            campaign_id, budget_minutes = (await self._plan(request)).campaign_id, 0.0
        yield RunCampaignResponse(campaign_id=campaign_id)
        async for progress in self._campaigns.follow(campaign_id, budget_minutes):
            yield RunCampaignResponse(campaign_id=campaign_id, **progress.__dict__)

    async def CancelCampaign(self, request: CancelCampaignRequest, _: Context) -> CancelCampaignResponse:
        await complete_despite_cancellation(self._campaigns.cancel(request.campaign_id))
        return CancelCampaignResponse()

    async def _plan(self, request: PlanCampaignRequest | RunCampaignRequest) -> Campaign:
        """Raises Invalid for a file that nobody can run, or that takes long to read."""
        options = await self._options(request)
        try:
            await self._reading.read("campaign", request.campaign.encode())
            return await self._campaigns.plan(request.campaign, options)
        except (PlanError, Unreadable) as error:
            raise Invalid(f"campaign: {error}") from None

    async def _options(
        self, request: PlanCampaignRequest | RunCampaignRequest | PlanConfirmationRequest
    ) -> PlanOptions:
        """Raises Invalid for a node profile that is not JSON."""
        executor: dict[str, Any] = {}
        if not isinstance(request, PlanConfirmationRequest):
            stated = request.executor
            executor = {name: getattr(stated, name) for name in ("name", "slots", "address") if getattr(stated, name)}
            if stated.profile:
                executor["profile"] = await self._profile(stated.profile)
        seed = request.seed if request.HasField("seed") else None
        untried = not isinstance(request, PlanConfirmationRequest) and request.untried
        return PlanOptions(seed=seed, executor=executor, budget_minutes=request.budget_minutes, untried=untried)

    async def _profile(self, text: str) -> Any:
        if len(text) > MAX_PROFILE_LENGTH:
            raise Invalid(f"executor.profile: {len(text)} characters, at most {MAX_PROFILE_LENGTH}")
        try:
            (profile,) = await self._reading.read("profile", text.encode())
        except Unreadable as error:
            raise Invalid(str(error)) from None
        return json.loads(profile)

    async def Learn(self, _: LearnRequest, __: Context) -> AsyncIterator[LearnResponse]:
        self._publisher.require_time()  # trials are counted until now, and an auditor counts them again
        if self._learning.locked():
            raise NotReady("the provider is learning already, for another call; look at `pharoah-provider table` later")
        async with self._learning:
            async for step in learn(self._store):
                if isinstance(step, Release):
                    for answer in await complete_despite_cancellation(self._release(step)):
                        yield answer
                else:
                    yield LearnResponse(message=step)

    async def _release(self, release: Release) -> list[LearnResponse]:
        """Publish a release and all that follows from it: what is decided of nodes must not be older than the table."""
        epoch = await self._publisher.publish(release)
        message = f"release {release.release} sealed as epoch {epoch}"
        return [
            LearnResponse(message=await self._node_actions.review()),
            LearnResponse(message=await self._node_forecasts.learn()),
            LearnResponse(message=message, release=release.release, epoch=epoch),
        ]

    async def Rollback(self, request: RollbackRequest, _: Context) -> RollbackResponse:
        release, epoch = await self._publisher.rollback(request.release)
        return RollbackResponse(release=release, epoch=epoch)

    async def Revoke(self, request: RevokeRequest, _: Context) -> RevokeResponse:
        if not request.rows:
            raise Invalid("rows: none given")
        return RevokeResponse(revoked=await self._publisher.revoke(request.rows))

    async def Reinstate(self, request: ReinstateRequest, _: Context) -> ReinstateResponse:
        if not request.rows:
            raise Invalid("rows: none given")
        return ReinstateResponse(reinstated=await self._publisher.reinstate(request.rows))

    async def Forget(self, request: ForgetRequest, _: Context) -> ForgetResponse:
        if request.kind not in tuple(ForgetKind):
            raise Invalid(f"kind: {request.kind!r} is not one of {', '.join(ForgetKind)}")
        kind = ForgetKind(request.kind)
        changed = await self._store.evidence.count_evidence(kind, request.name)
        if not changed:
            raise Invalid(f"name: there is no evidence of {kind} {request.name!r} (see `pharoah-provider cells`)")
        await self._publisher.forget(kind, request.name, undone=request.undo)
        return ForgetResponse(changed=changed)

    async def AdmitNode(self, request: AdmitNodeRequest, _: Context) -> AdmitNodeResponse:
        if await self._store.nodes.node(request.node) is None:
            raise Invalid(f"node: {request.node!r} is not known (see `pharoah-provider nodes`)")
        await self._store.nodes.forget_context_changes(request.node)
        self._fleet.reconnect(request.node)
        return AdmitNodeResponse()

    async def ReturnNode(self, request: ReturnNodeRequest, _: Context) -> ReturnNodeResponse:
        await complete_despite_cancellation(self._node_actions.return_node(request.node))
        return ReturnNodeResponse()

    async def ExportAuditBundle(self, request: ExportAuditBundleRequest, _: Context) -> ExportAuditBundleResponse:
        return ExportAuditBundleResponse(content=await audit_bundle(self._store, self._keys, request.epoch))

    async def ShowRow(self, request: ShowRowRequest, _: Context) -> ShowRowResponse:
        return ShowRowResponse(content=json.dumps(await row_display(self._store, request.row)))

    async def ExportTable(self, _: ExportTableRequest, __: Context) -> ExportTableResponse:
        exported = await export_table(self._store, self._keys)
        return ExportTableResponse(content=exported.content, rows=exported.rows)

    async def ImportTable(self, request: ImportTableRequest, _: Context) -> ImportTableResponse:
        if request.content or request.key:  # a file that is empty removes nothing
            stored = ImportedTable(request.provider, request.key, request.content)
            found = await import_table(self._store, self._keys, stored, self._reading)
        else:
            found = await remove_import(self._store, request.provider, self._reading)
        return ImportTableResponse(**found._asdict())

    async def List(self, request: ListRequest, _: Context) -> ListResponse:
        if request.listing not in LISTINGS:
            raise Invalid(f"listing: {request.listing!r} is not one of {', '.join(LISTINGS.entries)}")
        rows = await LISTINGS[request.listing].rows(
            ListingSources(self._store, self._fleet.last_seen(), self._fleet.now(), self._fleet.list_held())
        )
        return await in_thread(_list, rows)


def _list(rows: Sequence[Row]) -> ListResponse:
    """Rows as JSON: a hundred thousand take half a second to encode, so that a thread does it."""
    return ListResponse(rows=[json.dumps(row, default=str) for row in rows])
