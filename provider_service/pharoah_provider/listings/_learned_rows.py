"""Learned rows of the newest release, as listings show them."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Iterable, Set
from typing import TYPE_CHECKING

from pharoah_protocol.tables.query import node_of
from pharoah_protocol.vocabulary import RowKind
from pharoah_provider.listings._listing import ListingSources, Row
from pharoah_provider.listings._node_names import few_names
from pharoah_serving.costs import in_thread

if TYPE_CHECKING:
    from pharoah_learning.release import LearnedRow, Release
    from pharoah_provider.domain import Node

REVOKED = "revoked"
"""Shown as the severity of a row that was revoked."""


def list_learned_rows(*kinds: RowKind) -> Callable[[ListingSources], Awaitable[list[Row]]]:
    """The rows of some kinds, with the confidence intervals of their failure rates."""

    async def rows(sources: ListingSources) -> list[Row]:
        release = await sources.storage.published.newest_release()
        if release is None:
            return []
        revoked = set(await sources.storage.log.list_revoked_ids())
        return await in_thread(_rows, release, kinds, revoked, await sources.storage.nodes.nodes())

    return rows


def _rows(release: Release, kinds: Collection[RowKind], revoked: Set[str], nodes: Iterable[Node]) -> list[Row]:
    names: dict[str, list[str]] = defaultdict(list)
    for node in nodes:
        names[release.context_rule.context_of(node.server_facts)].append(node.node)
    shown = {context: few_names(own) for context, own in names.items()}
    return [
        {
            "release": release.release,
            "nodes": node_of(row.tokens) if row.kind is RowKind.NODE else shown.get(row.group_id, ""),
            **_render(row, row.id in revoked),
        }
        for row in release.rows
        if row.kind in kinds
    ]


def _render(row: LearnedRow, revoked: bool) -> Row:
    from pharoah_learning.models.odds_ratios import odds_ratio
    from pharoah_learning.models.proportions import wilson

    low, high = wilson(row.failures, row.runs)
    odds = odds_ratio(row.failures, row.runs, row.base_failures, row.base_runs)
    return {
        "id": row.id,
        "scope": row.scope,
        "context": row.group_id,
        "rung": row.rung,
        "title": row.title,
        "severity": REVOKED if revoked else row.severity,
        "outcome": row.outcome,
        "failed": f"{row.failures}/{row.runs}",
        "base": f"{row.base_failures}/{row.base_runs}",
        "failures": row.failures,
        "runs": row.runs,
        "rate_low": round(low, 3),
        "rate_high": round(high, 3),
        "base_failures": row.base_failures,
        "base_runs": row.base_runs,
        **{f"odds_{name}": _round(value) for name, value in odds._asdict().items()},
        "remedy": row.remedy,
        "provenance": row.provenance,
        "grade": row.grade,
        "evidence": row.evidence,
        "tokens": " ".join(row.tokens),
    }


def _round(value: float) -> float | None:
    """None for an odds ratio that is infinite or unknown, which JSON has no number for."""
    return float(f"{value:.4g}") if math.isfinite(value) else None
