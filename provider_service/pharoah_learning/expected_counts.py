"""How many events a counter of an average unit of a fleet counts, given what never changes about the unit.

Old units and hot ones count more errors, healthy or not. So many errors that are alarming for a new unit are usual for
an old one. Hazard models see what was counted relative to what is expected (indirect standardisation). What is expected
is learned from all units of a fleet, which are many; how it matters for failures could be learned from few units alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import log
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pharoah_learning.models.count_regression import fit_counts
from pharoah_protocol.signal_features import COUNTER_FEATURES, HOURS, TOTAL_FEATURE

MAX_FACTOR = 20.0
"""What is expected of a unit differs from that of others by no more than this factor: few units differ more."""
STATIC_SHARE = 1e-3
"""A feature that changes within the lives of units by no more than so much of what it differs between them is static:
means of samples differ in their last digits."""
FEW_HOURS, FEW_UNITS = 1e-3, 0.02
"""So many hours, and so many units at each end, do not decide whether a feature is static: a sensor may be broken, or
begin late."""
CONSTANT_RATIO = 1e-6
"""Units that differ by no more than so much of the mean are equal: numbers of single precision have seven digits."""
PENALTY = 1.0
"""Keeps equations solvable where two static features are one and the same."""
_BOUND = log(MAX_FACTOR)


class ExpectedCounts(NamedTuple):
    """By what factor counts of units differ from those of a unit with mean static features."""

    counted: NDArray[np.intp]
    """Places of the features that are logarithms of one plus a number of events, shape (counted,)."""
    counter: NDArray[np.intp]
    """The counter of each of them, as its place in `effects`."""
    static: NDArray[np.intp]
    """Places of the features that never change about a unit, shape (static,)."""
    mean: NDArray[np.float32]
    """The means of the static features, of all units and days."""
    effects: NDArray[np.float32]
    """What the logarithm of the expected count rises by, for each unit of a static feature: (counters, static)."""

    def relative(self, features: NDArray[np.float32]) -> NDArray[np.float32]:
        """Features of units, with the shape (..., features), relative to what is expected of each unit."""
        if not self.effects.size:
            return features
        values = features.reshape(-1, features.shape[-1]).T.copy()
        self.make_relative(values)
        return np.ascontiguousarray(values.T).reshape(features.shape)

    def make_relative(self, values: NDArray[np.float32]) -> None:
        """The same in place, for the shape (features, units), in which single precision and whole rows make it fast.

        The logarithm of a count moves by that of the factor, and by no more than itself: no events stay none.
        """
        if self.effects.size:
            factor = self.effects @ (values[self.static] - self.mean[:, None])
            counts = values[self.counted]
            values[self.counted] -= np.maximum(np.minimum(factor.clip(-_BOUND, _BOUND)[self.counter], counts), -counts)


_NO_PLACES = np.zeros(0, dtype=np.intp)
NOTHING_EXPECTED = ExpectedCounts(
    _NO_PLACES, _NO_PLACES, _NO_PLACES, np.zeros(0, dtype=np.float32), np.zeros((0, 0), dtype=np.float32)
)
"""For units of which nothing static is known."""


def learn_expected_counts(
    names: Sequence[str], features: NDArray[np.float32], observed: NDArray[np.bool_]
) -> ExpectedCounts:
    """Learn from the features of a fleet, shape (units, hours, features); `observed` says which hours were seen.

    Each day of a unit is one count of each counter; units that lived less than a day add nothing.
    """
    totals = [at for at, name in enumerate(names) if name.endswith(f".{TOTAL_FEATURE}")]
    days = slice(HOURS.long - 1, None, HOURS.long)
    unit, day = np.nonzero(observed[:, days])
    if not totals or not len(unit):
        return NOTHING_EXPECTED
    rows = features[:, days][unit, day]
    differ = {at: half for at in range(len(names)) if at not in totals and (half := _differs(rows[:, at]))}
    static = [at for at, half in differ.items() if _changes(features[:, :, at], observed) <= STATIC_SHARE * half]
    if not static:
        return NOTHING_EXPECTED
    columns = rows[:, static].astype(float)
    mean, spread = columns.mean(axis=0), columns.std(axis=0)
    effects = np.zeros((len(totals), len(static)))
    for place, at in enumerate(totals):
        counts = np.expm1(rows[:, at].astype(float))
        if counts.any():
            effects[place] = fit_counts((columns - mean) / spread, counts, PENALTY)[:-1] / spread
    counted = [(names.index(f"{signal}.{feature}"), place)
               for place, at in enumerate(totals)
               for signal in [names[at].removesuffix(f".{TOTAL_FEATURE}")]
               for feature in COUNTER_FEATURES]  # fmt: skip
    places, counter = np.array(counted, dtype=np.intp).T
    return ExpectedCounts(
        places, counter, np.array(static, dtype=np.intp), mean.astype(np.float32), effects.astype(np.float32)
    )


def _differs(values: NDArray[np.float32]) -> float:
    """Half of the range of values, without the few at each end; 0 where they are equal."""
    low, high = np.quantile(values, [FEW_UNITS, 1 - FEW_UNITS])
    half = float(high - low) / 2
    return half if half > CONSTANT_RATIO * abs(float(values.mean())) else 0.0


def _changes(values: NDArray[np.float32], observed: NDArray[np.bool_]) -> float:
    """By how much values of shape (units, hours) differ from the last one of each unit, but in few hours."""
    last = values[np.arange(len(values)), np.maximum(observed.sum(axis=1) - 1, 0)]
    return float(np.quantile(np.abs(values - last[:, None])[observed], 1 - FEW_HOURS))
