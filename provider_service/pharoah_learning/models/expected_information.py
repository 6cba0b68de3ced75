"""What one more block of a cell is expected to say about its failure rate.

The failure rate of a cell has a Beta distribution given the blocks that it has failed in and worked in. The next block
reduces its variance, in expectation, by the variance of the posterior mean (law of total variance). That is large for
cells that few blocks have run, and for those whose outcome is mixed or unlike that of most cells; it is small for cells
that do again and again what most cells do. Choosing what reduces the variance most is Bayesian A-optimal design
(Chaloner and Verdinelli, Statistical Science 1995).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

PRIOR_BLOCKS = 1.0
"""What the failure rate of all cells weighs against the blocks of one: as much as one block, like the sum of the
parameters of Jeffreys' prior for a proportion."""


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


def prior_rate(cells: Iterable[CellHistory]) -> float:
    """The failure rate of all cells, between 0 and 1; one half when no block has ended."""
    failures, blocks = PRIOR_BLOCKS / 2, PRIOR_BLOCKS
    for cell in cells:
        failures, blocks = failures + cell.failures, blocks + cell.blocks
    return failures / blocks


def estimate_reduction(cell: CellHistory, rate: float) -> float:
    """By how much one more block is expected to reduce the variance of the failure rate of a cell.

    `rate`: the mean of the prior. With the parameters a and b of the Beta distribution that the blocks of the cell make
    of it, and n = a + b, this is a b / (n (n + 1))^2.
    """
    n = cell.blocks + PRIOR_BLOCKS
    share = (cell.failures + PRIOR_BLOCKS * rate) / n
    return share * (1 - share) / (n + cell.pending + 1) ** 2


def most_informative(choices: Iterable[Choice], rate: float, left_seconds: float) -> int | None:
    """The place of the block that is expected to reduce uncertainty most per second, among those that can end in the
    time that is left; the first of several that are equal. None when no block can end in time."""
    best, chosen = -1.0, None
    for place, choice in enumerate(choices):
        reduction = sum(estimate_reduction(cell, rate) for cell in choice.cells)
        per_second = reduction / max(choice.seconds, 1e-9)
        if choice.seconds <= left_seconds and per_second > best:
            best, chosen = per_second, place
    return chosen
