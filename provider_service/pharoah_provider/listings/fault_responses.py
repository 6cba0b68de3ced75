"""What faults did to cells of campaigns, and which signals showed it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from pharoah_provider.listings._listing import Listing, ListingSources, Row
from pharoah_serving.costs import in_thread

if TYPE_CHECKING:
    from pharoah_learning.evidence import DegradedRun
    from pharoah_learning.fault_responses import FaultResponse


async def _rows(sources: ListingSources) -> list[Row]:
    return await in_thread(_responses, await sources.storage.evidence.list_degraded_runs())


def _responses(runs: Sequence[DegradedRun]) -> list[Row]:
    from pharoah_learning.fault_responses import fault_responses

    return [_row(response) for response in fault_responses(runs)]


def _row(response: FaultResponse) -> Row:
    return {
        "fault": response.fault,
        "dose": response.dose,
        "runs": response.runs,
        "outcomes": _count(response.outcomes),
        "slowdown": _round(response.slowdown_ratio),
        "growth_mb": _round(None if response.growth_bytes is None else response.growth_bytes / 1e6),
        "detected": f"{response.detected}/{response.runs}",
        "detect_seconds": _round(response.detect_seconds),
        "moved": _count(response.moved),
    }


def _count(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in counts.items())


def _round(value: float | None) -> float | None:
    return None if value is None else round(value, 2)


LISTING = Listing(
    name="fault-responses",
    help="what each fault and dose did to cells of campaigns, and in how many runs which signals moved",
    columns=("fault", "dose", "runs", "outcomes", "slowdown", "growth_mb"),
    wide_columns=("detected", "detect_seconds", "moved"),
    rows=_rows,
)
