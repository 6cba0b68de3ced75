"""Resident memory, relative to the run's own baseline."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pharoah_learning.signals._signal import Feature, Signal, Source
from pharoah_protocol.vocabulary import WorseDirection
from pharoah_protocol.windows import MEMORY_RATIO

SMALLEST_RATIO, MAX_RATIO = 0.05, 50.0
"""Ratios are clipped to these before their logarithm is taken; a reported level reaches from 1/16 to 16."""


def growth(ratios: Sequence[float]) -> float:
    """Log of the last memory ratio."""
    return float(np.log(np.clip(ratios[-1], SMALLEST_RATIO, MAX_RATIO)))


SIGNAL = Signal(
    name=MEMORY_RATIO,
    measures="resident memory at the end of a window over the run's own baseline, a ratio",
    source=Source.REPORT,
    worse=WorseDirection.HIGHER,
    features=(Feature(name="growth", measures="log of the last memory ratio", compute=growth),),
    column=1,
)
