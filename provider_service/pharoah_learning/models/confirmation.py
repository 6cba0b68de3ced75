"""Confirmation of a suspect by paired runs in random order, which may be looked at after every pair.

A pair is discordant when one of its runs fails and the other does not. Without an effect each of the two is as likely
to be the one that failed. The evidence is an e-process: a likelihood ratio against that, averaged over effects (Robbins
1970; Ramdas and others 2023). Under no effect it exceeds 1 / alpha at any time with a probability of at most alpha
(Ville 1939), so a campaign may stop as soon as it does.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import numpy as np
import scipy
from numpy.typing import NDArray

from pharoah_learning.models.mantel_haenszel import Array

MAX_FALSE_RATE = 0.05
"""So many suspects without an effect are confirmed at most: their rows warn."""
MAX_FALSE_BLOCK_RATE = 0.001
"""So many suspects without an effect block at most. A row that blocks stops the jobs of all tenants, and a provider
has hundreds of suspects in a year. Where the suspected run always fails, 13 pairs are enough."""
_EFFECTS = np.array([0.55, 0.60, 0.65, 0.70, 0.75, 0.80, 0.85, 0.90, 0.99])
"""Probabilities that the suspected run is the one that fails, over which the evidence is averaged: odds ratios from 1.2
to 9, and a run that nearly always fails."""


class Evidence(NamedTuple):
    """How the discordant pairs of a suspect have ended."""

    against: int
    """Pairs in which only the suspected run failed."""
    for_it: int
    """Pairs in which only the other run failed."""

    @property
    def e_value(self) -> float:
        """At least 1 / `MAX_FALSE_RATE` confirms the suspect."""
        return float(np.exp(log_e_values(np.array(self.against), np.array(self.for_it))))

    @property
    def confirms(self) -> bool:
        return self.e_value >= 1 / MAX_FALSE_RATE

    @property
    def blocks(self) -> bool:
        return self.e_value >= 1 / MAX_FALSE_BLOCK_RATE


@cache
def _log_e_table(largest: int) -> Array:
    """The logarithms of the e-values of 0 to `largest` pairs against a suspect, by as many for it."""
    number = np.arange(largest + 1, dtype=float)
    table: Array = np.full((largest + 1, largest + 1), -np.inf)
    for effect in _EFFECTS:
        np.logaddexp(table, np.add.outer(number * np.log(2 * effect), number * np.log(2 * (1 - effect))), out=table)
    table -= np.log(len(_EFFECTS))
    table[0, 0] = 0.0  # exactly: no pairs are no evidence
    return table


def log_e_values(against: NDArray[np.int64], for_it: NDArray[np.int64]) -> Array:
    """The logarithms of many e-values, for whole numbers of pairs; looked up, because campaigns and evaluations ask for
    the same few numbers again and again."""
    largest = max(int(np.max(against, initial=0)), int(np.max(for_it, initial=0)))
    found: Array = _log_e_table((1 << largest.bit_length()) - 1)[against, for_it]
    return found


def e_values(against: Array, for_it: Array) -> Array:
    """The e-values of many suspects, or of one suspect after each pair."""
    a, f = np.asarray(against, dtype=float)[..., None], np.asarray(for_it, dtype=float)[..., None]
    logs = a * np.log(2 * _EFFECTS) + f * np.log(2 * (1 - _EFFECTS))
    found: Array = np.exp(scipy.special.logsumexp(logs, axis=-1) - np.log(len(_EFFECTS)))
    return found
