"""Which results of sidecars are accepted; each other one has its own reason. No clock, no socket."""

from __future__ import annotations

from dataclasses import replace
from math import inf, nan
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from pharoah_benchmarks.micro import MICRO_BENCHMARKS
from pharoah_protocol.guest_probes import GuestOrder, GuestResult
from pharoah_protocol.vocabulary import ProbeStatus
from pharoah_provider.domain import Run
from pharoah_provider.monitoring.guest_results import (
    GivenOrder,
    ProbeRejected,
    ProbeRejection,
    check_result,
    read_result,
)

KEY, OTHER_KEY = (Ed25519PrivateKey.from_private_bytes(bytes([i]) * 32) for i in (1, 2))
RUN = Run(
    b"r" * 16, "acme", "n1", 1, 1, beside_job=True, limit_seconds=5.0, probe_key=KEY.public_key().public_bytes_raw()
)
GEMM = MICRO_BENCHMARKS["gemm"]
ORDER = GuestOrder(
    order_id=b"o" * 16,
    run_id=RUN.run_id,
    challenge=b"c" * 32,
    benchmark="gemm",
    repeats=4,
    limit_milliseconds=1000,
    duty_thousandths=500,
    expires_at=2_000_000_000,
)
GIVEN_AT, UNTIL, NOW = 100.0, 170.0, 110.0
RESULT = GuestResult(order=ORDER, status=ProbeStatus.MEASURED, seconds=(0.01, 0.02, 0.01))


def given(**changes: Any) -> GivenOrder:
    return GivenOrder(**{"order": ORDER, "benchmark": GEMM, "given_at": GIVEN_AT, "until": UNTIL, **changes})


def rejection(result: GuestResult, order: GivenOrder | None, now: float = NOW, run: Run = RUN) -> ProbeRejection | None:
    try:
        check_result(result, run, order, now)
    except ProbeRejected as rejected:
        assert str(rejected).endswith(f": {rejected.rejection}")
        return rejected.rejection
    return None


@pytest.mark.parametrize(
    "result",
    [
        RESULT,
        replace(RESULT, seconds=(GEMM.fastest_seconds,)),
        replace(RESULT, seconds=(0.5, 0.49, 4.0)),  # the last repeat began in time
        replace(RESULT, status=ProbeStatus.REFUSED, seconds=()),
        replace(RESULT, status=ProbeStatus.WRONG, seconds=()),
        replace(RESULT, status=ProbeStatus.FAILED, seconds=()),
    ],
)
def test_what_a_sidecar_can_have_found_is_accepted(result: GuestResult) -> None:
    assert rejection(result, given()) is None
    assert rejection(result, given(), UNTIL) is None


@pytest.mark.parametrize(
    ("order", "now", "reason"),
    [
        (None, NOW, ProbeRejection.NEVER_GIVEN),
        (given(answered=True), NOW, ProbeRejection.REPEATED),
        (given(answered=True), UNTIL + 1, ProbeRejection.REPEATED),
        (given(given_up=True), NOW, ProbeRejection.LATE),
        (given(), UNTIL + 0.001, ProbeRejection.LATE),
        (given(order=replace(ORDER, run_id=b"x" * 16)), NOW, ProbeRejection.OTHER_RUN),
        (given(order=replace(ORDER, challenge=b"x" * 32)), NOW, ProbeRejection.WRONG_CHALLENGE),
        (given(order=replace(ORDER, benchmark="memory")), NOW, ProbeRejection.OTHER_WORK),
        (given(order=replace(ORDER, repeats=5)), NOW, ProbeRejection.OTHER_WORK),
        (given(order=replace(ORDER, limit_milliseconds=1001)), NOW, ProbeRejection.OTHER_WORK),
        (given(order=replace(ORDER, duty_thousandths=499)), NOW, ProbeRejection.OTHER_WORK),
        (given(order=replace(ORDER, expires_at=1)), NOW, ProbeRejection.OTHER_WORK),
    ],
)
def test_a_result_answers_one_order_of_its_run_once_and_in_time(
    order: GivenOrder | None, now: float, reason: ProbeRejection
) -> None:
    assert rejection(RESULT, order, now) is reason


def test_a_result_of_another_run_is_none_of_this_one() -> None:
    assert rejection(RESULT, given(), run=replace(RUN, run_id=b"x" * 16)) is ProbeRejection.OTHER_RUN


@pytest.mark.parametrize(
    "seconds",
    [
        (),
        (nan,),
        (0.01, inf),
        (-0.01,),
        (0.0,),
        (0.01, 0.999 * GEMM.fastest_seconds),
        (0.01,) * 5,  # more than ordered
        (1.1, 0.01),  # the first repeat has used the time of the order up
        (11.0,),  # more time than has passed
    ],
    ids=str,
)
def test_numbers_that_no_core_can_have_shown_are_rejected(seconds: tuple[float, ...]) -> None:
    assert rejection(replace(RESULT, seconds=seconds), given()) is ProbeRejection.IMPOSSIBLE_NUMBERS


@pytest.mark.parametrize("status", [status for status in ProbeStatus if status is not ProbeStatus.MEASURED])
def test_what_was_not_measured_has_no_times(status: ProbeStatus) -> None:
    assert rejection(replace(RESULT, status=status), given()) is ProbeRejection.IMPOSSIBLE_NUMBERS


def test_a_result_is_read_when_its_own_run_has_signed_it() -> None:
    assert read_result(RUN, RESULT.encode(), RESULT.make_signature(KEY)) == RESULT
    for run, body, signature, reason in (
        (replace(RUN, probe_key=b""), RESULT.encode(), RESULT.make_signature(KEY), ProbeRejection.NO_KEY),
        (RUN, RESULT.encode()[1:], RESULT.make_signature(KEY), ProbeRejection.MALFORMED),
        (RUN, ORDER.encode(), RESULT.make_signature(KEY), ProbeRejection.MALFORMED),
        (RUN, RESULT.encode(), RESULT.make_signature(OTHER_KEY), ProbeRejection.BAD_SIGNATURE),
        (RUN, replace(RESULT, seconds=(0.02,)).encode(), RESULT.make_signature(KEY), ProbeRejection.BAD_SIGNATURE),
    ):
        with pytest.raises(ProbeRejected) as caught:
            read_result(run, body, signature)
        assert caught.value.rejection is reason


def test_every_benchmark_that_a_sidecar_may_run_has_a_bound_below_what_it_takes() -> None:
    suited = {benchmark.name for benchmark in MICRO_BENCHMARKS if benchmark.suits_guests}
    assert suited == {"gemm", "memory", "memory_pattern", "reproducibility"}
    # A core of 384 GFLOP/s, the fastest with AVX-512, takes 1.3 ms for a product of 640 rows (0.52 GFLOP).
    assert 1e-5 < GEMM.fastest_seconds < 1.3e-3
