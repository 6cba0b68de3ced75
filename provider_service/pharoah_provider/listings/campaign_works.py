"""The works of campaigns."""

from __future__ import annotations

from pharoah_provider.listings._listing import MAX_ROWS, Listing, newest, select

_QUERY = """
    SELECT campaign_id AS campaign, number, block, kind, node,
           json_extract_string(nullif(cell, ''), '$.id') AS cell,
           campaign_works.state AS state, context_id AS context, ended_at,
           campaign_works.cause AS cause, campaign_works.reason AS reason, created_at
    FROM campaign_works JOIN campaigns USING (campaign_id)
"""

LISTING = Listing(
    name="campaign-works",
    help="the works of campaigns in the order of their plans",
    columns=("campaign", "number", "block", "kind", "node", "cell", "state"),
    wide_columns=("context", "ended_at", "cause", "reason"),
    rows=select(newest(_QUERY, ("created_at", "number"))),
    most_rows=MAX_ROWS,
)
