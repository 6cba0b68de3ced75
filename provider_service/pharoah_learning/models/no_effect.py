"""Evidence that a suspect has no effect that matters, from paired runs that may be looked at after every pair.

What matters is stated in two ways, and an effect must be both to matter: the odds of a failure are at least
`MATTERING_ODDS_RATIO` times as high, and at least `MATTERING_RISK` more runs fail. The first is tested by the
discordant pairs: a likelihood ratio of no effect to the smallest effect that matters. The second is tested by all
pairs, so that it speaks where nothing fails: a bet that the mean difference is smaller (Waudby-Smith and Ramdas 2024).
Both have a mean of at most 1 after every pair under every effect that matters, so their average exceeds 1 / alpha at
any time with a probability of at most alpha (Ville 1939).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from pharoah_learning.models.mantel_haenszel import Array

Counts = NDArray[np.integer[Any]]

MATTERING_ODDS_RATIO = 4.0
"""Campaigns are planned to find this effect, and a suspect with it is refuted seldom (ADR 72)."""
MATTERING_RISK = 0.04
"""Failures that a suspect has more often, per run. Four times the odds are 0.055 at `pair_plans.MIN_BASE_RATE`."""
MAX_FALSE_REFUTED_RATE = 0.01
"""So many suspects with an effect that matters are refuted at most."""
_STAKES = np.array([0.2, 0.5, 0.9])
"""Shares of the capital that are bet, over which the evidence is averaged. Below 1, so that no pair takes all: the
largest one speaks where nothing fails, the smaller ones where much does."""


def log_no_effect(against: Counts, for_it: Counts, pairs: Counts) -> Array:
    """The logarithm of the evidence, for counts of one shape: pairs in which only the suspected run failed, only the
    other run, and all. At least log(1 / `MAX_FALSE_REFUTED_RATE`) refutes."""
    share = MATTERING_ODDS_RATIO / (1 + MATTERING_ODDS_RATIO)
    odds = against * np.log(0.5 / share) + for_it * np.log(0.5 / (1 - share))
    same = pairs - against - for_it
    risk = np.full(np.shape(pairs), -np.inf)
    for stake in _STAKES:
        bet = (
            against * np.log1p(-stake * (1 - MATTERING_RISK))
            + for_it * np.log1p(stake * (1 + MATTERING_RISK))
            + same * np.log1p(stake * MATTERING_RISK)
        )
        risk = np.logaddexp(risk, bet)
    found: Array = np.logaddexp(odds, risk - np.log(len(_STAKES))) - np.log(2)
    return found
