"""Quotas: how often a tenant and its organisation may call on one UTC day, and how fast one run may report.

Quotas of a day are counted again from the audit log after a restart, so that a restart gives nobody new queries. A call
that uses a quota notes it (`QuotaUse`), and its line in the audit log says so.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field, replace

from grpc import StatusCode

from pharoah_protocol.vocabulary import Role
from pharoah_serving.audit_log import AuditRecord, utc_day
from pharoah_serving.errors import Exhausted
from pharoah_serving.principals import Principal

QUESTION_METHODS = ("Evaluate", "Lookup")
STATUSES_THAT_USED_AN_OFFER = tuple(
    status.name for status in (StatusCode.OK, StatusCode.CANCELLED, StatusCode.DEADLINE_EXCEEDED, StatusCode.INTERNAL)
)

STATUSES_OF_REJECTED_RESULTS = (StatusCode.INVALID_ARGUMENT.name, StatusCode.NOT_FOUND.name)


@dataclass
class QuotaUse:
    """Whether one call has used a quota."""

    taken: bool = False


_use: ContextVar[QuotaUse | None] = ContextVar("quota_use", default=None)


@contextmanager
def noting(use: QuotaUse) -> Iterator[None]:
    """While a quota that is used is noted in `use`: it belongs to the call of this task."""
    token = _use.set(use)
    try:
        yield
    finally:
        with suppress(ValueError):  # gRPC closes a stream that was cancelled from another context
            _use.reset(token)


def _note() -> None:
    if (use := _use.get()) is not None:
        use.taken = True


def counts_for_quotas(record: AuditRecord) -> bool:
    """Whether `Quotas.recount` counts this call."""
    return _count_before(record) if record.quota is None else record.quota


def _count_before(record: AuditRecord) -> bool:
    """The same for a line of a release that did not note who used a quota: it is guessed from method and status."""
    if record.role != Role.TENANT:
        return False
    if record.method in QUESTION_METHODS:
        return record.status in STATUSES_THAT_USED_AN_OFFER
    if record.method == "EvaluatePseudonym":
        return record.status not in (StatusCode.RESOURCE_EXHAUSTED.name, StatusCode.NOT_FOUND.name)
    if record.method == "SendProbeResult":
        return record.status in STATUSES_OF_REJECTED_RESULTS
    return record.method in ("GetOffer", "Reveal", "AskValidation") and record.status == StatusCode.OK.name


def reduce_for_quotas(record: AuditRecord) -> AuditRecord | None:
    """What `Quotas.recount` needs of a record; None for one that it does not count.

    Few different records are left, so that a long day takes little memory. The offer is needed only where repeats of
    one question have lines of the same kind.
    """
    if not counts_for_quotas(record):
        return None
    offer = record.offer if record.quota is None and record.method in QUESTION_METHODS else ""
    return replace(record, offer=offer, received_bytes=0, sent_bytes=0, peers=0)


@dataclass(frozen=True)
class Limits:
    """Uses a day (docs/exchange.md has what an attacker learns with them)."""

    tenant_queries: int = 100
    """Each opens at most 64 rows per class."""
    organisation_queries: int = 200
    tenant_offers: int = 1_000
    """More than query batches, because an offer that is not used costs the provider little, but not nothing."""
    organisation_pseudonyms: int = 200
    """A tenant that also holds one of the two keys can test one guess with every evaluation by the other key."""
    organisation_reveals: int = 100
    """Jobs that are revealed in plain words; each may take 256 KiB, which is kept for half a year."""
    organisation_asked_validations: int = 100
    """How long the micro-benchmarks of all of them take together is bounded by `monitoring.budgets`."""
    organisation_rejected_results: int = 1_000
    """Results of micro-benchmarks that answer no order of ours. Sidecars that work send none; what is accepted is
    bounded by the orders."""


@dataclass
class DailyQuota:
    """So many uses a UTC day for each holder. A clock that goes back and forth around midnight gives no new ones."""

    limit: int
    unit: str
    """Plural noun for the error message."""
    _used_by_day: dict[int, Counter[str]] = field(default_factory=dict)
    """Uses by day and holder, for the present day and the two beside it."""

    def check(self, holder: str, now: float) -> None:
        """Raises Exhausted when nothing is left today."""
        if self._count_uses(now)[holder] >= self.limit:
            raise Exhausted(f"today's {self.limit} {self.unit} are used up")

    def take(self, holder: str, now: float) -> None:
        """Raises Exhausted; then nothing is taken."""
        self.check(holder, now)
        self._count_uses(now)[holder] += 1

    def add_used(self, holder: str, uses: int, now: float) -> None:
        """Count uses of today from before a restart, or several at once; a negative number is given back."""
        self._count_uses(now)[holder] += uses

    def _count_uses(self, now: float) -> Counter[str]:
        """Uses of the day; a clock that was set back by a day starts no new one. Days that are not next to it are
        forgotten, also those of a clock that was ahead."""
        day = utc_day(now)
        if day not in self._used_by_day:
            self._used_by_day = {near: used for near, used in self._used_by_day.items() if abs(near - day) <= 1}
            self._used_by_day[day] = self._used_by_day.get(day + 1, Counter())
        return self._used_by_day[day]


class Quotas:
    """All quotas of a day. Single-threaded: belongs to the event loop."""

    def __init__(self, limits: Limits | None = None) -> None:
        limits = limits or Limits()
        self._offers = DailyQuota(limits.tenant_offers, "offers")
        self._tenant_queries = DailyQuota(limits.tenant_queries, "query batches")
        self._organisation_queries = DailyQuota(limits.organisation_queries, "query batches")
        self._pseudonyms = DailyQuota(limits.organisation_pseudonyms, "pseudonyms")
        self._reveals = DailyQuota(limits.organisation_reveals, "revealed jobs")
        self._rejected = DailyQuota(limits.organisation_rejected_results, "results that answer no order")
        self._asked = DailyQuota(limits.organisation_asked_validations, "validations that tenants ask for")

    def take_offer(self, who: Principal, now: float) -> None:
        """Raises Exhausted."""
        self._offers.take(who.name, now)
        _note()

    def take_question(self, who: Principal, now: float) -> None:
        """Raises Exhausted; then nothing is taken."""
        self._organisation_queries.check(who.organisation, now)
        self._tenant_queries.take(who.name, now)
        self._organisation_queries.take(who.organisation, now)
        _note()

    def take_pseudonym(self, who: Principal, now: float) -> None:
        """Raises Exhausted."""
        self._pseudonyms.take(who.organisation, now)
        _note()

    def take_reveal(self, who: Principal, now: float) -> None:
        """Raises Exhausted."""
        self._reveals.take(who.organisation, now)
        _note()

    def take_asked_validation(self, who: Principal, now: float) -> None:
        """Raises Exhausted."""
        self._asked.take(who.organisation, now)
        _note()

    def check_result(self, who: Principal, now: float) -> None:
        """Raises Exhausted when results of this organisation were rejected too often today."""
        self._rejected.check(who.organisation, now)

    def count_rejected_result(self, who: Principal, now: float) -> None:
        """A result of a micro-benchmark was rejected."""
        self._rejected.add_used(who.organisation, 1, now)
        _note()

    def recount(self, records: Iterable[AuditRecord], now: float) -> None:
        """Count today's uses from before a restart."""
        # Tenant and offer of each question of a release that did not note uses: repeats are the same question.
        questions: set[tuple[str, str]] = set()
        for record in filter(counts_for_quotas, records):
            who, uses = Principal(Role.TENANT, record.name), record.calls
            match record.method:
                case "Evaluate" | "Lookup" if record.quota is None:
                    questions.add((record.name, record.offer))
                case "Evaluate" | "Lookup":
                    self._add_questions(who, uses, now)
                case "GetOffer":
                    self._offers.add_used(who.name, uses, now)
                case "Reveal":
                    self._reveals.add_used(who.organisation, uses, now)
                case "SendProbeResult":
                    self._rejected.add_used(who.organisation, uses, now)
                case "AskValidation":
                    self._asked.add_used(who.organisation, uses, now)
                case "EvaluatePseudonym":
                    self._pseudonyms.add_used(who.organisation, uses, now)
        for name, _ in questions:
            self._add_questions(Principal(Role.TENANT, name), 1, now)

    def _add_questions(self, who: Principal, uses: int, now: float) -> None:
        self._tenant_queries.add_used(who.name, uses, now)
        self._organisation_queries.add_used(who.organisation, uses, now)


@dataclass
class TokenBucket:
    """A limit of so much per second, and of `capacity` at once. Seconds are those of the caller's clock."""

    capacity: float
    refill_per_second: float
    left: float
    since: float
    """When `left` was left."""

    @classmethod
    def full(cls, capacity: float, refill_per_second: float, now: float) -> TokenBucket:
        """A bucket from which nothing was taken yet."""
        return cls(capacity, refill_per_second, left=capacity, since=now)

    def take(self, amount: float, now: float) -> bool:
        """Whether that much is left; if so, it is taken."""
        left = min(self.capacity, self.left + self.refill_per_second * (now - self.since))
        if amount > left:
            return False
        self.left, self.since = left - amount, now
        return True

    def give_back(self, amount: float) -> None:
        """What was taken was not used. The bucket never has more than its capacity."""
        self.left = min(self.capacity, self.left + amount)
