"""How many pairs a suspect needs until its confirmation has probably decided, for an effect that matters."""

from __future__ import annotations

from functools import cache

import numpy as np
import scipy

from pharoah_learning.models.confirmation import MAX_FALSE_RATE, log_e_values
from pharoah_learning.models.mantel_haenszel import Array
from pharoah_learning.models.no_effect import MATTERING_ODDS_RATIO
from pharoah_learning.models.proportions import wilson
from pharoah_learning.pair_decisions import MIN_BLOCKING_NODES

PLANNED_POWER = 0.9
"""So many suspects with an effect that matters are confirmed within the pairs that are planned."""
MIN_BASE_RATE = 0.02
"""Below this failure rate of the control no plan is made: it would need thousands of pairs. Where nothing is known of
the control, this is taken."""
_MAX_DISCORDANT = 500
_MAX_PAIRS = 50_000


def plan_base_rate(failures: int, runs: int) -> float:
    """The failure rate to plan with, from runs of cells like the control: the lower end of its interval, because rarer
    failures take more pairs."""
    return max(MIN_BASE_RATE, wilson(failures, runs)[0])


@cache
def pairs_needed(base_rate: float, nodes: int, odds_ratio: float = MATTERING_ODDS_RATIO) -> int:
    """Pairs, spread evenly over the nodes, with which `PLANNED_POWER` of the suspects of this effect are confirmed.

    `base_rate`: how often the control fails. Without any two of four nodes, half of the pairs have to be enough. The
    choices of nodes that are left out share most of their pairs: the misses of more than six choices, which four nodes
    have, were never more than those of six in simulations (ADR 72).
    """
    wrong, choices = (2, 6) if nodes >= MIN_BLOCKING_NODES else (1, max(nodes, 2))
    kept = 1 - wrong / max(nodes, 2)
    odds = base_rate / (1 - base_rate) * odds_ratio
    suspected = odds / (1 + odds)
    discordant = suspected * (1 - base_rate) + base_rate * (1 - suspected)
    confirmed = _compute_confirm_probability(suspected * (1 - base_rate) / discordant)
    enough = 1 - (1 - PLANNED_POWER) / choices
    low, high = 1, _MAX_PAIRS
    while low < high:
        middle = (low + high) // 2
        if _share_confirmed(int(kept * middle), discordant, confirmed) >= enough:
            high = middle
        else:
            low = middle + 1
    return low


def _share_confirmed(pairs: int, discordant: float, confirmed: Array) -> float:
    number = np.arange(len(confirmed))
    fewer = float(scipy.stats.binom.pmf(number, pairs, discordant) @ confirmed)
    return fewer + float(scipy.stats.binom.sf(number[-1], pairs, discordant) * confirmed[-1])


@cache
def _compute_confirm_probability(share: float) -> Array:
    """The exact probability that so many discordant pairs confirm, or fewer: by dynamic programming over all paths.
    `share`: of the discordant pairs that speak against the suspect."""
    share = round(share, 12)
    open_ratio, confirmed = np.ones(1), [0.0]
    for number in range(1, _MAX_DISCORDANT + 1):
        after = np.append(open_ratio * (1 - share), 0.0) + np.append(0.0, open_ratio * share)
        against = np.arange(number + 1)
        stopped = log_e_values(against, number - against) >= -np.log(MAX_FALSE_RATE)
        confirmed.append(confirmed[-1] + float(after[stopped].sum()))
        open_ratio = np.where(stopped, 0.0, after)
    return np.array(confirmed)
