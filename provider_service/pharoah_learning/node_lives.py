"""Lives of nodes: hours in which their agents reported, and the failures that end them.

A life begins when a node is first seen, or when its last failure is over. It ends with the next failure, or with the
last hour in which the node was seen. What is known in each hour are the features of trouble signals
(`pharoah_protocol.signal_features`), computed over the whole past of the node.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import ceil, floor, inf
from typing import NamedTuple

import numpy as np

from pharoah_learning.fleet_features import fleet_features
from pharoah_learning.hazard_fits import Fleet
from pharoah_learning.hazards import Columns
from pharoah_learning.node_failures import HOUR_SECONDS, NodeFailure, TroubleHour
from pharoah_protocol.hazard_model import feature_names
from pharoah_protocol.signal_features import HOURS, SignalKind
from pharoah_protocol.vocabulary import WorseDirection


class NodeHours(NamedTuple):
    """What was known of each node in each hour of a window."""

    nodes: tuple[str, ...]
    first_hour: int
    """Hours since 1970."""
    observed: np.ndarray
    """Whether a node's agent reported, shape (nodes, hours)."""
    features: Columns
    """Shape (nodes, hours, features)."""
    names: tuple[str, ...]


class NodeLives(NamedTuple):
    """Lives as units of a fleet."""

    fleet: Fleet
    nodes: tuple[str, ...]
    """The node of each life."""

    @property
    def failed(self) -> set[str]:
        """The nodes of lives that a failure ended."""
        return {node for node, cause in zip(self.nodes, self.fleet.cause, strict=True) if cause}

    def select(self, chosen: np.ndarray) -> NodeLives:
        """Some of the lives: a mask, shape (lives,)."""
        nodes = tuple(node for node, is_chosen in zip(self.nodes, chosen, strict=True) if is_chosen)
        return NodeLives(units(self.fleet, chosen), nodes)

    def with_features(self, kept: Sequence[int]) -> NodeLives:
        """The lives with the features at these places."""
        fleet = self.fleet._replace(
            names=tuple(self.fleet.names[at] for at in kept),
            worse=tuple(self.fleet.worse[at] for at in kept),
            features=self.fleet.features[:, :, kept],
        )
        return self._replace(fleet=fleet)

    def share_of_nodes(self, one_in: int, seed: int) -> np.ndarray:
        """Whether each life is that of a chosen node, shape (lives,). One node of so many is chosen at random. Nodes
        that have failed are shared out first, so that some of them are chosen and others are not."""
        rng, failed = np.random.default_rng(seed), self.failed
        chosen = {
            node
            for nodes in (sorted(failed), sorted(set(self.nodes) - failed))
            for at, node in enumerate(rng.permutation(nodes).tolist())
            if at % one_in == 0
        }
        return np.array([node in chosen for node in self.nodes], dtype=bool)


def units(fleet: Fleet, chosen: np.ndarray) -> Fleet:
    """Some units of a fleet: a mask, shape (units,)."""
    return fleet._replace(
        features=fleet.features[chosen],
        last=fleet.last[chosen],
        cause=fleet.cause[chosen],
        group=fleet.group[chosen],
        observable=fleet.observable_hours[chosen],
    )


def node_hours(
    observed: Mapping[str, Iterable[int]], trouble: Iterable[TroubleHour], signals: Sequence[str]
) -> NodeHours:
    """The features of all nodes. `observed`: hours in which an agent reported; `signals`: names of those that count.

    Raises ValueError when no node was observed.
    """
    hours_of = {node: sorted(set(hours)) for node, hours in sorted(observed.items())}
    hours_of = {node: hours for node, hours in hours_of.items() if hours}
    if not hours_of:
        raise ValueError("observed: no node was")
    first, last = (side(hours[end] for hours in hours_of.values()) for side, end in ((min, 0), (max, -1)))
    place = {node: at for at, node in enumerate(hours_of)}
    seen = np.zeros((len(place), last - first + 1), dtype=bool)
    for node, hours in hours_of.items():
        seen[place[node], np.array(hours) - first] = True
    names = feature_names(signals)
    features = np.zeros((*seen.shape, len(names)), dtype=np.float32)
    width = len(names) // max(len(signals), 1)
    for signal, devices in _by_signal(trouble, set(signals)).items():
        at = signals.index(signal) * width
        for node, shares in devices:
            if node in place:
                row = place[node]
                found = _series(shares, seen[row], first)
                own = features[row, :, at : at + width]
                np.maximum(own, found, out=own)
    return NodeHours(tuple(place), first, seen, features, names)


