"""Runs that join a provider on loopback."""

from __future__ import annotations

import secrets
import time
from typing import Any

from pharoah_protocol.pseudonyms import period_at
from pharoah_protocol.reports import level
from pharoah_protocol.v1 import Consent, EvaluatePseudonymRequest, JoinRunRequest, ListRequest, ReportRequest
from pharoah_protocol.voprf import protocol
from pharoah_provider.shared_votes import MIN_SECONDS
from tests.harness.loopback import Loopback, ticket

LATER_SECONDS = 3600.0
"""Windows of these tests lie in the future: no probe masks them."""


async def join(site: Loopback, where: str = "n1", who: str = "acme", run_id: bytes = b"", **changes: Any) -> bytes:
    run_id = run_id or secrets.token_bytes(16)
    consent = Consent(beside_job=True, limit_seconds=5)
    request = JoinRunRequest(**{"run_id": run_id, "ticket": ticket(where), "ranks": 1, "consent": consent, **changes})
    await site.call("Runs", "JoinRun", request, who)
    return run_id


def report(run_id: bytes, first: int, *ratios: float, **changes: Any) -> ReportRequest:
    """Seconds of a run with one rank, from second `first` on, one for each step ratio."""
    levels = [level(ratio) for ratio in ratios]
    content: dict[str, Any] = {
        "run_id": run_id,
        "attempt": 1,
        "first_second": first,
        "first_ended_at": time.time() + LATER_SECONDS + first,
        "step_levels": levels,
        "memory_levels": [0] * len(levels),
    }
    return ReportRequest(**{**content, **changes})


async def may_vote(site: Loopback, run_id: bytes, who: str = "acme") -> None:
    """What an outcome of a run needs to count as a vote, apart from the time that passes: reports of a minute, and an
    evaluated pseudonym. Tests use it with the fixture `minute_long_runs`."""
    await site.call("Runs", "Report", report(run_id, 0, *[1.0] * int(MIN_SECONDS)), who)
    request = EvaluatePseudonymRequest(period=period_at(time.time()), blinded=protocol.blind(b"x").element)
    await site.call("Pseudonyms", "EvaluatePseudonym", request, who)


async def rows(site: Loopback, name: str) -> list[str]:
    """The rows of a listing, as JSON."""
    return list((await site.call("Operator", "List", ListRequest(listing=name), "ops")).rows)
