"""Results that sidecars send: which ones are accepted, and why the others are not. Pure.

A signature shows that a result comes from the run. It cannot show that the run has measured: a tenant may make numbers
up. What is held here is that nobody answers for another run, twice, late, or another order, and that no number is
impossible.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from math import isfinite

from pharoah_benchmarks.micro import MicroBenchmark
from pharoah_protocol.guest_probes import GuestOrder, GuestProbeError, GuestResult, is_signed_by_run
from pharoah_protocol.vocabulary import ProbeStatus
from pharoah_provider.domain import Run
from pharoah_serving.errors import ProviderError

ROUNDING = 1e-9
"""Sums of times may differ by so much with the order in which they are added."""


class ProbeRejection(StrEnum):
    """Why a result is not accepted."""

    UNKNOWN_RUN = "unknown_run"
    OTHER_TENANT = "other_tenant"
    """The run is another tenant's."""
    NO_KEY = "no_key"
    """The run has announced no key: its tenant has not agreed."""
    MALFORMED = "malformed"
    BAD_SIGNATURE = "bad_signature"
    """The key of the run has not signed it."""
    OTHER_RUN = "other_run"
    """It answers an order that another run was given."""
    NEVER_GIVEN = "never_given"
    REPEATED = "repeated"
    LATE = "late"
    """The time of the order is over, or nobody waits for it any more."""
    WRONG_CHALLENGE = "wrong_challenge"
    OTHER_WORK = "other_work"
    """Another benchmark, or other parameters, than ordered."""
    IMPOSSIBLE_NUMBERS = "impossible_numbers"
    """Times that no core can have taken, more of them than ordered, or more time than has passed."""


class ProbeRejected(ProviderError):
    """A result that is not accepted; nothing else follows from it."""

    def __init__(self, rejection: ProbeRejection) -> None:
        super().__init__(f"body: the result is rejected: {rejection}")
        self.rejection = rejection


@dataclass
class GivenOrder:
    """An order that a sidecar was given. Times are seconds of the steady clock."""

    order: GuestOrder
    benchmark: MicroBenchmark
    given_at: float
    until: float
    """The last moment at which its result counts."""
    answered: bool = False
    given_up: bool = False
    """Whether nobody waits for it any more."""


def read_result(run: Run, body: bytes, signature: bytes) -> GuestResult:
    """A result that this run has signed. Raises ProbeRejected."""
    if not run.probe_key:
        raise ProbeRejected(ProbeRejection.NO_KEY)
    try:
        result = GuestResult.decode(body)
    except GuestProbeError:
        raise ProbeRejected(ProbeRejection.MALFORMED) from None
    if not is_signed_by_run(body, signature, run.probe_key):
        raise ProbeRejected(ProbeRejection.BAD_SIGNATURE)
    return result


def check_result(result: GuestResult, run: Run, given: GivenOrder | None, now: float) -> None:
    """Raise ProbeRejected unless a result of this run answers the order that it was given.

    `given` is the order with the number in the result; `now` is on the steady clock.
    """
    if rejection := _rejection(result, run, given, now):
        raise ProbeRejected(rejection)


def _rejection(result: GuestResult, run: Run, given: GivenOrder | None, now: float) -> ProbeRejection | None:
    if result.order.run_id != run.run_id or (given and given.order.run_id != run.run_id):
        return ProbeRejection.OTHER_RUN
    if given is None:
        return ProbeRejection.NEVER_GIVEN
    if given.answered:
        return ProbeRejection.REPEATED
    if given.given_up or now > given.until:
        return ProbeRejection.LATE
    if result.order.challenge != given.order.challenge:
        return ProbeRejection.WRONG_CHALLENGE
    if replace(result.order, challenge=given.order.challenge) != given.order:
        return ProbeRejection.OTHER_WORK
    return None if _is_possible(result, given, now) else ProbeRejection.IMPOSSIBLE_NUMBERS


def _is_possible(result: GuestResult, given: GivenOrder, now: float) -> bool:
    """Whether the numbers can be those of the order: the repeats go on while the time of the order is not used up."""
    seconds, order = result.seconds, given.order
    if result.status is not ProbeStatus.MEASURED:
        return not seconds
    return (
        1 <= len(seconds) <= order.repeats
        and all(isfinite(took) and took >= given.benchmark.fastest_seconds for took in seconds)
        and sum(seconds[:-1]) <= order.limit_seconds * (1 + ROUNDING)
        and sum(seconds) <= now - given.given_at
    )
