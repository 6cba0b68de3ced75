"""What a tenant allows of micro-benchmarks that its own sidecar runs. No clock, no process."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pharoah._errors import SettingsError
from pharoah._settings import Settings
from pharoah.sidecar.guest_limits import HOUR_SECONDS, MIN_FREE_BYTES, HourlyBudget, refusal, takes_orders
from pharoah_protocol.guest_probes import MAX_LIFE_SECONDS, GuestOrder

NOW = 1_800_000_000.0
AGREED = Settings(allow_beside_job=True, guest_probe_seconds=60.0, probe_limit_seconds=4.0)
ORDER = GuestOrder(
    order_id=b"o" * 16,
    run_id=b"r" * 16,
    challenge=b"c" * 32,
    benchmark="gemm",
    repeats=64,
    limit_milliseconds=1500,
    duty_thousandths=500,
    expires_at=int(NOW) + 60,
)


def test_an_order_within_all_limits_is_done() -> None:
    assert refusal(ORDER, AGREED, 60.0, None, NOW) == "" == refusal(ORDER, AGREED, 3.0, MIN_FREE_BYTES, NOW)


@pytest.mark.parametrize(
    ("order", "settings", "left", "free", "why"),
    [
        (ORDER, replace(AGREED, allow_beside_job=False), 60.0, None, "not agreed"),
        (ORDER, replace(AGREED, guest_probe_seconds=0.0), 60.0, None, "not agreed"),
        (replace(ORDER, expires_at=int(NOW) - 1), AGREED, 60.0, None, "its time is over"),
        (replace(ORDER, expires_at=int(NOW) + MAX_LIFE_SECONDS + 2), AGREED, 60.0, None, "good for too long"),
        (ORDER, replace(AGREED, probe_limit_seconds=2.9), 60.0, None, "PHAROAH_PROBE_LIMIT_S is 2.9"),
        (replace(ORDER, duty_thousandths=10), AGREED, 60.0, None, "150 s, and PHAROAH_PROBE_LIMIT_S"),
        (ORDER, AGREED, 2.9, None, "2.9 s are left"),
        (ORDER, AGREED, 60.0, MIN_FREE_BYTES - 1, "1023 MiB of memory are free"),
    ],
)
def test_what_is_beyond_a_limit_is_refused_with_its_name(
    order: GuestOrder, settings: Settings, left: float, free: int | None, why: str
) -> None:
    assert why in refusal(order, settings, left, free, NOW)


def test_nothing_is_agreed_by_default_and_one_setting_alone_does_not_agree() -> None:
    assert not takes_orders(Settings())
    assert not takes_orders(Settings(allow_beside_job=True))
    assert not takes_orders(Settings(guest_probe_seconds=60.0))
    assert takes_orders(AGREED)
    for value in (-1.0, 3601.0, float("nan")):
        with pytest.raises(SettingsError, match="PHAROAH_GUEST_PROBE_S"):
            Settings(guest_probe_seconds=value)


@given(st.floats(1.0, 120.0), st.lists(st.tuples(st.floats(0.0, 900.0), st.floats(0.1, 60.0)), max_size=40))
def test_no_hour_holds_more_than_the_budget(seconds: float, wishes: list[tuple[float, float]]) -> None:
    now = 0.0
    budget, ran = HourlyBudget(seconds, lambda: now), list[tuple[float, float]]()
    for pause, wanted in wishes:
        now += pause
        takes = min(wanted, budget.get_remaining())  # the sidecar stops the child by then
        if takes > 0:
            began, now = now, now + takes
            budget.use(began)
            ran.append((began, now))
    for _, end in ran:
        used = sum(min(end, last) - max(end - HOUR_SECONDS, first) for first, last in ran
                   if last > end - HOUR_SECONDS and first < end)  # fmt: skip
        assert used <= seconds + 1e-6
