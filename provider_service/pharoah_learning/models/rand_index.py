"""How far two partitions agree: the adjusted Rand index (Hubert and Arabie 1985)."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike


def compute_adjusted_rand_index(left: ArrayLike, right: ArrayLike) -> float:
    """1 for equal partitions, 0 on average for independent ones; it can be negative.

    Each argument names the group of each item, in the same order; the names do not matter. Raises ValueError for
    partitions of different lengths.
    """
    a, b = (np.unique(np.asarray(names), return_inverse=True)[1] for names in (left, right))
    if len(a) != len(b):
        raise ValueError(f"partitions of {len(a)} and {len(b)} items")
    table = np.zeros((a.max(initial=0) + 1, b.max(initial=0) + 1))
    np.add.at(table, (a, b), 1)
    together, in_left, in_right, pairs = (
        float((counts * (counts - 1) / 2).sum()) for counts in (table, table.sum(1), table.sum(0), table.sum())
    )
    by_chance = in_left * in_right / pairs if pairs else 0.0
    largest = (in_left + in_right) / 2
    return 1.0 if largest == by_chance else (together - by_chance) / (largest - by_chance)
