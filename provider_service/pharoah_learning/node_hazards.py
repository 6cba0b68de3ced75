"""The hazard model of a provider's nodes: learned from their trouble and failures, tried on nodes it was not fitted on,
and published where it is better than chance (`pharoah_protocol.hazard_model`).

Two models are fitted: one of all features, and a simple one of the share of time with trouble alone. The first is used
only where it orders the nodes that were held out better, by more than the noise of that comparison.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, isinf, sqrt
from typing import NamedTuple

import numpy as np

from pharoah_learning.hazard_check import HazardCheck, check_hazards
from pharoah_learning.hazard_fits import Fleet, TooLittleSeen, learn_hazards
from pharoah_learning.hazards import HORIZONS, HazardModel, Pieces, Scores
from pharoah_learning.models.alarm_budget import budget_threshold
from pharoah_learning.models.calibration import Calibration
from pharoah_learning.models.mantel_haenszel import Array
from pharoah_learning.node_failures import NodeFailure
from pharoah_learning.node_lives import NodeHours, NodeLives, node_lives
from pharoah_protocol.hazard_model import Curve, PublishedHazardModel
from pharoah_protocol.vocabulary import Resource

LEAST_FAILURES = 20
"""Failures of nodes from which on a model is fitted. A Cox model needs some ten failures for each thing that matters
(Peduzzi and others 1995), and nodes have few ways to fail that their signals show."""
HELD_OUT = 3
"""One node of so many is held out from the fit, for the calibration and for the comparison with chance."""
CERTAIN_Z = 1.645
"""One-sided 5 % of a normal distribution."""
FALSE_ALARMS_PER_HOUR = 2 / 1000 / 24
"""Two in a thousand days of healthy nodes."""
HOLD_HOURS = 24
"""An alarm is not repeated for so long."""
ALARM_MARGIN = 0.05
"""What is added to the risk above which a node alarms. Most healthy nodes have one and the same risk, and the digits of
a published model are rounded."""
CURVE_POINTS = 65
"""Points of a published calibration: between them it is linear."""
DIGITS = 6
"""Significant digits of published numbers."""
SIMPLE_FEATURE = "level"
_SEED = 0


class LearnedNodeHazards(NamedTuple):
    """What was learned; no model where there is too little to learn from, or nothing to be seen."""

    model: PublishedHazardModel | None
    note: str
    """One line for people."""
    check: HazardCheck | None = None
    """How the model does on the nodes that it was not fitted on."""


class _Ranked(NamedTuple):
    """How a model orders the failures of held-out nodes: for each, the share of the others at risk with less risk."""

    places: Array

    @property
    def mean(self) -> float:
        return float(self.places.mean()) if len(self.places) else 0.5

    @property
    def z(self) -> float:
        """Distance from chance, under which places are uniform."""
        return (self.mean - 0.5) * sqrt(12 * len(self.places))


def learn_node_hazards(hours: NodeHours, failures: Sequence[NodeFailure], now: float) -> LearnedNodeHazards:
    """Learn from what was seen of nodes; `now` in unix seconds."""
    try:
        lives = node_lives(hours, failures)
    except ValueError as error:
        return LearnedNodeHazards(None, f"hazards of nodes: {error}")
    count = int((lives.fleet.cause > 0).sum())
    if count < LEAST_FAILURES:
        return too_few_failures(count)
    fitted_on, held_out = _split(lives)
    if not fitted_on.cause.any() or not held_out.cause.any():
        return LearnedNodeHazards(None, "hazards of nodes: too few nodes have failed")
    simple = [at for at, name in enumerate(hours.names) if name.endswith(f".{SIMPLE_FEATURE}")]
    try:
        first = _fitted(fitted_on, held_out, simple, "the share of time with trouble")
        second = _fitted(fitted_on, held_out, list(range(len(hours.names))), "all features")
    except np.linalg.LinAlgError:
        return LearnedNodeHazards(None, "hazards of nodes: the fit did not converge")
    except TooLittleSeen as error:
        return LearnedNodeHazards(None, f"hazards of nodes: {error}")
    best = second if _is_better(second.ranked, first.ranked) else first
    nodes = len(set(lives.nodes))
    shown = f"{count} failures of {nodes} nodes, place {best.ranked.mean:.2f} of held-out failures (chance 0.5)"
    if best.ranked.z < CERTAIN_Z:
        return LearnedNodeHazards(None, f"hazards of nodes: {shown}; not used, because chance gives as much")
    published = _published(best.model, best.held_out, now, count, nodes)
    alarm_risk = inf if published.alarm_risk is None else published.alarm_risk
    check = check_hazards(best.model, alarm_risk, best.held_out, lives.fleet, _SEED)
    return LearnedNodeHazards(published, f"hazards of nodes: {shown}, by {best.name}", check)


def too_few_failures(count: int) -> LearnedNodeHazards:
    """What is learned from fewer than LEAST_FAILURES."""
    return LearnedNodeHazards(None, f"hazards of nodes: {count} failures, {LEAST_FAILURES} are needed")


class _Fitted(NamedTuple):
    """A model of some features, and how it does on the nodes that were held out."""

    name: str
    model: HazardModel
    held_out: Fleet
    """With these features."""
    ranked: _Ranked


def _fitted(fitted_on: Fleet, held_out: Fleet, kept: Sequence[int], name: str) -> _Fitted:
    """Fit on the features at some places. Raises LinAlgError and TooLittleSeen."""
    own = _only(held_out, kept)
    model = learn_hazards(_only(fitted_on, kept), own, _SEED)
    return _Fitted(name, model, own, _ranked(model, own))


def as_arrays(published: PublishedHazardModel) -> HazardModel:
    """A published model for a whole fleet in one pass."""
    coefficients = np.array(published.coefficients, dtype=np.float32)
    outputs = len(published.constants)
    return HazardModel(
        names=published.features,
        resources=tuple(one or "" for one in published.resources),
        groups=(),
        pieces=Pieces(np.array(published.low, dtype=np.float32), np.array(published.high, dtype=np.float32)),
        common=coefficients.reshape(-1, outputs),
        group=np.zeros((1, len(published.features), outputs), dtype=np.float32),
        constant=np.array([published.constants], dtype=np.float32),
        calibrations=tuple(Calibration(one.low, one.high, one.probabilities) for one in published.calibrations),
    )


def newest_scores(published: PublishedHazardModel, hours: NodeHours) -> Scores:
    """The scores of all nodes at the end of the window, in one pass. A feature that this release does not know is 0."""
    features = np.zeros((len(hours.nodes), len(published.features)), dtype=np.float32)
    for at, name in enumerate(published.features):
        if name in hours.names:
            features[:, at] = hours.features[:, -1, hours.names.index(name)]
    return as_arrays(published).score(features, np.full(len(features), -1))


def _split(lives: NodeLives) -> tuple[Fleet, Fleet]:
    """The lives of two thirds of the nodes, and those of the others. Nodes that have failed are shared out first, so
    that both have some."""
    failed = {node for node, cause in zip(lives.nodes, lives.fleet.cause, strict=True) if cause}
    rng = np.random.default_rng(_SEED)
    held = {
        node
        for nodes in (sorted(failed), sorted(set(lives.nodes) - failed))
        for at, node in enumerate(rng.permutation(nodes).tolist())
        if at % HELD_OUT == 0
    }
    is_held = np.array([node in held for node in lives.nodes])
    return _units(lives.fleet, ~is_held), _units(lives.fleet, is_held)


def _units(fleet: Fleet, chosen: np.ndarray) -> Fleet:
    return fleet._replace(
        features=fleet.features[chosen],
        last=fleet.last[chosen],
        cause=fleet.cause[chosen],
        group=fleet.group[chosen],
        observable=fleet.observable_hours[chosen],
    )


def _only(fleet: Fleet, kept: Sequence[int]) -> Fleet:
    """The fleet with some of its features."""
    return fleet._replace(
        names=tuple(fleet.names[at] for at in kept),
        worse=tuple(fleet.worse[at] for at in kept),
        features=fleet.features[:, :, kept],
    )


def _ranked(model: HazardModel, held_out: Fleet) -> _Ranked:
    places = []
    for unit in np.flatnonzero(held_out.cause):
        hour = held_out.last[unit]
        others = (held_out.last >= hour) & (np.arange(len(held_out.last)) != unit)
        if not others.any():
            continue
        rows = held_out.features[np.append(np.flatnonzero(others), unit), hour]
        risks = model.score(rows, np.full(len(rows), -1)).risk
        places.append(((risks[:-1] < risks[-1]).mean() + (risks[:-1] <= risks[-1]).mean()) / 2)
    return _Ranked(np.array(places))


def _is_better(one: _Ranked, other: _Ranked) -> bool:
    """Whether the first is better by more than one standard error of their difference."""
    difference = one.places - other.places
    if len(difference) < 2:
        return False
    return bool(difference.mean() > difference.std(ddof=1) / sqrt(len(difference)))


def _published(model: HazardModel, held_out: Fleet, now: float, failures: int, nodes: int) -> PublishedHazardModel:
    assert not model.expected.effects.size, "a published model has no place for expected counts"
    threshold = _alarm_risk(model, held_out)
    return PublishedHazardModel(
        made_at=now,
        features=model.names,
        resources=tuple(Resource(name) if name else None for name in model.resources),
        horizons=HORIZONS,
        low=tuple(map(_rounded, model.pieces.low)),
        high=_rounded(model.pieces.high),
        coefficients=tuple(map(_rounded, model.common)),
        constants=_rounded(model.constant[-1]),
        calibrations=tuple(map(_curve, model.calibrations)),
        alarm_risk=None if isinf(threshold) else _rounded([threshold + ALARM_MARGIN])[0],
        failures=failures,
        nodes=nodes,
    )


def _alarm_risk(model: HazardModel, held_out: Fleet) -> float:
    """The risk above which healthy nodes give no more than the false alarms that are allowed; infinite for too few."""
    healthy = _units(held_out, held_out.cause == 0)
    if not len(healthy.last):
        return inf
    unit, hour = np.nonzero(healthy.observed)
    scores = model.score(healthy.features[unit, hour], np.full(len(unit), -1))
    return budget_threshold(healthy.placed(scores.risk), FALSE_ALARMS_PER_HOUR, HOLD_HOURS)


def _curve(calibration: Calibration) -> Curve:
    """The calibration on a coarser grid."""
    grid = np.linspace(calibration.low, calibration.high, CURVE_POINTS)
    low, high = _rounded([calibration.low, calibration.high])
    return Curve(low=low, high=high, probabilities=_rounded(calibration(grid).clip(0.0, 1.0)))


def _rounded(numbers: Sequence[float] | np.ndarray) -> tuple[float, ...]:
    return tuple(float(f"{number:.{DIGITS}g}") for number in numbers)
