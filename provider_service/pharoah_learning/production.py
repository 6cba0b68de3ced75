"""What production runs show: which archetypes fail on nodes with which facts, from runs that tenants have revealed.

A revealed run is a tenant's word, so organisations count and not runs: a pair stands only where it survives without
any one of them (`clustered`). Nothing here makes a row: a pair is a reason to run
randomised cells (docs/adr/0033).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import numpy as np

from pharoah_archetypes import Fingerprint
from pharoah_learning.evidence import EvidenceKind, LeftOut, RevealedRun, end_counts
from pharoah_learning.incompatible_pairs import PairFinding, find_incompatible_pairs
from pharoah_learning.observations import Observations, codes_of
from pharoah_protocol.row_inputs import check_inputs
from pharoah_protocol.vocabulary import EndState

MIN_RUNS = 5
"""A fact with a value that fewer runs have cannot be compared (see `incompatible_pairs.MIN_FAILURES`)."""
SEED = 1
"""Draws the matched pairs that are shown to people; fixed, so that learning again gives the same."""


@dataclass(frozen=True)
class _Usable:
    """A run whose end counts, with the name of its structure."""

    run: RevealedRun
    archetype: str


def learn_production(runs: Iterable[RevealedRun], left_out: LeftOut) -> list[PairFinding]:
    """Pairs of an archetype and a fact of nodes, the most certain first. Never raises, whatever tenants have sent."""
    usable = _usable(runs, left_out)
    seen = observations(usable)
    return find_incompatible_pairs(seen, SEED)


def observations(usable: Sequence[_Usable]) -> Observations:
    """Columns of runs. Facts that all runs share, or that only a few have, are left out."""
    archetypes, archetype = np.unique([one.archetype for one in usable], return_inverse=True)
    counts = Counter(fact for one in usable for fact in set(one.run.facts))
    facts = sorted(fact for fact, runs in counts.items() if MIN_RUNS <= runs <= len(usable) - MIN_RUNS)
    organisation = codes_of([one.run.organisation for one in usable])
    in_context = np.array([[fact in one.run.facts for fact in facts] for one in usable], dtype=bool)
    return Observations(
        tuple(archetypes.tolist()),
        tuple(facts),
        archetype.astype(np.int64),
        in_context.reshape(len(usable), len(facts)),
        {
            "organisation": organisation,
            "ranks": codes_of([one.run.ranks.bit_length() for one in usable]),
            "month": codes_of([_month(one.run.ended_at) for one in usable]),
        },
        np.array([one.run.state is EndState.FAILED for one in usable], dtype=bool),
        {"organisation": organisation},
    )


def _usable(runs: Iterable[RevealedRun], left_out: LeftOut) -> list[_Usable]:
    found = []
    for run in runs:
        archetype = _archetype(run.fingerprint)
        if not archetype:
            left_out.add(EvidenceKind.REVEALED_RUN, run.organisation, "its fingerprint cannot be read")
        elif not end_counts(run.state, run.attribution):
            left_out.add(EvidenceKind.REVEALED_RUN, run.organisation, "its end says nothing about the job or the node")
        else:
            found.append(_Usable(run, archetype))
    return found


def _archetype(text: str) -> str:
    try:
        fingerprint = Fingerprint.from_json(text)
        check_inputs(fingerprint)
    except (ValueError, TypeError, RecursionError):
        return ""
    return fingerprint.archetype


def _month(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m")
