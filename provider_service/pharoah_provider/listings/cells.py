"""Cells that campaigns have run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pharoah_provider.listings._context_rules import find_served_rule
from pharoah_provider.listings._listing import MAX_LONG_ROWS, Listing, ListingSources, Row, newest
from pharoah_serving.costs import in_thread

if TYPE_CHECKING:
    from pharoah_learning.context_rule import ContextRule

QUERY = """
    SELECT result_id AS id, campaign, block, cell, node, context_id AS context, facts, workload, settings, degradation,
           outcome, detail, list_median(step_seconds[2:]) AS step_seconds, ran_at
    FROM cells
"""


async def rows(sources: ListingSources) -> list[Row]:
    """Cells in the contexts of the newest release; those from before facts were kept stay in theirs."""
    found = await sources.storage.select(newest(QUERY, ("ran_at",), MAX_LONG_ROWS))
    return await in_thread(_in_contexts, found, await find_served_rule(sources))


def _in_contexts(found: list[Row], rule: ContextRule) -> list[Row]:
    return [{**row, "context": rule.context_of(row["facts"]) if row["facts"] else row["context"]} for row in found]


LISTING = Listing(
    name="cells",
    help="cells of campaigns and their outcomes",
    columns=("node", "workload", "settings", "degradation", "outcome", "step_seconds"),
    wide_columns=("id", "campaign", "block", "detail"),
    rows=rows,
    most_rows=MAX_LONG_ROWS,
)
