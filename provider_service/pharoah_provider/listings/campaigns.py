"""Campaigns, and how much of each is done."""

from __future__ import annotations

from pharoah_provider.listings._listing import Listing, select

LISTING = Listing(
    name="campaigns",
    help="campaigns and how much of each is done",
    columns=("id", "name", "state", "done", "works", "failed", "created_at"),
    wide_columns=("blocks", "nodes", "seed", "not_run", "reason"),
    rows=select("""
        SELECT campaign_id AS id, any_value(name) AS name, any_value(campaigns.state) AS state,
               count(*) FILTER (campaign_works.state = 'done') AS done,
               count(*) FILTER (campaign_works.state <> 'moved') AS works,
               any_value((SELECT count(*) FROM cells
                          WHERE starts_with(cells.block, campaigns.campaign_id) AND cells.outcome <> 'ok')) AS failed,
               any_value(created_at) AS created_at, count(DISTINCT block) AS blocks,
               count(DISTINCT node) FILTER (node <> '') AS nodes, any_value(seed) AS seed,
               count(*) FILTER (campaign_works.state IN ('same code', 'dropped')) AS not_run,
               any_value(campaigns.reason) AS reason
        FROM campaigns JOIN campaign_works USING (campaign_id) GROUP BY campaign_id ORDER BY created_at
    """),
)
