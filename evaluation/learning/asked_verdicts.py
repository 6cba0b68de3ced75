"""Verdicts on simulated jobs: the rows of a table that a node's tenant opens, judged by the tenant's own rules."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, cast

from pharoah._verdict import Verdict
from pharoah.sidecar.exchange_answers import Answer, Match
from pharoah.sidecar.verdict_rules import verdict_from_rows
from pharoah_archetypes import Fingerprint, size_position
from pharoah_learning.context_rule import ContextRule
from pharoah_learning.release import LearnedRow, NodeKind
from pharoah_learning.sealing import compute_learned_input, verdict_row
from pharoah_protocol.tables.query import QueryItem, inputs_of
from pharoah_protocol.vocabulary import Scope


@dataclass(frozen=True)
class OpenTable:
    """The rows of a release by what opens them, as if each had been sealed and opened."""

    rows: dict[tuple[str, bytes], LearnedRow]
    rule: ContextRule

    @classmethod
    def of(cls, rows: Iterable[LearnedRow], rule: ContextRule) -> OpenTable:
        """The first of two rows about the same counts, as at sealing."""
        found: dict[tuple[str, bytes], LearnedRow] = {}
        for row in rows:
            found.setdefault((f"{row.scope} {row.group_id}", compute_learned_input(row)), row)
        return cls(found, rule)

    def verdict(self, job: AskedJob, node: NodeKind) -> Verdict:
        """What a tenant with this job reads on such a node."""
        classes = {Scope.SERVER: self.rule.context_of(node.facts), Scope.DEVICE: node.device_id}
        matches = [
            Match(asked.kind, asked.rung, scope, verdict_row(row))
            for scope, group in classes.items()
            for asked in job.inputs
            if (row := self.rows.get((f"{scope} {group}", asked.value))) is not None
        ]
        served = SimpleNamespace(head=SimpleNamespace(release=1, epoch=1))
        return verdict_from_rows(Answer(cast(Any, served), tuple(matches), 0), "", size=job.size)


@dataclass(frozen=True)
class AskedJob:
    """What a tenant asks about a job."""

    inputs: Sequence[QueryItem]
    size: int
    """Its position in its size classes."""

    @classmethod
    def of(cls, fingerprint: Fingerprint) -> AskedJob:
        """All inputs that a row can be about, apart from those about one node."""
        return cls(inputs_of(fingerprint), size_position(fingerprint.sizes))
