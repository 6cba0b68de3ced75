"""Step time, relative to the run's own baseline."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from pharoah_learning.signals._signal import Feature, Signal, Source
from pharoah_protocol.vocabulary import WorseDirection
from pharoah_protocol.windows import STEP_RATIO

RECENT_WINDOWS = 3
"""Windows that the median is taken of: one pause for a checkpoint does not move it."""
LAST_WINDOWS = 2
"""Newest windows of the trend; they are compared with the RECENT_WINDOWS before them."""
SMALLEST_RATIO, MAX_RATIO = 0.05, 50.0
"""Ratios are clipped to these before their logarithm is taken; a reported level reaches from 1/16 to 16."""


def slowdown(ratios: Sequence[float]) -> float:
    """Log of the median of the last three step ratios."""
    return float(np.median(_logs(ratios)[-RECENT_WINDOWS:]))


def trend(ratios: Sequence[float]) -> float:
    """Mean log ratio of the last two windows less that of the three before; 0 with fewer than three windows."""
    logs = _logs(ratios)
    if len(logs) <= LAST_WINDOWS:
        return 0.0
    return float(logs[-LAST_WINDOWS:].mean() - logs[:-LAST_WINDOWS].mean())


def _logs(ratios: Sequence[float]) -> NDArray[np.float64]:
    newest = np.asarray(ratios[-(RECENT_WINDOWS + LAST_WINDOWS) :], dtype=float)
    logs: NDArray[np.float64] = np.log(np.clip(newest, SMALLEST_RATIO, MAX_RATIO))
    return logs


SIGNAL = Signal(
    name=STEP_RATIO,
    measures="step time of a window over the run's own baseline, a ratio",
    source=Source.REPORT,
    worse=WorseDirection.HIGHER,
    features=(
        Feature(name="slowdown", measures="log of the recent step ratio", compute=slowdown),
        Feature(name="trend", measures="how fast the log step ratio rises, per two windows", compute=trend),
    ),
    column=0,
)
