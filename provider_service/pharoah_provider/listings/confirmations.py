"""Suspects that campaigns confirm or refute."""

from __future__ import annotations

from pharoah_provider.listings._listing import Listing, select

LISTING = Listing(
    name="confirmations",
    help="suspects that campaigns confirm or refute, and what their pairs of cells say",
    columns=("campaign", "suspect", "node", "decision", "pairs", "most_pairs", "against", "for_it", "e_value", "title"),
    wide_columns=("fails_on", "missing", "suspected", "control"),
    rows=select("""
        SELECT campaign_id AS campaign, suspect_id AS suspect, node, decision, pairs, most_pairs, against, for_it,
               e_value, title, array_to_string(nodes, '+') AS fails_on, missing, suspected, control
        FROM campaign_suspects JOIN campaigns USING (campaign_id) ORDER BY created_at, suspect_id
    """),
)
