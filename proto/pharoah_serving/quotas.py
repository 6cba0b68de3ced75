"""How much may be asked: per offer one question, per day so many for a tenant and for its organisation.

Days are UTC days. What was asked today is counted again from the audit log after a restart.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from pharoah_serving.errors import Exhausted
from pharoah_serving.principals import Principal

DAY_SECONDS = 86_400


@dataclass(frozen=True)
class Limits:
    tenant_questions: int = 100
    """Questions a day; each opens at most 64 rows per class."""
    organisation_questions: int = 200
    tenant_offers: int = 1_000
    """Offers a day: those that are never asked about cost too."""


@dataclass
class Quotas:
    limits: Limits = field(default_factory=Limits)
    _day: int = 0
    _used: Counter[tuple[str, str]] = field(default_factory=Counter)

    def take_offer(self, who: Principal, now: float) -> None:
        """Raises Exhausted."""
        self._take(now, {("offers", who.name): self.limits.tenant_offers})

    def take_question(self, who: Principal, now: float) -> None:
        """Raises Exhausted; then nothing is taken."""
        self._take(
            now,
            {
                ("tenant", who.name): self.limits.tenant_questions,
                ("organisation", who.organisation): self.limits.organisation_questions,
            },
        )

    def recount(self, who: Principal, questions: int, offers: int, now: float) -> None:
        """What was used today before a restart."""
        self._turn(now)
        self._used["tenant", who.name] += questions
        self._used["organisation", who.organisation] += questions
        self._used["offers", who.name] += offers

    def _take(self, now: float, wanted: dict[tuple[str, str], int]) -> None:
        self._turn(now)
        for key, limit in wanted.items():
            if self._used[key] >= limit:
                raise Exhausted(f"today's {limit} {'offers' if key[0] == 'offers' else 'questions'} are used up")
        self._used.update(wanted.keys())

    def _turn(self, now: float) -> None:
        """A clock that was set back gives nobody a new day."""
        if (day := int(now // DAY_SECONDS)) > self._day:
            self._day, self._used = day, Counter()
