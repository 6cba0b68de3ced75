"""Quotas of a day, their recount after a restart, and the limit of what one run may report."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pharoah_protocol.vocabulary import Role
from pharoah_serving.audit_log import DAY_SECONDS, AuditRecord
from pharoah_serving.errors import Exhausted
from pharoah_serving.principals import Principal
from pharoah_serving.quotas import Limits, Quotas, QuotaUse, TokenBucket, noting

ONE, TWO = Principal(Role.TENANT, "lab/one"), Principal(Role.TENANT, "lab/two")
LAB = Principal(Role.TENANT, "lab")
NOON = 100 * DAY_SECONDS + 43_200.0
LIMITS = Limits(tenant_queries=2, organisation_queries=3, tenant_offers=1, organisation_pseudonyms=2)


def test_query_batches_are_limited_by_account_and_by_organisation() -> None:
    quotas = Quotas(LIMITS)
    for _ in range(2):
        quotas.take_question(ONE, NOON)
    with pytest.raises(Exhausted, match="today's 2 query batches"):
        quotas.take_question(ONE, NOON)
    quotas.take_question(TWO, NOON)
    for who in (TWO, LAB):
        with pytest.raises(Exhausted, match="today's 3 query batches"):
            quotas.take_question(who, NOON)


def test_a_refused_question_takes_nothing() -> None:
    quotas = Quotas(Limits(tenant_queries=1, organisation_queries=2))
    quotas.take_question(ONE, NOON)
    for _ in range(5):
        with pytest.raises(Exhausted):
            quotas.take_question(ONE, NOON)
    quotas.take_question(TWO, NOON)


def test_offers_and_pseudonyms_have_their_own_quotas() -> None:
    quotas = Quotas(LIMITS)
    quotas.take_offer(ONE, NOON)
    quotas.take_offer(TWO, NOON)
    with pytest.raises(Exhausted, match="1 offers"):
        quotas.take_offer(ONE, NOON)
    quotas.take_pseudonym(ONE, NOON)
    quotas.take_pseudonym(TWO, NOON)
    with pytest.raises(Exhausted, match="2 pseudonyms"):
        quotas.take_pseudonym(LAB, NOON)


def test_a_new_utc_day_starts_new_quotas_and_a_clock_that_is_set_back_does_not() -> None:
    quotas = Quotas(LIMITS)
    quotas.take_offer(ONE, NOON)
    for now in (NOON - DAY_SECONDS, 101 * DAY_SECONDS - 1):
        with pytest.raises(Exhausted):
            quotas.take_offer(ONE, now)
    quotas.take_offer(ONE, 101 * DAY_SECONDS)
    with pytest.raises(Exhausted):
        quotas.take_offer(ONE, NOON)


def test_a_clock_that_was_years_ahead_leaves_no_quota_used_up() -> None:
    quotas = Quotas(LIMITS)
    quotas.take_offer(ONE, 9_000 * DAY_SECONDS)
    quotas.take_offer(ONE, NOON)
    with pytest.raises(Exhausted):
        quotas.take_offer(ONE, NOON)


def asked(offer: str, status: str = "OK", method: str = "Evaluate", name: str = "lab/one") -> AuditRecord:
    return AuditRecord(role="tenant", name=name, method=method, offer=offer, status=status)


def test_after_a_restart_uses_are_counted_from_the_audit_log() -> None:
    quotas = Quotas(LIMITS)
    records = [
        asked("a"),
        asked("a", "CANCELLED"),
        asked("b", "INVALID_ARGUMENT"),
        asked("c", "DEADLINE_EXCEEDED", "Lookup"),
        asked("", method="GetOffer"),
        asked("", "PERMISSION_DENIED", "GetOffer", "lab/two"),
        asked("", method="EvaluatePseudonym"),
        asked("", "RESOURCE_EXHAUSTED", "EvaluatePseudonym"),
        AuditRecord(role="agent", name="lab", method="EvaluatePseudonym", status="PERMISSION_DENIED"),
    ]
    quotas.recount(records, NOON)
    with pytest.raises(Exhausted):
        quotas.take_question(ONE, NOON)
    quotas.take_question(TWO, NOON)
    with pytest.raises(Exhausted):
        quotas.take_question(TWO, NOON)
    with pytest.raises(Exhausted):
        quotas.take_offer(ONE, NOON)
    quotas.take_offer(TWO, NOON)
    quotas.take_pseudonym(TWO, NOON)
    with pytest.raises(Exhausted):
        quotas.take_pseudonym(ONE, NOON)


def test_a_bucket_gives_its_capacity_at_once_and_then_what_is_refilled() -> None:
    bucket = TokenBucket.full(10.0, 2.0, now=100.0)
    assert bucket.take(10.0, 100.0) and not bucket.take(0.5, 100.0)
    assert not bucket.take(2.5, 101.0) and bucket.take(2.0, 101.0), "what is refused takes nothing"
    assert not bucket.take(10.5, 9999.0) and bucket.take(10.0, 9999.0), "never more than the capacity"


def test_a_call_notes_what_it_takes_and_not_what_it_is_refused() -> None:
    quotas = Quotas(LIMITS)
    for expected in (True, False):
        use = QuotaUse()
        with noting(use):
            try:
                quotas.take_offer(ONE, NOON)
            except Exhausted:
                pass
        assert use.taken is expected
    quotas.take_pseudonym(ONE, NOON)
    assert not use.taken, "another call"


def test_lines_that_say_who_used_a_quota_are_counted_whatever_their_status() -> None:
    quotas = Quotas(LIMITS)
    used = AuditRecord(role="tenant", name="lab/one", method="EvaluatePseudonym", quota=True, calls=2)
    quotas.recount([replace(used, status="UNAVAILABLE"), replace(used, status="OK", quota=False)], NOON)
    with pytest.raises(Exhausted):
        quotas.take_pseudonym(TWO, NOON)
    quotas.recount([replace(used, method="Report")], NOON)  # a method without a quota of a day
    quotas.take_offer(ONE, NOON)
