"""Runs that others have made, as learning uses them: for scheduling suspects, and never for blocking.

An importer fills the columns; this module decides what counts. A run counts when it ended well, or failed for a reason
that can have to do with where it ran: what the user or the platform caused says nothing about a pair.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pharoah_learning.effects import Measured, Names
from pharoah_learning.observations import Codes, Flags, Observations, codes_of
from pharoah_protocol.vocabulary import Attribution, EndState

MIN_RUNS = 10
"""A value of a context with fewer runs makes no context of its own."""
SAYS_NOTHING = (Attribution.USER, Attribution.PLATFORM)
"""What these cause has nothing to do with a pair of archetype and context."""


@dataclass(frozen=True)
class PastRuns:
    """Imported runs, one entry for each run in all columns."""

    model: Names
    archetype: Names
    """The archetype of the catalogue; empty where the name of the model does not say it."""
    context: Mapping[str, Names]
    """Facts of hardware and software, the most important first."""
    confounders: Mapping[str, Names]
    """Settings of the job, such as its batch, and whatever else may explain how a run ended."""
    clusters: Mapping[str, Names]
    """Which runs share causes: host, submitter, day."""
    end_state: NDArray[Any]
    """`EndState` of each run."""
    attribution: NDArray[Any]
    """`Attribution` of each run."""
    throughput: NDArray[np.float64]
    """NaN where it was not measured."""

    def __len__(self) -> int:
        return len(self.model)

    @property
    def subject(self) -> Names:
        """The archetype, else the name of the model."""
        return np.where(self.archetype == "", self.model, self.archetype)

    @property
    def failed(self) -> Flags:
        """The runs that count as failures."""
        found: Flags = (self.end_state == EndState.FAILED) & ~np.isin(self.attribution, SAYS_NOTHING)
        return found


def observations(runs: PastRuns) -> Observations:
    """The runs that count, for the tables of incompatible pairs; each value of a context fact is one context."""
    failed = runs.failed
    counts = (runs.end_state == EndState.OK) | failed
    archetypes, archetype = np.unique(runs.subject[counts], return_inverse=True)
    contexts, flags = [], [np.zeros((int(counts.sum()), 0), dtype=bool)]
    for fact, names in runs.context.items():
        values, of = np.unique(names[counts], return_counts=True)
        for value in values[(of >= MIN_RUNS) & (values != "")]:
            contexts.append(f"{fact}={value}")
            flags.append((names[counts] == value)[:, None])
    return Observations(
        tuple(archetypes.tolist()),
        tuple(contexts),
        archetype.astype(np.int64),
        np.concatenate(flags, axis=1),
        {name: _confounder_codes(values[counts]) for name, values in runs.confounders.items()},
        failed[counts],
        {name: codes_of(values[counts]) for name, values in runs.clusters.items()},
    )


def _confounder_codes(values: Names) -> Codes:
    """Codes of a confounder: in order of size and in bins where all its values are numbers, else in alphabetical order.

    Runs without a value have the last code. Different texts of one number, such as the versions 2.1 and 2.10, are names
    and not numbers.
    """
    known = values != ""
    names = np.unique(values[known])
    try:
        numbers = names.astype(np.float64)
    except ValueError:
        return codes_of(values)
    if not np.isfinite(numbers).all() or len(np.unique(numbers)) < len(names):
        return codes_of(values)
    codes: Codes = np.zeros(len(values), dtype=np.int64)
    codes[known] = codes_of(values[known].astype(np.float64))
    codes[~known] = codes[known].max(initial=-1) + 1
    return codes


def select_measured(runs: PastRuns) -> Measured:
    """The runs that ended well with a measured throughput, for effects on it."""
    kept = (runs.end_state == EndState.OK) & np.isfinite(runs.throughput) & (runs.throughput > 0)
    columns = {**runs.confounders, **runs.context}
    return Measured(
        runs.model[kept],
        {name: values[kept] for name, values in columns.items()},
        tuple(runs.context),
        {name: values[kept] for name, values in runs.clusters.items()},
        runs.throughput[kept],
    )
