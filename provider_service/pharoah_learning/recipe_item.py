"""One line of the recipe, as a release holds it (`pharoah_learning.recipe` makes it)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pharoah_learning.opinions import MIN_NODES


@dataclass(frozen=True, kw_only=True)
class RecipeItem:
    """What one feature of a signal shows before the failures that one fault causes in one archetype."""

    archetype: str
    fault: str
    signal: str
    """The name of what is measured (`pharoah_learning.signals`)."""
    feature: str
    """The name of what is computed from it."""
    effect: float
    """The probability that the feature is larger before a failure than in a control run; 0.5 where it shows nothing."""
    low: float
    high: float
    """Its interval at 95 %."""
    lead_seconds: float
    """How long before the failure it was larger than in every control run, the median of the runs in which it was."""
    runs: int
    """Degraded runs."""
    failed: int
    """How many of them failed."""
    controls: int
    nodes: int
    """On so many nodes the degraded runs were."""

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> RecipeItem:
        """Read what `asdict` gave, also as it comes back from JSON. Raises TypeError for a field that is not known."""
        return cls(**data)

    @property
    def collect(self) -> bool:
        """Whether the signal is worth collecting: it moves beyond chance, on two nodes."""
        return self.low > 0.5 and self.nodes >= MIN_NODES
