"""Carries out what the classes of nodes call for: recommended or enforced, within a breaker, and reversible.

Whenever something was learned, the class of every node is looked at again (`pharoah_learning.node_actions`). What
changes is stored, and the agent of the node hears of it. An operator returns a repaired node to service; from then on
only what it does after that counts.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Collection, Mapping, Sequence
from enum import StrEnum

from pharoah_learning.context_evidence import in_contexts
from pharoah_learning.context_rule import ContextRule
from pharoah_learning.evidence import LeftOut
from pharoah_learning.node_actions import Breaker, NodeDecision, decide, fleet_health_ratio
from pharoah_learning.node_classes import ClassedNode, classify_nodes
from pharoah_learning.usable_trials import usable_trials
from pharoah_learning.wrong_trials import mark_wrong
from pharoah_protocol.vocabulary import NodeAction, Outcome
from pharoah_provider.domain import NodeAdvice
from pharoah_provider.fleet import Fleet
from pharoah_provider.storage.base import Storage
from pharoah_provider.storage.records import StoredDecision
from pharoah_serving.clock import Clock
from pharoah_serving.errors import Invalid
from pharoah_serving.metrics import Metrics

log = logging.getLogger("pharoah.provider.node_actions")


GONE_SECONDS = 7 * 86_400.0
"""A node that was not seen for a week may be gone for good. A choice: repairs take days."""


class ActionMode(StrEnum):
    """How far actions go."""

    OBSERVE = "observe"
    """They are listed, and nobody else hears of them."""
    RECOMMEND = "recommend"
    """The agent of the node hears of them; `pharoah-agent check` prints them and reports no problem."""
    ENFORCE = "enforce"
    """A drained node is a problem for `pharoah-agent check`, and its offers warn tenants."""


class NodeActions:
    """Decides, stores and announces the actions of all nodes."""

    def __init__(
        self,
        store: Storage,
        fleet: Fleet,
        metrics: Metrics,
        clock: Clock,
        mode: ActionMode = ActionMode.RECOMMEND,
        breaker: Breaker | None = None,
    ) -> None:
        self._store, self._fleet, self._metrics, self._clock = store, fleet, metrics, clock
        self._mode, self._breaker = mode, breaker or Breaker()
        self._alone = asyncio.Lock()
        """One review at a time: the second one must see what the first one has decided."""

    async def restore(self) -> None:
        """After a restart: what was decided before it holds."""
        newest = await self._store.node_actions.newest()
        for one in newest:
            self._announce(one.decision)
        await self._count_newest(newest)

    async def review(self) -> str:
        """Look at all classes again; a line about what is to be done now, for the operator."""
        async with self._alone:
            nodes = await self._store.nodes.nodes()
            newest = {one.decision.node: one for one in await self._store.node_actions.newest()}
            classed = await classify_stored(self._store, self._fleet.contexts.rule, self._clock.wall())
            context_of = {node.node: self._fleet.contexts.find_name(node) for node in nodes}
            gone = {name for name in context_of if self._fleet.away_seconds(name) >= GONE_SECONDS}
            decisions = decide(classed, context_of, _list_drained(newest), self._breaker, gone)
            decisions += [_healthy(name, newest) for name in newest.keys() - {one.node for one in decisions}]
            changed = [one for one in decisions if one.node not in newest or _differs(one, newest[one.node].decision)]
            await self._store.node_actions.put(changed, self._clock.wall())
            for one in decisions:
                self._announce(one)
            self._count(decisions, len(nodes))
            return _line(decisions, self._mode)

    async def return_node(self, node: str) -> None:
        """An operator returns a node to service. Raises Invalid for a node that is not known."""
        async with self._alone:
            if await self._store.nodes.node(node) is None:
                raise Invalid(f"node: {node!r} is not known (see `pharoah-provider nodes`)")
            decision = NodeDecision(node=node)
            await self._store.node_actions.put([decision], self._clock.wall(), by_operator=True)
            self._announce(decision)
            await self._count_newest(await self._store.node_actions.newest())

    def _announce(self, one: NodeDecision) -> None:
        if self._mode is not ActionMode.OBSERVE:
            self._fleet.set_advice(one.node, _advice(one, enforced=self._mode is ActionMode.ENFORCE))

    async def _count_newest(self, newest: Sequence[StoredDecision]) -> None:
        self._count([one.decision for one in newest], len(await self._store.nodes.nodes()))

    def _count(self, decisions: Collection[NodeDecision], nodes: int) -> None:
        self._metrics.fleet_health.set(fleet_health_ratio(decisions, nodes))
        for action in NodeAction:
            self._metrics.node_actions.labels(action).set(sum(one.action is action for one in decisions))


async def classify_stored(store: Storage, rule: ContextRule, now: float) -> list[ClassedNode]:
    """The classes of nodes in the contexts of a rule, from the trials before `now` (unix seconds).

    They are the trials that learning uses, and others of known contexts, whether they failed or not: of one that ended
    before it had a fingerprint, learning does not know which job it was, but it is known where it failed. One that went
    well on another device than its context names says nothing about that.
    """
    trials, returned = await store.evidence.trials(before=now), await store.node_actions.list_returned()

    def classify() -> list[ClassedNode]:
        usable = mark_wrong(usable_trials(trials, LeftOut()))
        used = {(one.node, one.content, one.ran_at) for one in usable}
        others = [
            one
            for one in trials
            if one.context_id
            and (one.node, one.content, one.ran_at) not in used
            and (one.outcome is not Outcome.OK or one.device is one.context_device)
        ]
        return classify_nodes(in_contexts([*usable, *others], rule), returned)

    return await asyncio.to_thread(classify)


def render_work(content: str) -> str:
    """The name of the content of a cell, for people: `gpt (attention=math, length=1024)`."""
    workload, settings = json.loads(content)
    text = ", ".join(f"{name}={value}" for name, value in settings.items())
    return f"{workload} ({text})" if text else str(workload)


def _list_drained(newest: Mapping[str, StoredDecision]) -> set[str]:
    return {name for name, one in newest.items() if one.decision.action is NodeAction.DRAIN}


def _healthy(node: str, newest: Mapping[str, StoredDecision]) -> NodeDecision:
    """A node that has no class any more. One that an operator has returned stays as it was stored."""
    known = newest[node].decision
    return known if known.action is NodeAction.KEEP and not known.held_back else NodeDecision(node=node)


def _differs(one: NodeDecision, before: NodeDecision) -> bool:
    """Whether more has changed than a probability."""
    return (one.action, one.node_class, one.wrong_for, one.held_back) != (
        before.action,
        before.node_class,
        before.wrong_for,
        before.held_back,
    )


def _advice(one: NodeDecision, *, enforced: bool) -> NodeAdvice:
    failed = f"{one.node_class} ({one.probability:.2f}): {one.failures} of {one.reruns} cells failed"
    match one.action:
        case NodeAction.DRAIN:
            return NodeAdvice(one.action, f"drain this node; {failed}", enforced)
        case NodeAction.AVOID:
            return NodeAdvice(one.action, f"avoid {', '.join(map(render_work, one.wrong_for))}; {failed}", enforced)
        case NodeAction.KEEP:
            return NodeAdvice()


def _line(decisions: Collection[NodeDecision], mode: ActionMode) -> str:
    named = {
        "drain": [one.node for one in decisions if one.action is NodeAction.DRAIN],
        "avoid": [one.node for one in decisions if one.action is NodeAction.AVOID],
        "held back": [one.node for one in decisions if one.held_back],
    }
    shown = "; ".join(f"{what} {', '.join(nodes)}" for what, nodes in named.items() if nodes)
    return f"nodes ({mode}): {shown or 'nothing to do'}" + ("; see `pharoah-provider node-actions`" if shown else "")
