"""What earlier checks of idle nodes say about how often resources of nodes have faults."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pharoah_learning.check_history import DAY_SECONDS, NODE_FAULTS, PRIOR_DAYS, PRIOR_FAULTS, CheckHistory, PastChecks
from pharoah_protocol.vocabulary import Resource
from pharoah_provider.domain import CheckResult, IdleCheck
from pharoah_provider.storage.duckdb import DuckStorage

RESOURCES = {"gemm": Resource.COMPUTE, "attention": Resource.COMPUTE, "disk_write": Resource.STORAGE}
DECIDED = {CheckResult.UNDECIDED: None, CheckResult.HEALTHY: False, CheckResult.SLOWER: True, CheckResult.WRONG: True}

checks = st.lists(
    st.tuples(st.sampled_from(["n1", "n2"]), st.sampled_from([*RESOURCES, "removed"]), st.sampled_from(list(DECIDED))),
    max_size=30,
)


def added(past: list[tuple[str, str, CheckResult]]) -> CheckHistory:
    known = CheckHistory(RESOURCES)
    for day, (node, benchmark, result) in enumerate(past):
        known.add(node, benchmark, day * DAY_SECONDS, DECIDED[result])
    return known


def test_the_rate_of_a_node_is_between_its_own_and_that_of_the_fleet() -> None:
    known = added([("n1", "gemm", CheckResult.HEALTHY)] * 100 + [("n2", "gemm", CheckResult.SLOWER)])
    fleet = (PRIOR_FAULTS + 1) / (PRIOR_DAYS + 99)
    assert known.rate("n3", Resource.COMPUTE) == pytest.approx(fleet)
    assert known.rate("n1", Resource.COMPUTE) == pytest.approx(NODE_FAULTS / (NODE_FAULTS / fleet + 99))
    assert known.rate("n2", Resource.COMPUTE) == pytest.approx((NODE_FAULTS + 1) * fleet / NODE_FAULTS)
    assert known.rate("n2", Resource.STORAGE) == pytest.approx(PRIOR_FAULTS / PRIOR_DAYS)


def test_a_check_that_was_not_decided_neither_ends_nor_begins_a_fault() -> None:
    known = added([("n1", "gemm", one) for one in (CheckResult.SLOWER, CheckResult.UNDECIDED, CheckResult.SLOWER)])
    alone = added([("n1", "gemm", one) for one in (CheckResult.SLOWER, CheckResult.SLOWER, CheckResult.SLOWER)])
    assert known.rate("n1", Resource.COMPUTE) == alone.rate("n1", Resource.COMPUTE)
    assert known.newest_at("n1", "gemm") == 2 * DAY_SECONDS and known.newest_at("n1", "attention") is None


@given(past=checks)
def test_sums_that_are_kept_up_to_date_are_those_of_all_checks(past: list[tuple[str, str, CheckResult]]) -> None:
    known = added(past)
    for resource in (Resource.COMPUTE, Resource.STORAGE):
        faults, days = 0, 0.0
        for node in ("n1", "n2"):
            own = [
                (day, name, result)
                for day, (other, name, result) in enumerate(past)
                if other == node and RESOURCES.get(name) is resource
            ]
            days += own[-1][0] - own[0][0] if own else 0.0
            for benchmark in RESOURCES:
                decided = [
                    DECIDED[result] for _, name, result in own if name == benchmark and DECIDED[result] is not None
                ]
                faults += sum(bool(now) and not before for before, now in zip([False, *decided], decided, strict=False))
        assert known.rate("n3", resource) == pytest.approx((PRIOR_FAULTS + faults) / (PRIOR_DAYS + days))


def test_a_store_gives_after_a_restart_what_was_known_before(tmp_path: Path) -> None:
    results = [CheckResult.SLOWER, CheckResult.UNDECIDED, CheckResult.WRONG, CheckResult.HEALTHY, CheckResult.SLOWER]
    past = [
        (f"n{1 + number % 2}", name, results[(number * 3 + shift) % 5])
        for number in range(20)
        for shift, name in enumerate((*RESOURCES, "removed"))
    ]

    async def stored() -> list[PastChecks]:
        store = DuckStorage(tmp_path / "p.duckdb")
        for day, (node, benchmark, result) in enumerate(past):
            at = day * DAY_SECONDS
            check = IdleCheck(node=node, benchmark=benchmark, result=result, propensity=1.0, checked_at=at)
            await store.idle_checks.put(check)
        found = await store.idle_checks.past()
        store.close()
        return found

    again, known = CheckHistory(RESOURCES, asyncio.run(stored())), added(past)
    assert again.last_checked() == known.last_checked()
    for node in ("n1", "n2", "n3"):
        assert again.checks(node) == known.checks(node)
        for resource in RESOURCES.values():
            assert again.rate(node, resource) == pytest.approx(known.rate(node, resource))
