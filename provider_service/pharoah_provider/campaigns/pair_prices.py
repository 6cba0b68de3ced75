"""What the confirmation of suspects takes at most, and whether that is too little to decide them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from pharoah_learning.models.no_effect import MATTERING_ODDS_RATIO


class PairPrice(NamedTuple):
    """What the pairs of one suspect take."""

    suspect: str
    """Its id, title and node, for people."""
    pairs: int
    """Planned; as many as are needed, or as the operator allows."""
    needed: int
    """With which an effect that matters is nearly always confirmed."""
    nodes: int
    """How many share them."""
    pair_seconds: float
    """What both cells of a pair take."""
    measured: bool
    """Whether cells have taken this; otherwise it is the limit of the cells."""

    @property
    def node_seconds(self) -> float:
        """All pairs, one after another."""
        return self.pairs * self.pair_seconds

    def __str__(self) -> str:
        pair = f"{self.pair_seconds:.3g} s a pair{'' if self.measured else ', the limit of its cells'}"
        price = (
            f"suspect {self.suspect}: at most {self.pairs} pairs on {self.nodes} nodes, {self.node_seconds / 60:.3g} "
            f"node minutes ({pair})"
        )
        if self.pairs >= self.needed:
            return price
        return (
            f"{price}; priced too low: {self.needed} pairs would decide {MATTERING_ODDS_RATIO:g} times the odds "
            "(--most-pairs)"
        )


def price_lines(prices: Sequence[PairPrice], budget_seconds: float) -> list[str]:
    """One line for each suspect, and one where the budget is too low. `budget_seconds`: 0 is no limit."""
    lines = [str(price) for price in prices]
    side_by_side = sum(price.node_seconds / price.nodes for price in prices)
    if 0 < budget_seconds < side_by_side:
        lines.append(
            f"priced too low: all pairs take {side_by_side / 60:.3g} minutes on these nodes, and the budget is "
            f"{budget_seconds / 60:g} minutes (--budget-minutes); what is undecided then can be resumed"
        )
    return lines
