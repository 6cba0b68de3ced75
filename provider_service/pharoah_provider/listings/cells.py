"""Cells that campaigns have run."""

from __future__ import annotations

from pharoah_provider.listings._listing import Listing, select

LISTING = Listing(
    name="cells",
    help="cells of campaigns and their outcomes",
    columns=("node", "workload", "settings", "degradation", "outcome", "step_seconds"),
    wide_columns=("id", "campaign", "block", "detail"),
    rows=select("""
        SELECT result_id AS id, campaign, block, cell, node, context_id AS context, workload, settings, degradation,
               outcome, detail, list_median(step_seconds[2:]) AS step_seconds
        FROM cells ORDER BY ran_at
    """),
)
