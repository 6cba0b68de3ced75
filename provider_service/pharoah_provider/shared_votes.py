"""Whether an outcome that a tenant shares counts as a vote of its organisation (ADR 21).

Anybody can join and end a run in a moment. So a vote takes a run of some length with reports, and pseudonyms that were
evaluated: an organisation votes about no more names in a period than it has had evaluated by this provider.
"""

from __future__ import annotations

from pharoah_provider.domain import Run
from pharoah_provider.storage.base import SharingStore

MIN_SECONDS = 60.0
"""How long a run must have lasted, and of how many seconds it must have reported: as long as a run may be silent before
it no longer counts as running (`monitor.SILENCE_SECONDS`)."""


def has_lasted(run: Run, reported_seconds: float, now: float) -> bool:
    """Whether a run was long enough at `now` (unix seconds), by the provider's clock and by its own reports."""
    return min(now - run.joined_at, reported_seconds) >= MIN_SECONDS


async def counts(sharing: SharingStore, run: Run, organisation: str, period: int, name: str, now: float) -> bool:
    """Whether the outcome of a run counts as a vote about this pseudonym (hexadecimal)."""
    names = await sharing.names(organisation, period)
    if len(names | {name}) > await sharing.evaluations(organisation, period):
        return False
    return has_lasted(run, await sharing.sum_reported_seconds(run), now)  # last, because it looks through reports
