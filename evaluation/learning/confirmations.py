"""Randomised confirmation of suspects: how often a suspect without an effect is confirmed, and how many pairs it takes.

The simulated pairs are looked at after every one of them, as a campaign does.
"""

from __future__ import annotations

import argparse

import numpy as np

from evaluation.figures import Figures
from pharoah_learning.models.confirmation import LARGEST_FALSE_RATE, e_values

SUSPECTS, QUICK_SUSPECTS = 20_000, 2_000
DISCORDANT_PAIRS = 400
"""Pairs after which a campaign would give up."""


def measure(figures: Figures, arguments: argparse.Namespace) -> None:
    """The rate of false confirmations, and the pairs that true effects take."""
    rng = np.random.default_rng(arguments.seed)
    suspects = QUICK_SUSPECTS if arguments.quick else SUSPECTS
    confirmed = _first_confirmed(rng.random((suspects, DISCORDANT_PAIRS)) < 0.5)
    false = int((confirmed <= DISCORDANT_PAIRS).sum())
    rate = false / suspects
    figures.add("e_process_type1", rate, f"<= {LARGEST_FALSE_RATE:g}", rate <= LARGEST_FALSE_RATE, f"n={suspects}")
    for ratio in (2, 3, 5):
        pairs = _first_confirmed(rng.random((suspects, DISCORDANT_PAIRS)) < ratio / (1 + ratio))
        figures.add(f"e_process_pairs_odds_ratio_{ratio}", float(np.median(pairs)))


def _first_confirmed(against: np.ndarray) -> np.ndarray:
    """The number of the pair that confirms each suspect; one more than there are pairs where none does."""
    failures = np.cumsum(against, axis=1)
    pairs = np.arange(1, against.shape[1] + 1)
    enough = e_values(failures, pairs - failures) >= 1 / LARGEST_FALSE_RATE
    found: np.ndarray = np.where(enough.any(axis=1), enough.argmax(axis=1) + 1, against.shape[1] + 1)
    return found
