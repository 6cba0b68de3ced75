"""What one more block of a cell is expected to say about its failure rate.

The failure rate of a cell has a Beta distribution given the blocks that it has failed in and worked in (Jeffreys'
prior). The next block reduces its variance, in expectation, by the variance of the posterior mean (law of total
variance). That is large for cells that few blocks have run, and for those whose outcome is mixed; it is small for cells
that have always worked or always failed. Choosing what reduces the variance most is Bayesian A-optimal design
(Chaloner and Verdinelli, Statistical Science 1995).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

PRIOR = 0.5
"""Both parameters of Jeffreys' prior for a proportion."""


class CellHistory(NamedTuple):
    """The blocks of one cell so far."""

    blocks: int
    failures: int
    pending: int = 0
    """Blocks that run now: their outcomes will be like those before, as far as is known."""


class Choice(NamedTuple):
    """A block that could be next."""

    cells: tuple[CellHistory, ...]
    seconds: float
    """How long it is expected to take."""


def expected_reduction(cell: CellHistory) -> float:
    """By how much one more block is expected to reduce the variance of the failure rate of a cell.

    With the parameters a and b of its Beta distribution, and n = a + b, this is a b / (n (n + 1))^2.
    """
    a, b = cell.failures + PRIOR, cell.blocks - cell.failures + PRIOR
    n = a + b
    share = a / n
    n += cell.pending
    return share * (1 - share) / (n + 1) ** 2


def most_informative(choices: Iterable[Choice], left_seconds: float) -> int | None:
    """The place of the block that is expected to reduce uncertainty most per second, among those that can end in the
    time that is left; the first of several that are equal. None when no block can end in time."""
    best, chosen = -1.0, None
    for place, choice in enumerate(choices):
        rate = sum(map(expected_reduction, choice.cells)) / max(choice.seconds, 1e-9)
        if choice.seconds <= left_seconds and rate > best:
            best, chosen = rate, place
    return chosen
