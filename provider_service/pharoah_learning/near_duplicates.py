"""Rows about near duplicates: what the jobs that share a band have in common, for jobs nobody has run.

One such row answers for many archetypes, so it is coarse: a warning at most and no remedy. It warns where two of
them have failed: what is odd about one of them need not be what they share. There is no row where the neighbours
disagree, nor for failures that have met a limit, because whether a job fits is arithmetic and not similarity.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from pharoah_archetypes import Fingerprint, band_tokens, rung_tokens
from pharoah_archetypes.sketch import RUNG
from pharoah_learning.evidence import Trial
from pharoah_learning.reach import MIN_VALUES
from pharoah_learning.release import LearnedRow
from pharoah_protocol.vocabulary import RowKind, Scope, Severity


def learn_near_duplicates(rows: Iterable[LearnedRow], trials: Iterable[Trial]) -> list[LearnedRow]:
    """Band rows for every group, from its rows of one rung."""
    known = _bands_by_tokens(trials)
    found: dict[tuple[Scope, str, tuple[str, ...]], list[LearnedRow]] = defaultdict(list)
    for row in rows:
        if row.rung == RUNG and row.limit is None and row.severity is not Severity.INFO:
            for band in known.get(row.tokens, ()):
                found[row.scope, row.group_id, band].append(row)
    return [
        _row(scope, group_id, band, neighbours)
        for (scope, group_id, band), neighbours in sorted(found.items())
        if _agree(neighbours)
    ]


def _agree(neighbours: Sequence[LearnedRow]) -> bool:
    """Whether all of them worked, or all failed, and there are at least two."""
    worked = {row.severity is Severity.OK for row in neighbours}
    return worked == {True} or (worked == {False} and len(neighbours) >= MIN_VALUES)


def _bands_by_tokens(trials: Iterable[Trial]) -> dict[tuple[str, ...], list[tuple[str, ...]]]:
    known: dict[tuple[str, ...], list[tuple[str, ...]]] = {}
    for text in sorted({trial.fingerprint for trial in trials}):
        fingerprint = Fingerprint.from_json(text)
        tokens = rung_tokens(fingerprint, RUNG)
        if tokens not in known:
            known[tokens] = band_tokens(fingerprint)
    return known


def _row(scope: Scope, group_id: str, band: tuple[str, ...], neighbours: Sequence[LearnedRow]) -> LearnedRow:
    worst = max(neighbours, key=lambda row: (row.failures, row.outcome))
    failures, runs = sum(row.failures for row in neighbours), sum(row.runs for row in neighbours)
    return LearnedRow(
        scope=scope,
        group_id=group_id,
        rung=RUNG,
        tokens=band,
        severity=Severity.OK if worst.severity is Severity.OK else Severity.WARN,
        outcome=worst.outcome,
        failures=failures,
        runs=runs,
        base_failures=sum(row.base_failures for row in neighbours),
        base_runs=sum(row.base_runs for row in neighbours),
        remedy=0,
        title=f"like {worst.title}",
        kind=RowKind.BAND,
    )
