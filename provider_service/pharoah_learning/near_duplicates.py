"""Rows about near duplicates: what the jobs that share a band have in common, for jobs nobody has run.

Coarse on purpose, since one such row answers for many archetypes: a warning at most, no remedy, and nothing where
neighbours disagree or where memory is the matter, which is arithmetic and not likeness.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from pharoah_archetypes import Fingerprint, GrammarError, band_tokens, rung_tokens
from pharoah_archetypes.sketch import RUNG
from pharoah_learning.evidence import Trial
from pharoah_learning.release import LearnedRow


def learn_near_duplicates(rows: Iterable[LearnedRow], trials: Iterable[Trial]) -> list[LearnedRow]:
    """Band rows for every group, from its rows of one rung."""
    known = _bands_by_tokens(trials)
    found: dict[tuple[str, str, tuple[str, ...]], list[LearnedRow]] = defaultdict(list)
    for row in rows:
        if row.rung == RUNG and row.outcome != "memory":
            for band in known.get(row.tokens, ()):
                found[row.scope, row.group_id, band].append(row)
    return [
        _row(scope, group_id, band, alike)
        for (scope, group_id, band), alike in sorted(found.items())
        if len({row.severity == "ok" for row in alike}) == 1
    ]


def _bands_by_tokens(trials: Iterable[Trial]) -> dict[tuple[str, ...], list[tuple[str, ...]]]:
    known: dict[tuple[str, ...], list[tuple[str, ...]]] = {}
    for text in {trial.fingerprint for trial in trials}:
        fingerprint = Fingerprint.from_json(text)
        tokens = rung_tokens(fingerprint, RUNG)
        if tokens not in known:
            try:
                known[tokens] = band_tokens(fingerprint)
            except GrammarError:
                known[tokens] = []  # a fingerprint that another tool has made
    return known


def _row(scope: str, group_id: str, band: tuple[str, ...], alike: Sequence[LearnedRow]) -> LearnedRow:
    worst = max(alike, key=lambda row: (row.failures, row.outcome))
    failures, runs = sum(row.failures for row in alike), sum(row.runs for row in alike)
    return LearnedRow(
        scope,
        group_id,
        RUNG,
        band,
        "ok" if worst.severity == "ok" else "warn",
        worst.outcome,
        failures,
        runs,
        sum(row.base_failures for row in alike),
        sum(row.base_runs for row in alike),
        0,
        f"like {worst.title}",
        kind="band",
    )
