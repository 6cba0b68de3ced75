"""How the hazard model of nodes does on nodes that it was not fitted on."""

from __future__ import annotations

from dataclasses import asdict
from statistics import median
from typing import TYPE_CHECKING

from pharoah_provider.listings._listing import Listing, ListingSources, Row

if TYPE_CHECKING:
    from pharoah_learning.hazard_check import HazardCheck


async def rows(sources: ListingSources) -> list[Row]:
    """One row for the newest model; none without one. `-o json` also prints what `draw node-hazards` draws."""
    from pharoah_learning.hazard_check import HazardCheck

    found = HazardCheck.decode(await sources.storage.hazards.newest_check())
    return [] if found is None else [_render(found)]


def _render(found: HazardCheck) -> Row:
    return {
        "failures": found.failures,
        "alarmed": len(found.lead_hours),
        "lead_hours": median(found.lead_hours) if found.lead_hours else None,
        "false_alarms": found.false_alarms,
        "healthy_days": round(found.healthy_days),
        "strongest_signals": ", ".join(f"{one.signal} {one.ratio:.3g}" for one in found.hazards[:3] if one.low > 1),
        "hazard_check": asdict(found),
    }


LISTING = Listing(
    name="node-hazards",
    help="how the hazard model does on nodes that it was not fitted on: alarms before failures, and false ones",
    columns=("failures", "alarmed", "lead_hours", "false_alarms", "healthy_days", "strongest_signals"),
    rows=rows,
)
