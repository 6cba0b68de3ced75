"""All campaigns of a provider, one of which may run. A campaign belongs to the provider, not to a call."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field, replace

from pharoah_benchmarks.campaign.plan import parse_plan
from pharoah_provider.campaigns.run import CampaignRun, Progress
from pharoah_provider.campaigns.schedule import scheduled
from pharoah_provider.campaigns.works import Campaign, CampaignState
from pharoah_provider.fleet import Fleet
from pharoah_provider.own_fingerprints import OwnFingerprints
from pharoah_provider.storage.base import Storage
from pharoah_serving.clock import Clock
from pharoah_serving.errors import Invalid, NotReady

log = logging.getLogger("pharoah.provider.campaigns")

SEEDS = 1 << 31
"""How many seeds there are: they fit into 32 bits with a sign."""


@dataclass
class _Going:
    """The campaign that runs now."""

    campaign: Campaign
    task: asyncio.Task[None] | None = None
    followers: set[asyncio.Queue[Progress | BaseException | None]] = field(default_factory=set)

    def publish(self, event: Progress | BaseException | None) -> None:
        """To all who follow; an error, or None, is the last event."""
        for follower in self.followers:
            follower.put_nowait(event)


class Campaigns:
    """Plans, runs, resumes and cancels. One campaign runs at a time."""

    def __init__(self, store: Storage, fleet: Fleet, in_use: Callable[[str], bool], clock: Clock) -> None:
        """`in_use(node)`: whether a run may go on on the host of a node."""
        self._store, self._fleet, self._in_use, self._clock = store, fleet, in_use, clock
        self._going: _Going | None = None

    async def restore(self) -> None:
        """Go on with the campaign that ran when the process before ended."""
        for campaign in await self._store.campaigns.campaigns():
            if campaign.state is CampaignState.RUNNING and self._going is None:
                log.info("campaign %s goes on", campaign.campaign_id)
                await self._start(campaign)

    async def plan(self, text: str, seed: int | None = None, *, untried: bool = False) -> Campaign:
        """Store a new campaign for the nodes that are connected and not in use. `untried`: only for contexts that no
        campaign has tried, beside the nearest ones. Raises PlanError for the file, Invalid for the seed, and NotReady
        without such a node."""
        plan = parse_plan(text)
        if seed is not None and not 0 <= seed < SEEDS:
            raise Invalid(f"seed: {seed} is not between 0 and {SEEDS - 1}")
        connected = self._fleet.connected()
        nodes = [node for node in connected if not self._in_use(node.node)]
        if not nodes:
            raise NotReady(
                "runs go on on the hosts of all connected nodes; wait until they have ended"
                if connected
                else "no agent is connected: start pharoah-agent on the nodes first"
            )
        if untried and not (nodes := self._fleet.contexts.untried(nodes)):
            raise NotReady("campaigns have tried the contexts of all connected nodes (see `pharoah-provider contexts`)")
        campaign = Campaign(
            campaign_id=secrets.token_hex(4),
            name=plan.name,
            text=text,
            seed=secrets.randbelow(SEEDS) if seed is None else seed,
            state=CampaignState.PLANNED,
            created_at=self._clock.wall(),
            context_rule=self._fleet.contexts.rule,
        )
        works = scheduled(plan, nodes, campaign.seed, campaign.context_rule)
        await self._store.campaigns.put_campaign(campaign, works)
        return campaign

    def check_free(self, campaign_id: str = "") -> None:
        """Raises NotReady while another campaign runs."""
        if self._going is not None and self._going.campaign.campaign_id != campaign_id:
            raise NotReady(f"a campaign is running already: {self._going.campaign.campaign_id}")

    async def follow(self, campaign_id: str) -> AsyncIterator[Progress]:
        """Start a campaign, or go on with it, and give its progress until it ends. Whoever stops reading ends nothing.

        Raises Invalid for an id that is not known, and NotReady for a campaign that is done, that no node can do, or
        that was cancelled meanwhile.
        """
        self.check_free(campaign_id)
        if self._going is None:
            campaign = await self._known(campaign_id)
            if campaign.state is CampaignState.DONE:
                raise NotReady(f"campaign {campaign_id} is done already")
            self.check_free(campaign_id)
            await self._start(campaign)
        assert self._going is not None
        going, events = self._going, asyncio.Queue[Progress | BaseException | None]()
        going.followers.add(events)
        try:
            while (event := await events.get()) is not None:
                if isinstance(event, BaseException):
                    raise event
                yield event
        finally:
            going.followers.discard(events)

    async def cancel(self, campaign_id: str) -> None:
        """End a campaign. What is done stays. Raises Invalid for one that is not known or has ended."""
        campaign = await self._known(campaign_id)
        if campaign.state in (CampaignState.DONE, CampaignState.CANCELLED):
            raise Invalid(f"campaign_id: campaign {campaign_id} is {campaign.state}")
        await self._store.campaigns.set_state(campaign_id, CampaignState.CANCELLED)
        if self._going is not None and self._going.campaign.campaign_id == campaign_id:
            going = await self._end_task()
            going.publish(NotReady(f"campaign {campaign_id} was cancelled"))

    async def close(self) -> None:
        """End the task; the next process goes on with the campaign."""
        if self._going is not None:
            going = await self._end_task()
            going.publish(NotReady("the provider ends; the campaign goes on when it is back"))

    async def _end_task(self) -> _Going:
        going, self._going = self._going, None
        assert going is not None and going.task is not None
        going.task.cancel()
        await asyncio.wait({going.task})
        return going

    async def _known(self, campaign_id: str) -> Campaign:
        for campaign in await self._store.campaigns.campaigns():
            if campaign.campaign_id == campaign_id:
                return campaign
        raise Invalid(f"campaign_id: {campaign_id!r} is not known (see `pharoah-provider campaigns`)")

    async def _start(self, campaign: Campaign) -> None:
        works = await self._store.campaigns.works(campaign.campaign_id)
        await self._store.campaigns.set_state(campaign.campaign_id, CampaignState.RUNNING)
        going = _Going(replace(campaign, state=CampaignState.RUNNING))
        run = CampaignRun(
            campaign=going.campaign,
            works=works,
            fleet=self._fleet,
            store=self._store.campaigns,
            in_use=self._in_use,
            report=going.publish,
            clock=self._clock,
        )
        self._going = going
        going.task = asyncio.create_task(self._to_its_end(going, run))

    async def _to_its_end(self, going: _Going, run: CampaignRun) -> None:
        campaign_id = going.campaign.campaign_id
        ended: BaseException | None = None
        try:
            await run.run(OwnFingerprints(self._store.evidence))
            await self._store.campaigns.set_state(campaign_id, CampaignState.DONE)
        except* Exception as failures:  # noqa: BLE001 - whoever follows the campaign raises it
            ended = failures.exceptions[0]
            while isinstance(ended, BaseExceptionGroup):
                ended = ended.exceptions[0]
            log.warning("campaign %s is paused: %s: %s", campaign_id, type(ended).__name__, ended)
            await self._store.campaigns.set_state(campaign_id, CampaignState.PAUSED, str(ended))
        self._going = None
        going.publish(ended)