def _by_signal(trouble: Iterable[TroubleHour], signals: set[str]) -> dict[str, list[tuple[str, list[TroubleHour]]]]:
    """The hours of each device, with its node, by signal."""
    series: dict[tuple[str, str, str], list[TroubleHour]] = defaultdict(list)
    for one in trouble:
        if one.signal in signals:
            series[one.signal, one.node, one.device].append(one)
    found: dict[str, list[tuple[str, list[TroubleHour]]]] = defaultdict(list)
    for (signal, node, _), hours in series.items():
        found[signal].append((node, hours))
    return found


def _series(hours: Sequence[TroubleHour], seen: np.ndarray, first: int) -> np.ndarray:
    """The features of one device: shape (hours, features)."""
    samples = np.where(seen, 0.0, np.nan)
    for one in hours:
        if 0 <= one.hour - first < len(samples) and seen[one.hour - first]:
            samples[one.hour - first] = one.share
    found: np.ndarray = fleet_features(samples[None, :], SignalKind.GAUGE, HOURS)[0]
    return found


def node_lives(hours: NodeHours, failures: Iterable[NodeFailure]) -> NodeLives:
    """The lives of all nodes. Raises ValueError when there is none, as when every node failed in its first hour."""
    by_node: dict[str, list[NodeFailure]] = defaultdict(list)
    for failure in failures:
        by_node[failure.node].append(failure)
    resources = tuple(sorted({one.resource or "" for found in by_node.values() for one in found})) or ("",)
    lives = [(row, life) for row, node in enumerate(hours.nodes) for life in _lives(hours, row, by_node[node])]
    if not lives:
        raise ValueError("lives: there are none")
    longest = max(life.last - life.first + 1 for _, life in lives)
    features = np.zeros((len(lives), longest, len(hours.names)), dtype=np.float32)
    for at, (row, life) in enumerate(lives):
        features[at, : life.last - life.first + 1] = hours.features[row, life.first : life.last + 1]
    last = np.array([life.last - life.first for _, life in lives])
    cause = np.array([0 if life.failure is None else 1 + resources.index(life.failure.resource or "")
                      for _, life in lives])  # fmt: skip
    group = np.full(len(lives), -1)
    observable = np.array([hours.observed.shape[1] - life.first for _, life in lives])
    worse = (WorseDirection.HIGHER,) * len(hours.names)  # each is trouble
    fleet = Fleet(hours.names, worse, resources, (), features, last, cause, group, observable)
    return NodeLives(fleet, tuple(hours.nodes[row] for row, _ in lives))


class _Life(NamedTuple):
    """First and last hour, as places in the window, and the failure that ended it."""

    first: int
    last: int
    failure: NodeFailure | None


def _lives(hours: NodeHours, row: int, failures: Sequence[NodeFailure]) -> Iterator[_Life]:
    """The lives of the node of a row. What fails later than in the hour after the window ends none of them."""
    seen = np.flatnonzero(hours.observed[row])
    begins = int(seen[0])
    for failure in sorted(failures, key=lambda one: one.since):
        failed = floor(failure.since / HOUR_SECONDS) - hours.first_hour
        if failed > hours.observed.shape[1]:
            break
        if failed > begins:
            before = seen[seen < failed]
            if len(before):
                yield _Life(begins, failed - 1, failure)
        later = seen[seen >= ceil(failure.until / HOUR_SECONDS) - hours.first_hour] if failure.until < inf else seen[:0]
        if not len(later):
            return
        begins = max(begins, int(later[0]))
    if int(seen[-1]) >= begins:
        yield _Life(begins, int(seen[-1]), None)
