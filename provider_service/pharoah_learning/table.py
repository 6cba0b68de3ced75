"""The table of a release from trials: provider and auditor make it by this one function, so that a replay is exact."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from pharoah_learning.context_evidence import LearnedContexts, in_contexts, known_contexts, learn_contexts
from pharoah_learning.context_rule import KnownContext
from pharoah_learning.evidence import EvidenceKind, LeftOut, Trial
from pharoah_learning.incompatibility import learn_incompatibilities
from pharoah_learning.monitoring_plans import learn_plans
from pharoah_learning.near_duplicates import learn_near_duplicates
from pharoah_learning.release import LearnedRow, Suspect
from pharoah_learning.sealing import sealable
from pharoah_learning.suspects import find_suspects
from pharoah_learning.usable_trials import usable_trials
from pharoah_protocol.vocabulary import RowKind


@dataclass(frozen=True)
class LearnedTable:
    """What trials show."""

    trials: tuple[Trial, ...]
    """The trials that were learned from, in the contexts of the rule that they support."""
    rows: tuple[LearnedRow, ...]
    """About archetypes."""
    bands: tuple[LearnedRow, ...]
    """About near duplicates."""
    suspects: tuple[Suspect, ...]
    """Failures that one node alone reports."""
    learned_contexts: LearnedContexts
    """Which facts make a context."""
    contexts: tuple[KnownContext, ...]
    """The contexts of the trials, described."""


def learn_table(trials: Iterable[Trial], left_out: LeftOut) -> LearnedTable:
    """Rows and suspects from stored trials. What cannot be used is added to `left_out`; nothing is raised for it."""
    usable = usable_trials(trials, left_out)
    learned = learn_contexts(usable)
    used = in_contexts(usable, learned.rule)
    rows = learn_plans(learn_incompatibilities(used), used)
    found = sealable([*rows, *learn_near_duplicates(rows, used)])
    for row in found.left_out:
        left_out.add(EvidenceKind.ROW, row.group_id, "it cannot be sealed beside another row, or at all")
    return LearnedTable(
        trials=tuple(used),
        rows=tuple(row for row in found.rows if row.kind is RowKind.ARCHETYPE),
        bands=tuple(row for row in found.rows if row.kind is RowKind.BAND),
        suspects=tuple(find_suspects(used)),
        learned_contexts=learned,
        contexts=known_contexts(used, learned.rule),
    )
