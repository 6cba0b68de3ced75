"""The works of campaigns that have no result, each with its cause and what to do."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pharoah_provider.listings._listing import MAX_ROWS, Listing, ListingSources, Row, newest
from pharoah_serving.costs import in_thread

if TYPE_CHECKING:
    from pharoah_provider.campaigns.not_run import NotRun

_QUERY = """
    SELECT campaign_id AS campaign, number, kind, node,
           json_extract_string(nullif(cell, ''), '$.id') AS cell,
           campaign_works.state AS state, campaigns.state AS campaign_state, cause,
           CASE WHEN campaign_works.state = 'waiting' THEN campaigns.reason ELSE campaign_works.reason END AS reason,
           created_at
    FROM campaign_works JOIN campaigns USING (campaign_id) WHERE campaign_works.state IN ('waiting', 'not run')
"""


async def rows(sources: ListingSources) -> list[Row]:
    """One row for each work that has no result. Those that were moved have their block elsewhere."""
    return await in_thread(_rows, await sources.storage.select(newest(_QUERY, ("created_at", "number"))))


def _rows(found: list[Row]) -> list[Row]:
    from pharoah_provider.campaigns.not_run import NotRun
    from pharoah_provider.campaigns.works import CampaignState, WorkState

    waiting = {
        CampaignState.PLANNED: NotRun.NOT_BEGUN,
        CampaignState.RUNNING: NotRun.IN_TURN,
        CampaignState.PAUSED: NotRun.PAUSED,
        CampaignState.CANCELLED: NotRun.CANCELLED,
        CampaignState.SPENT: NotRun.BUDGET_USED,
    }

    def row(found: Row) -> Row:
        state = CampaignState(found.pop("campaign_state"))
        waits = found["state"] == WorkState.WAITING
        cause: NotRun = waiting.get(state, NotRun.PAUSED) if waits else NotRun(found["cause"])
        remedy = cause.remedy.format(campaign=found["campaign"])
        return {**found, "cause": str(cause), "remedy": remedy, "needed": not cause.needs_no_run}

    return [row(one) for one in found]


LISTING = Listing(
    name="works-not-run",
    help="the works of campaigns that have no result, why, and what to do",
    columns=("campaign", "number", "node", "cell", "cause"),
    wide_columns=("kind", "state", "needed", "reason", "remedy"),
    rows=rows,
    most_rows=MAX_ROWS,
)
