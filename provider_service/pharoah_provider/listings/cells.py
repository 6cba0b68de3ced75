"""Cells that campaigns have run."""

from __future__ import annotations

from pharoah_provider.listings._context_rules import served_rule
from pharoah_provider.listings._listing import Listing, ListingSources, Row

QUERY = """
    SELECT result_id AS id, campaign, block, cell, node, context_id AS context, facts, workload, settings, degradation,
           outcome, detail, list_median(step_seconds[2:]) AS step_seconds
    FROM cells ORDER BY ran_at
"""


async def rows(sources: ListingSources) -> list[Row]:
    """Cells in the contexts of the newest release; those from before facts were kept stay in theirs."""
    rule = await served_rule(sources)
    return [
        {**row, "context": rule.context_of(row["facts"]) if row["facts"] else row["context"]}
        for row in await sources.storage.select(QUERY)
    ]


LISTING = Listing(
    name="cells",
    help="cells of campaigns and their outcomes",
    columns=("node", "workload", "settings", "degradation", "outcome", "step_seconds"),
    wide_columns=("id", "campaign", "block", "detail"),
    rows=rows,
)
