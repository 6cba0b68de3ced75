"""The table of a release from trials: provider and auditor make it by this one function, so that a replay is exact."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from pharoah_learning.context_evidence import LearnedContexts, describe_contexts, in_contexts, learn_contexts
from pharoah_learning.context_rule import KnownContext
from pharoah_learning.evidence import EvidenceKind, LeftOut, Trial
from pharoah_learning.expansion import expand_rows
from pharoah_learning.incompatibility import learn_incompatibilities
from pharoah_learning.limit_rows import learn_limit_rows, strongest
from pharoah_learning.monitoring_plans import learn_plans
from pharoah_learning.near_duplicates import learn_near_duplicates
from pharoah_learning.node_rows import learn_node_rows
from pharoah_learning.release import LearnedRow, NodeKind, Suspect
from pharoah_learning.sealing import sealable
from pharoah_learning.sub_archetypes import LearnedVersions, learn_versions
from pharoah_learning.suspects import find_suspects
from pharoah_learning.usable_trials import usable_trials
from pharoah_learning.wrong_trials import mark_wrong


@dataclass(frozen=True)
class LearnedTable:
    """What trials show."""

    trials: tuple[Trial, ...]
    """The trials that were learned from, in the contexts of the rule that they support."""
    rows: tuple[LearnedRow, ...]
    """About archetypes."""
    bands: tuple[LearnedRow, ...]
    """About near duplicates."""
    nodes: tuple[LearnedRow, ...]
    """About archetypes on one gray node."""
    expanded: tuple[LearnedRow, ...]
    """About archetypes with versions that behave as those of `rows` do."""
    suspects: tuple[Suspect, ...]
    """Failures that one node alone reports."""
    versions: LearnedVersions
    """Which versions behave the same, and what changes between them."""
    learned_contexts: LearnedContexts
    """Which facts make a context."""
    contexts: tuple[KnownContext, ...]
    """The contexts of the trials, described."""


def learn_table(
    trials: Iterable[Trial],
    left_out: LeftOut,
    returned: Mapping[str, float] | None = None,
    fleet: Iterable[NodeKind] = (),
) -> LearnedTable:
    """Rows and suspects from stored trials. What cannot be used is added to `left_out`; nothing is raised for it.

    `returned`: when an operator has returned a node to service, unix seconds. `fleet`: the nodes that the provider
    knows, whether they have run anything or not.
    """
    usable = mark_wrong(usable_trials(trials, left_out))
    contexts = learn_contexts(usable)
    used = in_contexts(usable, contexts.rule)
    learned = learn_incompatibilities(used)
    limited = learn_limit_rows(used, fleet, contexts.rule)
    rows = learn_plans(strongest([*learned, *limited]), used)
    versions = learn_versions(used)
    expanded = expand_rows(rows, used, versions.sub_archetypes)
    gray, bands = learn_node_rows(used, returned or {}), learn_near_duplicates(rows, used)
    # Expanded rows come last, so that none takes the place of a learned one.
    found = sealable([*rows, *gray, *bands, *expanded])
    for row in found.left_out:
        left_out.add(EvidenceKind.ROW, row.group_id, "it cannot be sealed beside another row, or at all")

    def seal(learned: Iterable[LearnedRow]) -> tuple[LearnedRow, ...]:
        ids = {id(row) for row in learned}
        return tuple(row for row in found.rows if id(row) in ids)

    return LearnedTable(
        trials=tuple(used),
        rows=seal(rows),
        bands=seal(bands),
        nodes=seal(gray),
        expanded=seal(expanded),
        suspects=tuple(find_suspects(used)),
        versions=versions,
        learned_contexts=contexts,
        contexts=describe_contexts(used, contexts.rule),
    )
