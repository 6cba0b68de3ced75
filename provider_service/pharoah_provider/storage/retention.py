"""How long rows are kept. Tables that are not listed here are kept for ever: releases, epochs, the transparency log,
revoked rows, cells, nodes and confirmed incidents are what the provider answers for, and learning and audits read them
again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from pharoah_serving.errors import Invalid

log = logging.getLogger("pharoah.provider.retention")

DAY_SECONDS = 86_400.0
MAX_CLOCK_JUMP_SECONDS = 3600.0
"""When the wall clock has moved by this much more or less than the clock since boot, nothing is deleted: a clock that
was set to a wrong date must not empty the database."""


@dataclass(frozen=True)
class TableRetention:
    """How long rows of one table are kept, and why."""

    days: float
    reason: str
    shortest_days: float = 0.0
    """A setting below this is refused."""


RETENTION: Mapping[str, TableRetention] = {
    "telemetry": TableRetention(30, "the hazard model of nodes is learned from four weeks of it"),
    "reports": TableRetention(30, "as long as an epoch can be audited, so that a disputed alert can be looked at"),
    "probes": TableRetention(30, "levels and validations belong to runs; baselines and the newest checks are kept"),
    "orders": TableRetention(7, "budgets of micro-benchmarks count a day; older ones show who had nodes measured", 1),
    "idle_checks": TableRetention(
        180, "the rates of faults of nodes are learned from them; a node has one in an hour, and few more"
    ),
    "tickets": TableRetention(7, "a node ticket holds for ten minutes; only until then can it be used twice", 1),
    "outcomes": TableRetention(90, "learning reads the outcomes of the current week; older ones show trends", 7),
    "revealed": TableRetention(180, "a revealed job is a lead for the next campaign"),
    "runs": TableRetention(365, "ended runs; a lost run can be followed for a year"),
    "suspicions": TableRetention(
        90, "incidents that were never confirmed; runs raise them by themselves, so they would grow for ever"
    ),
}
"""Table to how long its rows are kept. `python -m evaluation storage` prints what the database then weighs."""


class Deleting(Protocol):
    """What deletes old rows of a storage."""

    async def delete_before(self, table: str, before: float) -> int:
        """Delete rows of a table of RETENTION that are from before then (unix seconds); returns how many."""
        ...


def retention(changes: Mapping[str, float]) -> dict[str, float]:
    """Days by table: the defaults with these changes. Raises Invalid that names the table."""
    for table, days in changes.items():
        if table not in RETENTION:
            raise Invalid(f"retention: {table} is not one of {', '.join(RETENTION)}")
        if not RETENTION[table].shortest_days <= days < float("inf"):
            raise Invalid(f"retention: {table}={days:g}, expected at least {RETENTION[table].shortest_days:g} days")
    return {**{table: rule.days for table, rule in RETENTION.items()}, **changes}


class RetentionTask:
    """Deletes old rows once a day."""

    def __init__(
        self,
        storage: Deleting,
        days: Mapping[str, float],
        wall: Callable[[], float],
        since_boot: Callable[[], float],
    ) -> None:
        """`wall` gives unix seconds, `since_boot` seconds that never jump and include the time in which the machine
        was suspended."""
        self._storage, self._days = storage, days
        self._wall, self._since_boot = wall, since_boot
        self._offset = wall() - since_boot()
        """What the wall clock shows more, as it was at the start or after the newest run: small steps of several days
        do not add up to a jump."""
        self._ran_at: float | None = None

    async def run_if_due(self) -> None:
        """Delete what is too old, unless that was done within a day. Raises StoreError."""
        now = self._since_boot()
        if self._ran_at is not None and now - self._ran_at < DAY_SECONDS:
            return
        offset = self._wall() - now
        if abs(offset - self._offset) > MAX_CLOCK_JUMP_SECONDS:
            log.error("the clock has jumped: no old rows are deleted before the provider is started again")
        else:
            await self.run()
            self._offset = offset
        self._ran_at = now

    async def run(self) -> dict[str, int]:
        """Delete what is too old now; the number of deleted rows by table."""
        now = self._wall()
        deleted = {
            table: await self._storage.delete_before(table, now - days * DAY_SECONDS)
            for table, days in self._days.items()
        }
        log.info("rows past their retention: %s", ", ".join(f"{table} {count}" for table, count in deleted.items()))
        return deleted


def markdown_table() -> str:
    """All tables with a retention, as the table of docs/provider/operation.md."""
    lines = ["| table | days | reason |", "|---|---|---|"]
    lines += [f"| `{table}` | {rule.days:g} | {rule.reason} |" for table, rule in RETENTION.items()]
    return "\n".join(lines) + "\n"
