"""How many of many findings may be false: Benjamini and Hochberg (1995), and its form for e-values."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pharoah_learning.models.mantel_haenszel import Array


def q_values(p: Array) -> Array:
    """The smallest false discovery rate at which each hypothesis is rejected, in the shape of `p`."""
    flat = np.asarray(p, dtype=float).ravel()
    order = np.argsort(flat)
    scaled = flat[order] * flat.size / np.arange(1, flat.size + 1)
    found = np.empty_like(flat)
    found[order] = np.minimum(1.0, np.minimum.accumulate(scaled[::-1])[::-1])
    return found.reshape(np.shape(p))


def reject_by_e_values(e: Array, rate: float) -> NDArray[np.bool_]:
    """Which hypotheses are rejected at a false discovery rate, whatever their dependence (Wang and Ramdas 2022).

    An e-value is a random variable with a mean of at most 1 under its hypothesis; a large one speaks against it.
    """
    flat = np.asarray(e, dtype=float).ravel()
    largest_first = np.sort(flat)[::-1]
    counts = np.arange(1, flat.size + 1)
    enough = np.flatnonzero(largest_first * counts * rate >= flat.size)
    if not enough.size:
        return np.zeros(np.shape(e), dtype=bool)
    found: NDArray[np.bool_] = (flat >= largest_first[enough[-1]]).reshape(np.shape(e))
    return found
