"""The columns that hazard models are fitted on: segments of features, whose effects rise only.

A segment of a feature is the part of its value between two knots. A sum of segments with coefficients that are not
below zero rises wherever the feature does, and bends at each knot. What is fitted is published as pieces
(`hazards.Pieces`): a segment is the difference of two of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pharoah_learning.hazards import Columns, Pieces
from pharoah_learning.models.mantel_haenszel import Array
from pharoah_learning.models.pooling import Ridge, pool_columns
from pharoah_protocol.vocabulary import WorseDirection

RIDGE = Ridge(common=100.0, group=1000.0)
"""On the scale of failures and of columns with a spread of one."""
KNOTS = (0.9, 0.99, 0.999)
NEAR_KNOTS = (0.85, 0.95)
"""Quantiles of a feature at which its effect may bend: of all hours, and of those before failures. What matters is in
rare large values, because each of several ways to degrade moves other features."""
MIN_SPREAD = 0.001
"""A segment that varies by no more than so much of its feature is constant: slopes that are zero differ in their last
digits. What only one hour of a million shows varies by as much."""
REACH = 15.0
"""Values count up to so many standard deviations of the widest piece: a few wild ones would decide the fit."""

CONSTANT_RATIO = 1e-6
"""A column that varies by no more than so much of its mean is constant: numbers of single precision have seven
digits."""


class Scale(NamedTuple):
    """Means and spreads of columns, by which they are standardised."""

    mean: Array
    spread: Array

    @classmethod
    def from_columns(cls, columns: NDArray[np.floating], weight: Array) -> Scale:
        """Weighted means and standard deviations; one where a column is constant, but for its last digits."""
        mean = np.average(columns, axis=0, weights=weight)
        spread = np.sqrt(np.average((columns - mean) ** 2, axis=0, weights=weight))
        return cls(mean, np.where(spread > CONSTANT_RATIO * np.abs(mean), spread, 1.0))

    def standardise(self, columns: NDArray[np.floating]) -> Columns:
        found: Columns = ((columns - self.mean) / self.spread).astype(np.float32)
        return found


class Coefficients(NamedTuple):
    """What is fitted, in the units of what is measured (`hazards.HazardModel` says which shapes)."""

    common: Columns
    group: Columns
    constant: Columns


class HazardBasis(NamedTuple):
    """Columns of a fit: standardised segments, and the features once more for each group.

    Segments of a feature that is worse when it is lower have a negative spread, so that all effects rise.
    """

    pieces: Pieces
    segments: Scale
    features: Scale
    rises: NDArray[np.bool_]
    """Whether the effect of each feature rises only, or falls only where lower is worse."""
    groups: int

    @classmethod
    def from_features(
        cls,
        features: Columns,
        weight: Array,
        near: NDArray[np.bool_],
        worse: Sequence[WorseDirection | None],
        groups: int,
    ) -> HazardBasis:
        """`features` has the shape (hours, features); each hour stands for `weight` of them, and failures come soon
        after those that are `near`. `worse`: in which direction of a feature no unit is better off; None for both."""
        pieces = _pieces(features, weight, near)
        whole, segments = Scale.from_columns(features, weight), Scale.from_columns(_segments(pieces, features), weight)
        sign = np.array([-1.0 if one is WorseDirection.LOWER else 1.0 for one in worse])
        sign, least = (np.tile(one, len(pieces.low)) for one in (sign, MIN_SPREAD * whole.spread))
        spread = np.where(segments.spread > least, segments.spread, 1.0)
        rises = np.array([one is not None for one in worse])
        return cls(pieces, Scale(segments.mean, sign * spread), whole, rises, groups)

    def linear(self, features: Columns) -> Columns:
        """The features alone, standardised."""
        return self.features.standardise(np.clip(features, self.pieces.low[0], self.pieces.high))

    def columns(self, features: Columns, group: NDArray[np.intp]) -> Columns:
        """All columns of a fit. `group` says which one a row belongs to, -1 for none."""
        common = self.segments.standardise(_segments(self.pieces, features))
        own = pool_columns(self.linear(features), group, self.groups)[:, len(self.rises) :]
        return np.concatenate([common, own], axis=1)

    @property
    def penalty(self) -> Array:
        """Half the weights of squared coefficients."""
        return np.repeat([RIDGE.common, RIDGE.group], [len(self.segments.mean), len(self.rises) * self.groups])

    @property
    def at_least_zero(self) -> NDArray[np.bool_]:
        """Which coefficients may not be below zero. Groups may differ in both directions."""
        common = np.tile(self.rises, len(self.pieces.low))
        return np.concatenate([common, np.zeros(len(self.rises) * self.groups, dtype=bool)])

    def raw(self, fits: Array) -> Coefficients:
        """What was fitted. `fits` has the shape (columns of a fit + 1, models), with the constants last."""
        count, width, models = len(self.segments.mean), len(self.rises), fits.shape[1]
        common = fits[:count] / self.segments.spread[:, None]
        own = fits[count:-1].reshape(self.groups, width, models) / self.features.spread[:, None]
        own = np.concatenate([own, np.zeros((1, width, models))])
        constant = fits[-1] - self.segments.mean @ common - np.einsum("f,gfm->gm", self.features.mean, own)
        pieces = common.reshape(-1, width, models)
        pieces[1:] -= pieces[:-1].copy()
        parts = (pieces.reshape(count, models), own, constant)
        return Coefficients(*(part.astype(np.float32) for part in parts))


def _segments(pieces: Pieces, features: Columns) -> Columns:
    """The parts of the features between successive knots, each but for a constant."""
    found = pieces.columns(features).reshape(len(features), *pieces.low.shape)
    found[:, :-1] -= found[:, 1:]
    return found.reshape(len(features), -1)


def _pieces(features: Columns, weight: Array, near: NDArray[np.bool_]) -> Pieces:
    """The features themselves, and a piece above each knot, in the order of the knots of each feature."""
    scale = Scale.from_columns(features, weight)
    low, high = [scale.mean - REACH * scale.spread], [scale.mean + REACH * scale.spread]
    for begins in (*_quantiles(features, weight, KNOTS), *np.quantile(features[near], NEAR_KNOTS, axis=0)):
        beyond = Scale.from_columns(np.maximum(features - begins, 0), weight)
        low.append(begins)
        high.append(begins + beyond.mean + REACH * beyond.spread)
    return Pieces(np.sort(np.array(low, dtype=np.float32), axis=0), np.max(high, axis=0).astype(np.float32))


def _quantiles(features: Columns, weight: Array, shares: Sequence[float]) -> list[Columns]:
    """Weighted quantiles of each feature."""
    order, place = np.argsort(features, axis=0), np.arange(features.shape[1])
    total = np.cumsum(weight[order], axis=0)
    rows = [(total < share * total[-1]).sum(axis=0).clip(max=len(features) - 1) for share in shares]
    return [features[order[row, place], place] for row in rows]
