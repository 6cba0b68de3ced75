"""Hazard models of a fleet: how soon a unit fails, and of what, from the features of its signals.

For each resource there is one proportional hazards model in which failures of other resources only end the observation
(competing causes; Prentice and others 1978). For each resource and longer horizon there is one logistic model of the
probability to fail of it within that time. Hazards are not log-linear in what is measured, so the effect of a feature
may bend (`Pieces`). `hazard_fits` fits all of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pharoah_learning.expected_counts import NOTHING_EXPECTED, ExpectedCounts
from pharoah_learning.models.calibration import SAME_SCORE, Calibration
from pharoah_learning.models.mantel_haenszel import Array

HORIZONS = (1, 6, 24)
"""Hours. For the first one the hazard of now stands; for each of the others there are models of its own."""
CHUNK_UNITS = 2560
"""Units that are scored at once: 34 features of them take 0.35 MB, which a processor's second cache holds."""
MAX_PRODUCT = 262_144
"""Multiplications of one matrix product. OpenBLAS computes products of this size on one core; for larger ones its other
threads would wait for work longer than they compute."""
MAX_LOGIT = 30.0
"""The largest logit of one resource and horizon that counts, and the largest logarithm of a hazard: they keep
exponentials and products of odds finite."""
Columns = NDArray[np.float32]


class Outputs(NamedTuple):
    """What the fitted models say of units, before calibration."""

    log_hazard: Columns
    """The logarithm of the hazard of each resource, per hour, shape (units, resources)."""
    logit: Columns
    """The logit of a failure of any resource within each horizon, shape (units, horizons); within an hour, the
    logarithm of the hazard."""


class Scores(NamedTuple):
    """What the models say of units."""

    risk: Array
    """Orders units by how soon they fail, of anything; larger is sooner. Shape (units,). It is the mean of three
    logarithms: of the hazard, and of the odds to fail within each longer horizon."""
    probability: Array
    """The probability of a failure within each horizon, calibrated, shape (units, horizons)."""
    hazard: Array
    """The hazard of each resource, per hour, shape (units, resources)."""


class Pieces(NamedTuple):
    """Bounds of piecewise linear effects: a piece of a feature is its value, or a lower bound where that is larger."""

    low: Columns
    """Shape (pieces, features)."""
    high: Columns
    """The highest value of each feature that counts, shape (features,)."""

    def columns(self, features: NDArray[np.floating]) -> Columns:
        """Shape (rows, pieces x features); the first columns are the features themselves, nearly never clipped."""
        values = np.minimum(features, self.high, dtype=np.float32)
        found: Columns = np.maximum(values[:, None, :], self.low).reshape(len(features), -1)
        return found


@dataclass(frozen=True, kw_only=True)
class HazardModel:
    """Arrays that score units; nothing else is needed."""

    names: tuple[str, ...]
    resources: tuple[str, ...]
    groups: tuple[str, ...]
    pieces: Pieces
    common: Columns
    """Coefficients of all pieces, shape (pieces x features, models). The models are those of hazards, one for each
    resource, then those of the second horizon, one for each resource, and so on."""
    group: Columns
    """What is added for each group and last for none, of the features themselves: (groups + 1, features, ...)."""
    constant: Columns
    """Shape (groups + 1, models)."""
    calibrations: tuple[Calibration, ...]
    """For each horizon, of its logit."""
    expected: ExpectedCounts = NOTHING_EXPECTED
    """What counters of a unit are expected to count; `pieces` are those of features that are relative to it."""

    def score(self, features: NDArray[np.floating], group: NDArray[np.intp]) -> Scores:
        """Score units in one pass. `features` has the shape (units, features) in the order of `names`; `group` is -1
        for a unit of none."""
        found = self.outputs(features, group)
        hazard, logits = np.exp(found.log_hazard, dtype=float), found.logit.astype(float)
        probability = np.stack([one(logits[:, at]) for at, one in enumerate(self.calibrations)]).T
        return Scores(logits.mean(axis=1), probability, hazard)

    def outputs(self, features: NDArray[np.floating], group: NDArray[np.intp]) -> Outputs:
        """What the models say, in the order of `features` and `group` (see `score`).

        Units are taken group by group and in chunks, so that all that is computed of them stays in a processor's cache.
        """
        count = len(self.resources)
        outputs = np.empty((count + len(HORIZONS), len(features)), dtype=np.float32)
        for number in range(-1, len(self.groups)):
            rows = np.flatnonzero(group == number)
            for begin in range(0, len(rows), CHUNK_UNITS):
                some = rows[begin : begin + CHUNK_UNITS]
                found = self.linear(features.take(some, axis=0), number)
                for output, values in zip(outputs, (*found[:count], *self._compute_any(found)), strict=True):
                    output[some] = values
        return Outputs(outputs[:count].T, outputs[count:].T)

    def linear(self, features: NDArray[np.floating], number: int) -> Columns:
        """The linear predictors of units of one group, shape (models, units).

        Pieces of all features are taken one after the other, and units in blocks whose products are small enough.
        """
        units, width, models = len(features), len(self.names), self.constant.shape[1]
        coefficients = self.common.reshape(-1, width, models).transpose(0, 2, 1).copy()
        coefficients[0] += self.group[number].T
        size = max(1, min(units, MAX_PRODUCT // (width * models)))
        blocks = -(-units // size)
        values = np.zeros((width, blocks * size), dtype=np.float32)
        values[:, :units] = features.T
        self.expected.make_relative(values)
        np.minimum(values, self.pieces.high[:, None], out=values)
        pieces = np.empty_like(values)
        found = np.tile(self.constant[number][:, None], (blocks, 1, size))
        product = np.empty_like(found)
        for low, slopes in zip(self.pieces.low[:, :, None], coefficients, strict=True):
            np.maximum(values, low, out=pieces)
            found += np.matmul(slopes, pieces.reshape(width, blocks, size).transpose(1, 0, 2), out=product)
        return found.transpose(1, 0, 2).reshape(models, -1)[:, :units]

    def _compute_any(self, linear: Columns) -> Columns:
        """The logits of `Outputs`, shape (horizons, units)."""
        odds = linear.clip(-MAX_LOGIT, MAX_LOGIT)
        odds = np.exp(odds, out=odds).reshape(len(HORIZONS), len(self.resources), -1)
        found: Columns = np.log(np.stack([odds[0].sum(axis=0), *(_odds_of_any(one) for one in odds[1:])]))
        return found


def place_among(others: Array, risk: float) -> float:
    """The share of others with less risk; equal ones (SAME_SCORE) count half. Chance gives 0.5 on average."""
    return float(((others < risk - SAME_SCORE).mean() + (others <= risk + SAME_SCORE).mean()) / 2)


def _odds_of_any(odds: Columns) -> Columns:
    """Odds that at least one of several independent events happens, from the odds of each along the first axis.

    1 + the result is the product of all 1 + odds; written like this, small odds lose no digits.
    """
    found: Columns = odds[0]
    for one in odds[1:]:
        found = found + one + found * one
    return found
