"""Campaigns, and how much of each is done."""

from __future__ import annotations

from pharoah_provider.listings._listing import Listing, ListingSources, Row
from pharoah_serving.costs import in_thread

_QUERY = """
    SELECT campaign_id AS id, any_value(name) AS name, any_value(campaigns.state) AS state,
           count(*) FILTER (campaign_works.state = 'done') AS done,
           count(*) FILTER (campaign_works.state = 'not run') AS not_run,
           count(*) FILTER (campaign_works.state <> 'moved') AS works,
           any_value((SELECT count(*) FROM cells
                      WHERE starts_with(cells.block, campaigns.campaign_id) AND cells.outcome <> 'ok')) AS failed,
           any_value(created_at) AS created_at, count(DISTINCT block) AS blocks,
           count(DISTINCT node) FILTER (node <> '') AS nodes, any_value(seed) AS seed,
           any_value(campaigns.reason) AS reason, any_value(executor) AS executor,
           any_value(budget_seconds) / 60 AS budget_minutes,
           list(began_at) FILTER (campaign_works.state = 'done') AS began,
           list(ended_at) FILTER (campaign_works.state = 'done') AS ended
    FROM campaigns JOIN campaign_works USING (campaign_id) GROUP BY campaign_id ORDER BY created_at
"""


async def rows(sources: ListingSources) -> list[Row]:
    """One row for each campaign."""
    return await in_thread(_rows, await sources.storage.select(_QUERY))


def _rows(found: list[Row]) -> list[Row]:
    return [_row(row) for row in found]


def _row(row: Row) -> Row:
    from pharoah_provider.campaigns.budget import Interval, measure_covered_seconds
    from pharoah_provider.campaigns.executor_settings import ExecutorSettings

    began, ended = row.pop("began") or [], row.pop("ended") or []
    used = [Interval(start, end) for start, end in zip(began, ended, strict=True) if start is not None]
    executor = ExecutorSettings.from_json(row["executor"]).name
    return {**row, "executor": executor, "used_minutes": measure_covered_seconds(used) / 60}


LISTING = Listing(
    name="campaigns",
    help="campaigns and how much of each is done",
    columns=("id", "name", "state", "done", "works", "failed", "created_at"),
    wide_columns=("not_run", "blocks", "nodes", "seed", "executor", "used_minutes", "budget_minutes", "reason"),
    rows=rows,
)
