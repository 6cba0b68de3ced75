"""How probably each node fails soon, by the hazard model of nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pharoah_provider.listings._listing import Listing, ListingSources, Row

if TYPE_CHECKING:
    from pharoah_provider.node_forecasts import NodeForecast

DIGITS = 4


async def rows(sources: ListingSources) -> list[Row]:
    """One row for each node that was seen within four weeks, the most probable failure first; none without a model."""
    from pharoah_provider.node_forecasts import forecasts

    found = await forecasts(sources.storage, sources.now)
    return [_render(one) for one in sorted(found, key=lambda one: -one.forecast.risk)]


def _render(one: NodeForecast) -> Row:
    hour, six_hours, day = (round(share, DIGITS) for share in one.forecast.probability)
    return {
        "node": one.node,
        "within_1h": hour,
        "within_6h": six_hours,
        "within_24h": day,
        "likely_resource": one.resource or "",
        "alarming": one.alarming,
    }


LISTING = Listing(
    name="node-forecasts",
    help="how probably each node fails within an hour, six hours and a day, by its signals",
    columns=("node", "within_1h", "within_6h", "within_24h", "likely_resource", "alarming"),
    rows=rows,
)
