"""Runs that agree in everything but their end, counted: all that learning needs to know of them.

Ten million runs of one archetype in ten contexts can differ in a few hundred thousand ways only. So counts and
regressions go over the ways and not over the runs, with the same result, and their cost stops growing.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Codes = NDArray[np.integer[Any]]
Flags = NDArray[np.bool_]

WAYS_PER_RUN, MAX_WAYS = 8, 1 << 22
"""Runs are grouped by a table of all ways in which they can differ. It may have so many entries for each run, and so
many in all (32 MB) where there are more ways than runs; beyond, grouping takes longer than it saves."""


class RunGroups(NamedTuple):
    """Groups of runs of one archetype. Each group is one row of all arrays."""

    in_context: Flags
    """Shape (groups, contexts)."""
    confounders: tuple[Codes, ...]
    """One array of shape (groups,) for each confounder."""
    runs: NDArray[np.float64]
    """Shape (groups,): how many runs agree so."""
    failures: NDArray[np.float64]


def group_runs(in_context: Flags, confounders: Sequence[Codes], failed: Flags) -> RunGroups:
    """Group runs of one archetype, in the order of their contexts and confounders.

    Where far more ways are possible than there are runs, every run stays a group of its own, in its place.
    """
    radices = (*[2] * in_context.shape[1], *(int(codes.max(initial=0)) + 1 for codes in confounders))
    ways = prod(radices)
    if ways > min(WAYS_PER_RUN * len(failed), max(MAX_WAYS, len(failed))):
        return RunGroups(in_context, tuple(confounders), np.ones(len(failed)), failed.astype(float))
    way: NDArray[np.int64] = np.zeros(len(failed), dtype=np.int64)
    for radix, column in zip(radices, (*in_context.T, *confounders), strict=True):
        way *= radix
        way += column
    runs = np.bincount(way, minlength=ways)
    found = np.flatnonzero(runs > 0)
    failures = np.bincount(way[failed], minlength=ways)[found]
    one_of: NDArray[np.intp] = np.empty(ways, dtype=np.intp)
    one_of[way] = np.arange(len(failed))
    chosen = one_of[found]
    return RunGroups(
        in_context.take(chosen, axis=0),
        tuple(codes[chosen] for codes in confounders),
        runs[found].astype(float),
        failures.astype(float),
    )
