"""Simulated pairs of cells, planned, spread over nodes and decided by the functions of the provider."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import scipy

from pharoah_learning.confirmations import ControlRuns, plan_pairs
from pharoah_learning.pair_decisions import End, first_ends

HISTORY_RUNS = 40
"""Runs like those of the control that the provider has seen when it plans."""
_BATCH = 50
"""Suspects that share a history, and the order in which their nodes run pairs."""


@dataclass(frozen=True, kw_only=True)
class Truth:
    """What is true of simulated suspects."""

    base_rate: float
    """How often the control fails."""
    odds_ratio: float
    """How much larger the odds of a failure of the suspected cell are, on every node that is not sick."""
    nodes: int
    sick_nodes: int = 0
    """Nodes on which the suspected cell fails much more often; the one that reported the failure is one of them."""

    @property
    def suspected_rate(self) -> float:
        """How often the suspected cell fails; an infinite odds ratio is one that always fails."""
        if np.isinf(self.odds_ratio):
            return 1.0
        odds = self.odds_ratio * self.base_rate / (1 - self.base_rate)
        return float(odds / (1 + odds))


MIN_SICK_RATE = 0.2
"""A sick node fails the suspected cell in this much of its runs, or more."""


@dataclass(frozen=True, kw_only=True)
class Batch:
    """Suspects before any is decided."""

    nodes: np.ndarray
    """The node of each pair; number 0 has reported the failure."""
    suspected: np.ndarray
    control: np.ndarray
    """Suspects by pairs."""

    @property
    def planned(self) -> int:
        return len(self.nodes)


@dataclass(frozen=True)
class Outcomes:
    """What became of suspects."""

    end: np.ndarray
    """Values of `End`."""
    pairs: np.ndarray
    planned: float
    """Pairs, on average."""

    def count(self, *ends: End) -> int:
        """Suspects that ended in one of these ways."""
        return int(np.isin(self.end, ends).sum())

    def ratio(self, *ends: End) -> float:
        return self.count(*ends) / len(self.end)


def batches(truth: Truth, suspects: int, rng: np.random.Generator) -> Iterator[Batch]:
    """All pairs that would be planned. In each round every node runs one pair, as campaigns spread them."""
    for _ in range(suspects // _BATCH):
        failures = int(rng.binomial(HISTORY_RUNS, truth.base_rate))
        planned = plan_pairs(ControlRuns(failures, HISTORY_RUNS), truth.nodes)
        rounds = -(-planned // truth.nodes)
        nodes = np.concatenate([rng.permutation(truth.nodes) for _ in range(rounds)])[:planned]
        rates = np.full(truth.nodes, truth.suspected_rate)
        rates[: truth.sick_nodes] = rng.uniform(MIN_SICK_RATE, 1, truth.sick_nodes)
        yield Batch(
            nodes=nodes,
            suspected=rng.random((_BATCH, planned)) < rates[nodes],
            control=rng.random((_BATCH, planned)) < truth.base_rate,
        )


def confirmed(truth: Truth, suspects: int, rng: np.random.Generator) -> Outcomes:
    """What the provider decides of so many suspects."""
    ends, pairs, planned = [], [], []
    for batch in batches(truth, suspects, rng):
        end, used = _ended(batch)
        ends.append(end)
        pairs.append(used)
        planned.append(batch.planned)
    return Outcomes(np.concatenate(ends), np.concatenate(pairs), float(np.mean(planned)))


def _ended(batch: Batch) -> tuple[np.ndarray, np.ndarray]:
    """How each suspect ends, and after how many pairs. Most end early, so that only those that are open are asked again
    with more pairs; what has ended stays so."""
    end, pairs = np.full(_BATCH, End.OPEN), np.zeros(_BATCH, int)
    for looked in (batch.planned // 16, batch.planned // 4, batch.planned // 2, batch.planned):
        left = np.flatnonzero(end == End.OPEN)
        if len(left):
            seen = batch.suspected[left, :looked], batch.control[left, :looked]
            found = first_ends(batch.nodes[:looked], *seen, 0, batch.planned)
            end[left], pairs[left] = found.end, found.pairs
    return end, pairs


def fixed_size_pairs(truth: Truth, level: float, power: float) -> int:
    """The pairs that the exact test of McNemar (1947), one-sided, needs with a number of pairs that is fixed before."""
    suspected, base = truth.suspected_rate, truth.base_rate
    discordant = suspected * (1 - base) + base * (1 - suspected)
    share = suspected * (1 - base) / discordant
    low, high = 1, 10_000
    while low < high:
        middle = (low + high) // 2
        number = np.arange(middle + 1)
        critical = scipy.stats.binom.isf(level, number, 0.5) + 1
        found = scipy.stats.binom.pmf(number, middle, discordant) @ scipy.stats.binom.sf(critical - 1, number, share)
        low, high = (low, middle) if found >= power else (middle + 1, high)
    return low
