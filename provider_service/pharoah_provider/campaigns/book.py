"""All campaigns of a provider, one of which may run. A campaign belongs to the provider, not to a call."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from pharoah_benchmarks.campaign.plan import CampaignPlan, PlanError, parse_plan
from pharoah_provider.campaigns.executor_settings import ON_AGENTS, ExecutorSettings
from pharoah_provider.campaigns.executors import EXECUTORS, executor_of
from pharoah_provider.campaigns.pair_prices import price_lines
from pharoah_provider.campaigns.run import CampaignRun, Progress
from pharoah_provider.campaigns.schedule import schedule_pairs, schedule_without_context, schedule_works
from pharoah_provider.campaigns.suspect_pairs import suspects_to_confirm
from pharoah_provider.campaigns.works import Campaign, CampaignState
from pharoah_provider.domain import Node
from pharoah_provider.fleet import Fleet
from pharoah_provider.own_fingerprints import OwnFingerprints
from pharoah_provider.storage.base import Storage
from pharoah_serving.clock import Clock
from pharoah_serving.errors import Invalid, NotReady

log = logging.getLogger("pharoah.provider.campaigns")

SEEDS = 1 << 31
"""How many seeds there are: they fit into 32 bits with a sign."""


MAX_BUDGET_MINUTES = 525_600.0
"""A year."""


@dataclass(frozen=True, kw_only=True)
class PlanOptions:
    """What a command states about a new campaign beside its file."""

    seed: int | None = None
    """Drawn where it is not given."""
    executor: Mapping[str, Any] = field(default_factory=dict)
    """The options of the executor that are stated, by name."""
    budget_minutes: float = 0.0
    """0 is as long as it takes."""
    untried: bool = False
    """Whether it is only for contexts that no campaign has tried, beside the nearest ones."""
    most_pairs: int = 0
    """How many pairs each suspect gets that it is to confirm or refute; 0 is as many as decide."""


NO_OPTIONS = PlanOptions()


class PlannedConfirmation(NamedTuple):
    """A campaign about suspects."""

    campaign: Campaign
    notices: list[str]
    """Why others are not in it."""
    prices: list[str]
    """What each of them takes at most, and whether that is too little."""


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
        self._changing = asyncio.Lock()
        """Is held while a campaign begins or ends: whether one runs stays true while its state is stored."""

    async def restore(self) -> None:
        """Go on with the campaign that ran when the process before ended."""
        async with self._changing:
            for campaign in await self._store.campaigns.campaigns():
                if campaign.state is CampaignState.RUNNING and self._going is None:
                    log.info("campaign %s goes on", campaign.campaign_id)
                    await self._start(campaign)

    async def plan(self, text: str, options: PlanOptions = NO_OPTIONS) -> Campaign:
        """Store a new campaign: with the executor `agents` for the nodes that are connected and not in use.

        Raises PlanError for the file, also where it has too many works on these nodes, Invalid for an option, and
        NotReady without such a node.
        """
        plan = await asyncio.to_thread(parse_plan, text)
        if plan.without_lock:
            raise PlanError(
                f"lock: the environment {plan.without_lock[0]} has none, and nodes install nothing without; "
                "`pharoah-provider campaign lock FILE` makes it where pip reaches the package index"
            )
        settings = _executor_settings(plan, options)
        campaign = replace(self._new(plan.name, text, options, settings), skip_same_code=plan.skip_same_code)
        if EXECUTORS[settings.name].has_contexts:
            nodes = self._list_untried_nodes() if options.untried else self._free_nodes()
            works = await asyncio.to_thread(schedule_works, plan, nodes, campaign.seed, campaign.context_rule)
        elif options.untried:
            raise Invalid(f"untried: the executor {settings.name} has no contexts; use the executor agents")
        elif plan.degraded:
            raise Invalid(
                f"campaign: degrade: the executor {settings.name} has no nodes of the fleet, whose degradation could "
                "be learned; leave the table out, or use the executor agents"
            )
        else:
            works = await asyncio.to_thread(schedule_without_context, plan, campaign.seed)
        await self._store.campaigns.put_campaign(campaign, works)
        return campaign

    async def plan_confirmation(self, suspect_ids: Sequence[str], options: PlanOptions) -> PlannedConfirmation:
        """Store a campaign that confirms or refutes suspects: these, or all of the newest release where none is given.

        Raises Invalid for an id that is not known, PlanError for too many works, and NotReady where no suspect can be
        confirmed now.
        """
        chosen = await suspects_to_confirm(self._store, suspect_ids, self._free_nodes(), options.most_pairs)
        if not chosen.arms:
            raise NotReady("; ".join(chosen.notices) or "the newest release has no suspects")
        campaign = self._new(f"confirm {len(chosen.arms)} suspects", "", options, ON_AGENTS)
        campaign = replace(campaign, context_rule=chosen.context_rule)
        works = await asyncio.to_thread(schedule_pairs, chosen.arms, campaign.seed)
        await self._store.campaigns.put_campaign(campaign, works, chosen.pairs)
        return PlannedConfirmation(campaign, chosen.notices, price_lines(chosen.prices, campaign.budget_seconds))

    def _free_nodes(self) -> list[Node]:
        """The nodes of the fleet that are connected and not in use. Raises NotReady without any."""
        connected = self._fleet.list_connected()
        nodes = [node for node in connected if not self._in_use(node.node)]
        if not nodes:
            raise NotReady(
                "runs go on on the hosts of all connected nodes; wait until they have ended"
                if connected
                else "no agent is connected: start pharoah-agent on the nodes first"
            )
        return nodes

    def _list_untried_nodes(self) -> list[Node]:
        """Free nodes in contexts that no campaign has tried, beside those in the nearest ones. Raises NotReady without
        any."""
        nodes = self._fleet.contexts.list_untried(self._free_nodes())
        if not nodes:
            raise NotReady("campaigns have tried the contexts of all connected nodes (see `pharoah-provider contexts`)")
        return nodes

    def _new(self, name: str, text: str, options: PlanOptions, executor: ExecutorSettings) -> Campaign:
        seed = options.seed
        if seed is not None and not 0 <= seed < SEEDS:
            raise Invalid(f"seed: {seed} is not between 0 and {SEEDS - 1}")
        return Campaign(
            campaign_id=secrets.token_hex(4),
            name=name,
            text=text,
            seed=secrets.randbelow(SEEDS) if seed is None else seed,
            state=CampaignState.PLANNED,
            created_at=self._clock.wall(),
            executor=executor,
            budget_seconds=check_budget(options.budget_minutes),
            context_rule=self._fleet.contexts.rule,
        )

    def check_free(self, campaign_id: str = "") -> None:
        """Raises NotReady while another campaign runs."""
        if self._going is not None and self._going.campaign.campaign_id != campaign_id:
            raise NotReady(f"a campaign is running already: {self._going.campaign.campaign_id}")

    async def follow(self, campaign_id: str, budget_minutes: float = 0.0) -> AsyncIterator[Progress]:
        """Start a campaign, or go on with it, and give its progress until it ends. Whoever stops reading ends nothing.

        `budget_minutes`: its new budget in all; 0 leaves the one that it has. Raises Invalid for an id that is not
        known, and NotReady for a campaign that is done or whose budget is used up, that no node can do, or that was
        cancelled meanwhile.
        """
        budget_seconds = check_budget(budget_minutes)
        self.check_free(campaign_id)
        events = asyncio.Queue[Progress | BaseException | None]()
        async with self._changing:
            self.check_free(campaign_id)
            going = self._going
            if going is None:
                going = await self._start(await self._resumable(campaign_id, budget_seconds))
            elif budget_seconds:
                raise NotReady(f"campaign {campaign_id} runs; its budget can be changed while it does not")
            going.followers.add(events)
        try:
            while (event := await events.get()) is not None:
                if isinstance(event, BaseException):
                    raise event
                yield event
        finally:
            going.followers.discard(events)

    async def _resumable(self, campaign_id: str, budget_seconds: float) -> Campaign:
        """A campaign that may begin or go on, with its new budget where there is one. What it has set aside waits
        again. Raises like `follow`."""
        campaign = await self._require_campaign(campaign_id)
        if campaign.state is CampaignState.DONE and not await self._lacks_results(campaign_id):
            raise NotReady(f"campaign {campaign_id} is done already")
        if campaign.state is CampaignState.SPENT and not budget_seconds:
            raise NotReady(
                f"the budget of campaign {campaign_id}, {campaign.budget_seconds / 60:g} minutes, is used up; go "
                f"on with `pharoah-provider campaign resume {campaign_id} --budget-minutes N`, N minutes in all"
            )
        if budget_seconds:
            await self._store.campaigns.set_budget(campaign_id, budget_seconds)
            campaign = replace(campaign, budget_seconds=budget_seconds)
        await self._store.campaigns.bring_back(campaign_id)
        return campaign

    async def _lacks_results(self, campaign_id: str) -> bool:
        """Whether a campaign has set works aside whose results are needed."""
        works = await self._store.campaigns.works(campaign_id)
        return any(work.cause is not None and not work.cause.needs_no_run for work in works)

    async def cancel(self, campaign_id: str) -> None:
        """End a campaign. What is done stays. Raises Invalid for one that is not known or has ended."""
        async with self._changing:
            campaign = await self._require_campaign(campaign_id)
            if campaign.state in (CampaignState.DONE, CampaignState.CANCELLED):
                raise Invalid(f"campaign_id: campaign {campaign_id} is {campaign.state}")
            await self._store.campaigns.set_state(campaign_id, CampaignState.CANCELLED)
            if self._going is not None and self._going.campaign.campaign_id == campaign_id:
                await self._end_task(NotReady(f"campaign {campaign_id} was cancelled"))

    async def close(self) -> None:
        """End the task; the next process goes on with the campaign."""
        async with self._changing:
            if self._going is not None:
                await self._end_task(NotReady("the provider ends; the campaign goes on when it is back"))

    async def _end_task(self, reason: NotReady) -> None:
        """End the task of the campaign that runs; the caller holds the lock, so that the task stores no state."""
        going, self._going = self._going, None
        assert going is not None and going.task is not None
        going.task.cancel()
        await asyncio.wait({going.task})
        going.publish(reason)

    async def _require_campaign(self, campaign_id: str) -> Campaign:
        for campaign in await self._store.campaigns.campaigns():
            if campaign.campaign_id == campaign_id:
                return campaign
        raise Invalid(f"campaign_id: {campaign_id!r} is not known (see `pharoah-provider campaigns`)")

    async def _start(self, campaign: Campaign) -> _Going:
        """Begin a campaign or go on with it; the caller holds the lock, and no other campaign runs."""
        await self._store.campaigns.set_state(campaign.campaign_id, CampaignState.RUNNING)
        going = self._going = _Going(replace(campaign, state=CampaignState.RUNNING))
        going.task = asyncio.create_task(self._to_its_end(going))
        return going

    async def _to_its_end(self, going: _Going) -> None:
        campaign_id = going.campaign.campaign_id
        state, ended = CampaignState.PAUSED, None
        try:
            state = CampaignState.DONE if await self._run(going) else CampaignState.SPENT
        except* Exception as failures:  # noqa: BLE001 - whoever follows the campaign raises it
            ended = _first(failures)
            log.warning("campaign %s is paused: %s: %s", campaign_id, type(ended).__name__, ended)
        # Whoever ends this task holds the lock and waits for it. A task group may lose the cancellation.
        if self._going is going:
            async with self._changing:
                if self._going is going:
                    await self._store_end(going, state, ended)

    async def _store_end(self, going: _Going, state: CampaignState, ended: Exception | None) -> None:
        """The campaign has ended, and those who follow it hear of it, also where its state cannot be stored; then the
        campaign goes on when it is resumed, or when the provider is restarted."""
        campaign_id = going.campaign.campaign_id
        try:
            await self._store.campaigns.set_state(campaign_id, state, str(ended or ""))
        except Exception as error:  # noqa: BLE001 - whoever follows the campaign raises it
            log.warning("campaign %s: its state %s is not stored: %s", campaign_id, state, error)
            ended = ended or error
        finally:
            self._going = None
            going.publish(ended)

    async def _run(self, going: _Going) -> bool:
        """Run what is left on its executor. Whether all is done."""
        campaign, store = going.campaign, self._store.campaigns
        works, suspects = await store.works(campaign.campaign_id), await store.suspects(campaign.campaign_id)
        try:
            kind = executor_of(campaign.executor)
        except ValueError as error:
            raise NotReady(str(error)) from None
        async with kind.open(campaign.executor, self._fleet) as executor:
            run = CampaignRun(
                campaign=campaign,
                works=works,
                suspects=suspects,
                executor=executor,
                store=store,
                in_use=self._in_use,
                report=going.publish,
                clock=self._clock,
            )
            return await run.run(OwnFingerprints(self._store.dry_runs))


def _first(failures: ExceptionGroup[Exception]) -> Exception:
    """The first exception of a group and of the groups in it."""
    found: Exception = failures
    while isinstance(found, ExceptionGroup):
        found = found.exceptions[0]
    return found


def check_budget(minutes: float) -> float:
    """The budget in seconds. Raises Invalid for one that is no time."""
    if not 0 <= minutes <= MAX_BUDGET_MINUTES:
        raise Invalid(f"budget_minutes: {minutes:g} is not between 0 and {MAX_BUDGET_MINUTES:g}")
    return minutes * 60.0


def _executor_settings(plan: CampaignPlan, options: PlanOptions) -> ExecutorSettings:
    """The options of the command count before those of the campaign file. Raises Invalid."""
    stated = dict(plan.executor)
    if options.executor.get("name", stated.get("name")) != stated.get("name"):
        stated = {}  # the options in the file are those of another executor
    try:
        settings = ExecutorSettings.check({**stated, **options.executor})
        executor_of(settings)
    except ValueError as error:
        raise Invalid(str(error)) from None
    return settings
