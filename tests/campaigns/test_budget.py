"""What is next when a budget is short: closed forms, laws, and a campaign that ends when its budget is used up."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import grpc.aio
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from pharoah_benchmarks.campaign.cell import Cell
from pharoah_benchmarks.campaign.plan import parse_plan
from pharoah_learning.models.expected_information import CellHistory, Choice, estimate_reduction, most_informative
from pharoah_protocol.v1 import PlanCampaignRequest, RunCampaignRequest
from pharoah_protocol.vocabulary import Outcome
from pharoah_provider.campaigns.budget import Budget, Interval, measure_covered_seconds
from pharoah_provider.campaigns.schedule import schedule_without_context
from pharoah_provider.campaigns.works import Work, WorkState
from tests.campaigns.test_lasting import PLAN, Answers, agent
from tests.harness.scripted_agents import ScriptedSite, scripted_site

HISTORIES = st.integers(0, 20).flatmap(
    lambda blocks: st.builds(CellHistory, st.just(blocks), st.integers(0, blocks), st.just(0))
)


@given(cell=HISTORIES, rate=st.floats(0.01, 0.99))
def test_the_expected_reduction_is_that_of_the_two_posteriors(cell: CellHistory, rate: float) -> None:
    a, b = cell.failures + rate, cell.blocks - cell.failures + 1 - rate
    fails = a / (a + b)
    after = fails * stats.beta(a + 1, b).var() + (1 - fails) * stats.beta(a, b + 1).var()
    assert estimate_reduction(cell, rate) == pytest.approx(stats.beta(a, b).var() - after, rel=1e-9, abs=1e-15)


def test_few_blocks_and_mixed_outcomes_come_before_certain_ones() -> None:
    def said(blocks: int, failures: int, pending: int = 0) -> float:
        return estimate_reduction(CellHistory(blocks, failures, pending), rate=0.1)

    assert said(0, 0) > said(1, 0) > said(2, 0) > said(5, 0), "a cell that few blocks have run"
    assert said(4, 2) > said(4, 0) and said(4, 2) > said(4, 4), "a cell whose outcome is mixed"
    assert said(4, 4) > said(4, 0), "most cells work: one that fails needs more blocks to be certain"
    assert said(3, 1, 2) < said(3, 1), "a cell that other nodes run now"


@given(
    choices=st.lists(st.builds(Choice, st.tuples(HISTORIES, HISTORIES), st.floats(0.1, 100)), max_size=8),
    left=st.floats(0, 150),
)
def test_the_choice_ends_in_time_and_no_other_says_more_per_second(choices: list[Choice], left: float) -> None:
    place = most_informative(choices, 0.1, left)
    rates = [sum(estimate_reduction(cell, 0.1) for cell in one.cells) / one.seconds for one in choices]
    possible = [rate for rate, one in zip(rates, choices, strict=True) if one.seconds <= left]
    if place is None:
        assert not possible
    else:
        assert choices[place].seconds <= left and rates[place] == max(possible)


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 20)), max_size=8))
def test_time_is_used_while_at_least_one_work_runs(spans: list[tuple[int, int]]) -> None:
    intervals = [Interval(float(start), float(start + length)) for start, length in spans]
    seconds = {second for start, length in spans for second in range(start, start + length)}
    assert measure_covered_seconds(intervals) == len(seconds)


# blocks of a plan

TWO = """
repeats = 3
[[workload]]
name = "mlp"
vary = { width = [8, 16] }
[[workload]]
name = "lstm"
vary = { length = [8, 16] }
"""


def blocks_of(works: list[Work]) -> list[list[Work]]:
    found: dict[int, list[Work]] = {}
    for work in works:
        if work.state is WorkState.WAITING:
            found.setdefault(work.block, []).append(work)
    return list(found.values())


def workload(block: list[Work] | None) -> str:
    assert block is not None and block[0].cell is not None
    return block[0].cell.workload


def first_repeats_done(seconds: dict[str, float], outcomes: dict[str, Outcome]) -> list[Work]:
    """A plan whose first two blocks are done, one of each workload, one after another."""
    works, now = schedule_without_context(parse_plan(TWO), 1), 0.0
    for number, work in enumerate(works):
        assert work.cell is not None
        if work.cell.repeat == 0:
            took = seconds[work.cell.workload]
            outcome = outcomes.get(work.cell.workload, Outcome.OK)
            works[number] = replace(work, state=WorkState.DONE, outcome=outcome, began_at=now, ended_at=now + took)
            now += took
    return works


def test_the_order_of_the_plan_holds_while_the_time_lasts_for_all() -> None:
    works = first_repeats_done({"mlp": 1.0, "lstm": 50.0}, {})
    blocks = blocks_of(works)
    assert Budget(0.0, works).choose(blocks, 1, 102.0) == blocks[0]
    assert Budget(400.0, works).choose(blocks, 1, 102.0) == blocks[0], "204 s are needed, and 298 s are left"
    lstm_first = sorted(blocks, key=workload)
    assert workload(Budget(400.0, works).choose(lstm_first, 1, 102.0)) == "lstm"
    assert workload(Budget(250.0, works).choose(lstm_first, 1, 102.0)) == "mlp", "it is the cheaper one"
    assert workload(Budget(250.0, works).choose(lstm_first, 2, 102.0)) == "lstm", "two nodes have time for all"


def test_a_workload_that_fails_comes_before_one_that_works_as_expected() -> None:
    works = first_repeats_done({"mlp": 2.0, "lstm": 2.0}, {})
    mixed = [
        replace(work, outcome=Outcome.MEMORY) if work.cell and work.cell.settings == {"length": 16} else work
        for work in works
    ]
    mixed = [replace(work, outcome=works[at].outcome) if work.state is WorkState.WAITING else work
             for at, work in enumerate(mixed)]  # fmt: skip
    for order in (False, True):
        blocks = sorted(blocks_of(mixed), key=workload, reverse=order)
        assert workload(Budget(13.0, mixed).choose(blocks, 1, 8.0)) == "lstm"


def test_no_block_begins_that_cannot_end_in_time() -> None:
    works = first_repeats_done({"mlp": 2.0, "lstm": 50.0}, {})
    blocks = blocks_of(works)
    assert workload(Budget(110.0, works).choose(blocks, 1, 104.0)) == "mlp"
    assert Budget(107.0, works).choose(blocks, 1, 104.0) is None
    nothing_known = schedule_without_context(parse_plan(TWO), 1)
    assert Budget(0.001, nothing_known).choose(blocks_of(nothing_known), 1, 0.0) is not None, "something must begin"


@given(seed=st.integers(0, 1000), limit=st.floats(20, 200))
def test_a_provider_that_was_restarted_chooses_the_same(seed: int, limit: float) -> None:
    works, now = schedule_without_context(parse_plan(TWO), seed), 0.0
    living = Budget(limit, works)
    while (block := living.choose(blocks_of(works), 1, now)) is not None:
        assert Budget(limit, works).choose(blocks_of(works), 1, now) == block
        for work in block:
            assert work.cell is not None
            took = 1.0 + len(work.cell.content + str(work.cell.repeat * seed)) % 7
            outcome = Outcome.ERROR if (work.number * seed) % 3 == 0 else Outcome.OK
            living.begin(work, [works[one.number] for one in block], now)
            ended = replace(work, state=WorkState.DONE, outcome=outcome, began_at=now, ended_at=now + took)
            living.end(ended, ended.ended_at)
            works[work.number], now = ended, now + took
        if not blocks_of(works):
            break
    assert living.compute_remaining_seconds(now) == pytest.approx(limit - now)


def test_a_campaign_ends_when_its_budget_is_used_up_and_goes_on_with_a_larger_one(tmp_path: Path) -> None:
    async def budget(site: ScriptedSite, minutes: float, campaign_id: str) -> int:
        request = RunCampaignRequest(campaign_id=campaign_id, budget_minutes=minutes)
        return len(await site.campaign_of(request))

    async def work() -> None:
        async with scripted_site(tmp_path, [agent("n1", 0, Answers())]) as site:
            request = PlanCampaignRequest(campaign=PLAN, budget_minutes=1e-6)
            plan = await site.call("Operator", "PlanCampaign", request)
            assert await budget(site, 0.0, plan.campaign_id) == 4, "one block, which is completed"
            (row,) = await site.listing("campaigns")
            assert (row["state"], row["done"], row["budget_minutes"]) == ("spent", 4, pytest.approx(1e-6))
            assert row["used_minutes"] > 0
            with pytest.raises(grpc.aio.AioRpcError, match="is used up; go on with"):
                await budget(site, 0.0, plan.campaign_id)
            for bad in (-1.0, float("nan"), 1e9):
                with pytest.raises(grpc.aio.AioRpcError, match="budget_minutes"):
                    await budget(site, bad, plan.campaign_id)
            assert await budget(site, 30.0, plan.campaign_id) == 9
            (row,) = await site.listing("campaigns")
            assert (row["state"], row["done"]) == ("done", 13)

    asyncio.run(work())


def test_a_cell_that_never_ran_is_expected_to_take_as_long_as_its_workload() -> None:
    works = first_repeats_done({"mlp": 3.0, "lstm": 5.0}, {})
    new = replace(works[0], number=99, block=99, state=WorkState.WAITING, cell=Cell("new", "mlp", {"width": 99}))
    assert Budget(19.5, works).choose([[new]], 1, 16.0) == [new]
    assert Budget(18.5, works).choose([[new]], 1, 16.0) is None


def test_attempts_that_fail_use_up_the_budget() -> None:
    works = first_repeats_done({"mlp": 2.0, "lstm": 2.0}, {})
    (block, *_) = blocks_of(works)
    budget = Budget(100.0, works)
    before = budget.compute_remaining_seconds(10.0)
    budget.begin(block[0], block, 10.0)
    budget.end(block[0], 40.0)
    assert budget.compute_remaining_seconds(50.0) == before - 30.0


def test_a_block_that_was_begun_elsewhere_says_less_and_one_that_was_moved_does_not() -> None:
    works = first_repeats_done({"mlp": 2.0, "lstm": 2.0}, {})
    (first, second, *_) = [block for block in blocks_of(works) if workload(block) == "mlp"]
    (other, *_) = [block for block in blocks_of(works) if workload(block) == "lstm"]
    budget = Budget(14.0, works)
    assert budget.choose([second, other], 2, 8.0) == second
    budget.begin(first[0], first, 8.0)
    budget.end(first[0], 8.0)  # its node went away
    assert budget.choose([second, other], 1, 8.0) == other
    budget.move([first[0].block])
    assert budget.choose([second, other], 1, 8.0) == second
