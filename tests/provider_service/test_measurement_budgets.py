"""Allowances of micro-benchmarks after a restart of the provider."""

from __future__ import annotations

from pharoah_protocol.vocabulary import Purpose
from pharoah_provider.domain import Found, MeasuredOrder
from pharoah_provider.monitoring.budgets import LEVEL_AT_ONCE, LEVEL_RATE, SHARE, SHORT_SPAN_SECONDS, Budgets

NOW = 1e6
FULL = LEVEL_AT_ONCE * SHORT_SPAN_SECONDS * SHARE


def level_order(node: str, ended_at: float, seconds: float = FULL) -> MeasuredOrder:
    return MeasuredOrder(
        "acme", node, node, Purpose.LEVEL, ended_at - seconds, ended_at, looked_slow=False, found=Found.NOTHING
    )


def restored(orders: list[MeasuredOrder], nodes: int) -> Budgets:
    budgets = Budgets(SHARE, lambda _: nodes)
    budgets.restore(orders, NOW, 0.0)
    return budgets


def test_what_a_large_job_used_before_it_ended_does_not_keep_the_next_one_from_being_measured() -> None:
    orders = [level_order(f"n{number}", NOW - 60 + number / 10) for number in range(100)]
    budgets = restored(orders, nodes=1)
    assert not budgets.level_seconds("acme", 0.0)
    assert not budgets.level_seconds("acme", FULL / (LEVEL_RATE * SHARE)), "only what was overdrawn is back"
    assert budgets.level_seconds("acme", 2 * FULL / (LEVEL_RATE * SHARE)) >= 0.99 * FULL


def test_rounds_that_go_on_at_once_overdraw_an_allowance_by_as_much_as_it_holds() -> None:
    budgets = Budgets(SHARE, lambda _: 16)
    for second in range(100):  # each round is counted when it ends
        budgets.restore([level_order(f"n{second}", NOW + second)], NOW + second, float(second))
    empty_to_full = FULL / (LEVEL_RATE * SHARE)
    assert not budgets.level_seconds("acme", 99.0 + 0.99 * empty_to_full)
    assert budgets.level_seconds("acme", 99.0 + 2 * empty_to_full) >= 0.99 * 2 * FULL


def test_a_restart_gives_no_new_allowance() -> None:
    budgets = restored([level_order("n1", NOW - 1)], nodes=1)
    assert not budgets.level_seconds("acme", 0.0)
    assert budgets.level_seconds("acme", FULL / (LEVEL_RATE * SHARE)) >= 0.99 * FULL
