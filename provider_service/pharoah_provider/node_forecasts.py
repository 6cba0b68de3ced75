"""Forecasts of failures of nodes: the hazard model is learned, handed to all agents, and used once an hour.

Whenever something is learned, the model of all nodes is learned again from the trouble that agents have reported and
from the incidents of nodes (`pharoah_learning.node_hazards`, ADR 55). Every agent gets it, signed, for the sidecars of
its node. The provider itself uses it to choose which idle nodes are checked first.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from math import inf, log1p
from typing import TYPE_CHECKING, NamedTuple

from pharoah_learning.node_failures import HOUR_SECONDS, NodeFailure
from pharoah_protocol.hazard_model import Forecast, HazardModelError, PublishedHazardModel
from pharoah_protocol.incident_states import CONFIRMED
from pharoah_protocol.vocabulary import Resource
from pharoah_provider.agent_connection import HazardModelOrder
from pharoah_provider.domain import SubjectKind, Transition
from pharoah_provider.fleet import Fleet
from pharoah_provider.storage.base import Storage
from pharoah_serving.clock import Clock

if TYPE_CHECKING:
    from pharoah_learning.node_hazards import LearnedNodeHazards
    from pharoah_learning.node_lives import NodeHours

log = logging.getLogger("pharoah.provider.node_forecasts")

WINDOW_SECONDS = 28 * 24 * HOUR_SECONDS
"""How far back trouble and failures are looked at. Features of a thousand nodes and four weeks take 110 MB."""
FAILING_KINDS = (SubjectKind.NODE, SubjectKind.CHECK)
"""Subjects whose incidents are failures of nodes: what jobs show of a node, and what checks of the idle node show. Both
have the name of the node."""
AGAIN_SECONDS = HOUR_SECONDS
"""How often forecasts are made."""
_DAY = -1
"""The place of the longest horizon, a day."""


class NodeForecast(NamedTuple):
    """The forecast for one node."""

    node: str
    forecast: Forecast
    resource: Resource | None
    """What it most probably fails of."""
    alarming: bool
    """Whether it is likely to fail."""


class NodeForecasts:
    """Learns, announces and uses the hazard model of nodes."""

    def __init__(self, store: Storage, fleet: Fleet, clock: Clock, sign: Callable[[bytes], bytes]) -> None:
        """`sign` gives the provider's signature of a model's content."""
        self._store, self._fleet, self._clock, self._sign = store, fleet, clock, sign
        self._model: PublishedHazardModel | None = None
        self._rates: dict[str, Mapping[Resource, float]] = {}
        self._due_at = -inf
        """Seconds of the steady clock."""

    async def restore(self) -> None:
        """After a restart: what was learned before it holds."""
        if (content := await self._store.hazards.newest_model()) is not None:
            self._use(content)

    async def learn(self) -> str:
        """Learn the model again; a line about it for the operator. Without a model none holds any more."""
        now = self._clock.wall()
        learned = await self._learn(now)
        if learned.model is None:
            await self._store.hazards.remove_model()
            self._model, self._rates = None, {}
            self._fleet.set_hazard_model(HazardModelOrder())
        else:
            content = learned.model.encode().decode()
            await self._store.hazards.put_model(content, now, learned.check.encode() if learned.check else "")
            self._use(content)
        return learned.note

    async def look(self) -> None:
        """Make the forecasts that are due; once a minute. Raises StoreError."""
        if self._model is None or self._clock.steady() < self._due_at:
            return
        model = self._model
        found = await forecasts(self._store, self._clock.wall())
        if model is self._model:  # else it was withdrawn, or another one was learned meanwhile
            self._rates = {one.node: _rates(model, one) for one in found}
            self._due_at = self._clock.steady() + AGAIN_SECONDS

    def rates(self, node: str) -> Mapping[Resource, float]:
        """Failures of each resource of a node that are expected in a day; empty where nothing is known."""
        return self._rates.get(node, {})

    def _use(self, content: str) -> None:
        self._model, self._due_at = _decode(content), -inf
        if self._model is not None:
            self._fleet.set_hazard_model(HazardModelOrder(content.encode(), self._sign(content.encode())))

    async def _learn(self, now: float) -> LearnedNodeHazards:
        from pharoah_learning.node_hazards import (  # imports scipy
            MIN_FAILED_NODES,
            learn_node_hazards,
            too_few_failures,
        )

        hazards, since = self._store.hazards, now - WINDOW_SECONDS
        failures = failures_of(await self._store.incidents.histories(since))
        observed = await hazards.list_observed_hours(since, now)
        failed = {one.node for one in failures}
        if len(failed) < MIN_FAILED_NODES or not observed:
            return too_few_failures(len(failures), len(failed))
        hours = await _hours(self._store, observed, since)
        return await asyncio.to_thread(learn_node_hazards, hours, failures, now)


async def forecasts(store: Storage, now: float) -> list[NodeForecast]:
    """The forecasts for all nodes that were seen within the window; none without a model."""
    from pharoah_learning.node_hazards import newest_scores

    content, since = await store.hazards.newest_model(), now - WINDOW_SECONDS
    model = None if content is None else _decode(content)
    observed = await store.hazards.list_observed_hours(since, now)
    if model is None or not any(observed.values()):
        return []
    hours = await _hours(store, observed, since)
    scores = await asyncio.to_thread(newest_scores, model, hours)
    found = []
    for at, node in enumerate(hours.nodes):
        one = Forecast(float(scores.risk[at]), tuple(map(float, scores.probability[at])),
                       tuple(map(float, scores.hazard[at])))  # fmt: skip
        found.append(NodeForecast(node, one, model.likely_resource(one), model.is_alarming(one)))
    return found


async def _hours(store: Storage, observed: Mapping[str, Iterable[int]], since: float) -> NodeHours:
    """The features of the nodes that were observed since then (unix seconds)."""
    from pharoah_learning.node_lives import node_hours

    signals = trouble_signals()
    return await asyncio.to_thread(node_hours, observed, await store.hazards.trouble_hours(since, signals), signals)


def _decode(content: str) -> PublishedHazardModel | None:
    """A stored model; None for one of a release that wrote it otherwise."""
    try:
        return PublishedHazardModel.decode(content.encode())
    except HazardModelError as error:
        log.warning("the hazard model of nodes cannot be used: %s", error)
        return None


def failures_of(changes: Iterable[Transition]) -> list[NodeFailure]:
    """The failures of nodes: incidents that were confirmed, from when they began until they were over. `changes` holds
    whole histories: of an incident whose confirmation is missing, nobody would know that the node failed."""
    failures: dict[str, NodeFailure] = {}
    for change in sorted(changes, key=lambda one: one.changed_at):
        if change.subject.kind not in FAILING_KINDS or not change.established:
            continue
        known = failures.get(change.incident_id)
        if change.state is CONFIRMED:
            since = known.since if known else change.since
            failures[change.incident_id] = NodeFailure(change.subject.name, since, inf, change.resource)
        elif known is not None and not change.state.is_open:
            failures[change.incident_id] = known._replace(until=change.changed_at)
    return list(failures.values())


def trouble_signals() -> tuple[str, ...]:
    """Names of the signals that leave every node."""
    from pharoah_provider.agent.signals import AGENT_SIGNALS  # reads all signals, which only this needs

    return tuple(sorted(signal.name for signal in AGENT_SIGNALS if signal.leaves_node))


def _rates(model: PublishedHazardModel, one: NodeForecast) -> dict[Resource, float]:
    """The expected failures within a day, shared out by the hazards of the resources."""
    expected = -log1p(-min(one.forecast.probability[_DAY], 0.999))
    total = sum(one.forecast.hazard) or 1.0
    shares = zip(model.resources, one.forecast.hazard, strict=True)
    return {resource: expected * hazard / total for resource, hazard in shares if resource is not None}
