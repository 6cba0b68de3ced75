"""The hazard model of a provider's nodes: learned from their trouble and failures, tried on nodes it was not fitted on,
and published where it is better than chance (`pharoah_protocol.hazard_model`).

Two models are fitted: one of all features, and a simple one of the share of time with trouble alone. The first is used
only where it orders the nodes that were held out better, by more than the noise of that comparison.

A node that fails again and again shows the same fault each time, so nodes are counted that have failed, rather than
failures.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from math import inf, isinf, sqrt
from typing import NamedTuple

import numpy as np

from pharoah_learning.hazard_check import HazardCheck, Trial, check_hazards
from pharoah_learning.hazard_fits import Fleet, TooLittleSeen, learn_hazards
from pharoah_learning.hazards import HORIZONS, HazardModel, Pieces, Scores, place_among
from pharoah_learning.models.alarm_budget import budget_threshold
from pharoah_learning.models.calibration import Calibration
from pharoah_learning.models.mantel_haenszel import Array
from pharoah_learning.node_failures import NodeFailure
from pharoah_learning.node_lives import NodeHours, NodeLives, node_lives, units
from pharoah_protocol.hazard_model import Curve, PublishedHazardModel
from pharoah_protocol.vocabulary import Resource

MIN_FAILED_NODES = 20
"""Nodes that have failed from which on a model is fitted. A Cox model needs some ten failures for each thing that
matters (Peduzzi and others 1995), and nodes have few ways to fail that their signals show."""
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
HALVES = 2
"""For the check, held-out nodes are halved: each half is forecast with the calibration and the alarms of the other."""
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
    """How a model orders the failures of held-out nodes."""

    places: Array
    """For each node that failed, the share of the others at risk with less risk: the mean over its failures."""

    @property
    def mean(self) -> float:
        return float(self.places.mean()) if len(self.places) else 0.5

    @property
    def z(self) -> float:
        """Distance from chance, under which the place of a failure is uniform, and the mean over several failures of a
        node no wider."""
        return (self.mean - 0.5) * sqrt(12 * len(self.places))


def learn_node_hazards(hours: NodeHours, failures: Sequence[NodeFailure], now: float) -> LearnedNodeHazards:
    """Learn from what was seen of nodes; `now` in unix seconds."""
    try:
        lives = node_lives(hours, failures)
    except ValueError as error:
        return LearnedNodeHazards(None, f"hazards of nodes: {error}")
    if len(lives.failed) < MIN_FAILED_NODES:
        return too_few_failures(int((lives.fleet.cause > 0).sum()), len(lives.failed))
    is_held = lives.share_of_nodes(HELD_OUT, _SEED)
    fitted_on, held_out = lives.select(~is_held), lives.select(is_held)
    simple = [at for at, name in enumerate(hours.names) if name.endswith(f".{SIMPLE_FEATURE}")]
    try:
        first = _fit(fitted_on, held_out, simple, "the share of time with trouble")
        second = _fit(fitted_on, held_out, list(range(len(hours.names))), "all features")
    except np.linalg.LinAlgError:
        return LearnedNodeHazards(None, "hazards of nodes: the fit did not converge")
    except TooLittleSeen as error:
        return LearnedNodeHazards(None, f"hazards of nodes: {error}")
    return _learn(second if _is_better(second.ranked, first.ranked) else first, lives, now)


def _learn(best: _Fitted, lives: NodeLives, now: float) -> LearnedNodeHazards:
    """The model that is used, unless chance gives as much."""
    count, failed, nodes = int((lives.fleet.cause > 0).sum()), len(lives.failed), len(set(lives.nodes))
    place = f"place {best.ranked.mean:.2f} of held-out nodes before their failures (chance 0.5)"
    note = f"hazards of nodes: {count} failures of {failed} among {nodes} nodes, {place}"
    if best.ranked.z < CERTAIN_Z:
        return LearnedNodeHazards(None, f"{note}; not used, because chance gives as much")
    alarm_risk = _alarm_risk(best.model, best.held_out.fleet)
    published = _publish(best.model, alarm_risk, now, count, nodes)
    check, note = _check(best, alarm_risk, lives), f"{note}, by {best.name}"
    if not check.is_cross_fitted:
        note += "; too few were held out to check calibration and alarms on other nodes"
    return LearnedNodeHazards(published, note, check)


def too_few_failures(failures: int, nodes: int) -> LearnedNodeHazards:
    """What is learned when fewer than MIN_FAILED_NODES have failed."""
    needed = f"{MIN_FAILED_NODES} nodes that have failed are needed"
    return LearnedNodeHazards(None, f"hazards of nodes: {failures} failures of {nodes} nodes; {needed}")


class _Fitted(NamedTuple):
    """A model of some features, and how it does on the nodes that were held out."""

    name: str
    fitted_on: NodeLives
    """With these features."""
    held_out: NodeLives
    """With these features."""
    model: HazardModel
    ranked: _Ranked


def _fit(fitted_on: NodeLives, held_out: NodeLives, kept: Sequence[int], name: str) -> _Fitted:
    """Fit on the features at some places. Raises LinAlgError and TooLittleSeen."""
    own, others = held_out.with_features(kept), fitted_on.with_features(kept)
    model = learn_hazards(others.fleet, own.fleet, _SEED)
    return _Fitted(name, others, own, model, _rank(model, own))


def _check(best: _Fitted, alarm_risk: float, lives: NodeLives) -> HazardCheck:
    """How the model does on the held-out nodes. Where halves of them are too few for a calibration, or for the alarms
    that all of them give, the nodes are forecast with what was set on themselves."""
    trials = _cross_fitted(best)
    is_silenced = any(isinf(one.alarm_risk) for one in trials) and not isinf(alarm_risk)
    if trials and not is_silenced:
        return check_hazards(trials, lives.fleet, _SEED, is_cross_fitted=True)
    whole = Trial(best.model, alarm_risk, best.held_out.fleet)
    return check_hazards([whole], lives.fleet, _SEED, is_cross_fitted=False)


def _cross_fitted(best: _Fitted) -> list[Trial]:
    """Each half of the held-out nodes, with the model as the other half calibrates it; none with too few failures."""
    first = best.held_out.share_of_nodes(HALVES, _SEED)
    halves = [best.held_out.select(first).fleet, best.held_out.select(~first).fleet]
    trials = []
    for own, other in (halves, halves[::-1]):
        try:
            model = learn_hazards(best.fitted_on.fleet, own, _SEED)  # the same fit again: the same seed
        except (TooLittleSeen, np.linalg.LinAlgError):
            return []
        trials.append(Trial(model, _alarm_risk(model, own), other))
    return trials


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


def _rank(model: HazardModel, held_out: NodeLives) -> _Ranked:
    fleet, places = held_out.fleet, defaultdict[str, list[float]](list)
    for unit in np.flatnonzero(fleet.cause):
        hour = fleet.last[unit]
        others = (fleet.last >= hour) & (np.arange(len(fleet.last)) != unit)
        if not others.any():
            continue
        rows = fleet.features[np.append(np.flatnonzero(others), unit), hour]
        risks = model.score(rows, np.full(len(rows), -1)).risk
        places[held_out.nodes[unit]].append(place_among(risks[:-1], float(risks[-1])))
    return _Ranked(np.array([np.mean(of_node) for of_node in places.values()]))


def _is_better(one: _Ranked, other: _Ranked) -> bool:
    """Whether the first is better by more than one standard error of their difference."""
    difference = one.places - other.places
    if len(difference) < 2:
        return False
    return bool(difference.mean() > difference.std(ddof=1) / sqrt(len(difference)))


def _publish(model: HazardModel, alarm_risk: float, now: float, failures: int, nodes: int) -> PublishedHazardModel:
    assert not model.expected.effects.size, "a published model has no place for expected counts"
    return PublishedHazardModel(
        made_at=now,
        features=model.names,
        resources=tuple(Resource(name) if name else None for name in model.resources),
        horizons=HORIZONS,
        low=tuple(map(_round, model.pieces.low)),
        high=_round(model.pieces.high),
        coefficients=tuple(map(_round, model.common)),
        constants=_round(model.constant[-1]),
        calibrations=tuple(map(_curve, model.calibrations)),
        alarm_risk=None if isinf(alarm_risk) else alarm_risk,
        failures=failures,
        nodes=nodes,
    )


def _alarm_risk(model: HazardModel, held_out: Fleet) -> float:
    """The risk above which healthy nodes give no more than the false alarms that are allowed; infinite for too few."""
    healthy = units(held_out, held_out.cause == 0)
    if not len(healthy.last):
        return inf
    unit, hour = np.nonzero(healthy.observed)
    scores = model.score(healthy.features[unit, hour], np.full(len(unit), -1))
    threshold = budget_threshold(healthy.place(scores.risk), FALSE_ALARMS_PER_HOUR, HOLD_HOURS)
    return inf if isinf(threshold) else _round([threshold + ALARM_MARGIN])[0]


def _curve(calibration: Calibration) -> Curve:
    """The calibration on a coarser grid."""
    grid = np.linspace(calibration.low, calibration.high, CURVE_POINTS)
    low, high = _round([calibration.low, calibration.high])
    return Curve(low=low, high=high, probabilities=_round(calibration(grid).clip(0.0, 1.0)))


def _round(numbers: Sequence[float] | np.ndarray) -> tuple[float, ...]:
    return tuple(float(f"{number:.{DIGITS}g}") for number in numbers)
