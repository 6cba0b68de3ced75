"""Suspects become pairs of cells in random order, and the campaign stops when they are decided."""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter, defaultdict
from dataclasses import dataclass, replace
from pathlib import Path

import grpc.aio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pharoah_benchmarks.campaign.cell import Cell
from pharoah_benchmarks.campaign.plan import PlanError, parse_plan
from pharoah_learning.confirmations import (
    ControlRuns,
    Decision,
    Pair,
    confirmation,
    control_of,
    plan_pairs,
    runs_like_control,
)
from pharoah_learning.context_rule import ALL_FACTS
from pharoah_learning.evidence import Trial
from pharoah_learning.release import Release, Suspect
from pharoah_protocol.v1 import CancelCampaignRequest, PlanConfirmationRequest
from pharoah_protocol.vocabulary import Outcome
from pharoah_provider.campaigns.open_works import OpenWorks
from pharoah_provider.campaigns.schedule import MAX_WORKS, SuspectArms, schedule_pairs
from pharoah_provider.campaigns.suspect_pairs import pairs_of, suspects_to_confirm, with_its_pairs
from pharoah_provider.campaigns.works import SuspectPair, Work, WorkState
from pharoah_provider.storage.duckdb import DuckStorage
from tests.campaigns.test_schedule import node
from tests.harness.scripted_agents import ScriptedAgent, ScriptedSite, content_of, scripted_site
from tests.security.test_lying_agents import CELLS, DEVICE, LARGE, PLAN, fingerprint_of, prepared, result_of, trial

SUSPECTED = {"attention": "math", "length": 1024}
MAX_PAIRS = 600


def pair(where: str, suspected: bool, control: bool = False) -> Pair:
    return Pair(node=where, suspected_failed=suspected, control_failed=control)


# what pairs say


def turns(nodes: str, failing: str, number: int, control: str = "") -> list[Pair]:
    """Pairs that nodes run in turn; the suspected cell, or its control, always fails on some of them."""
    names = [nodes[one % len(nodes)] for one in range(number)]
    return [pair(name, name in failing, name in control) for name in names]


def test_what_always_fails_on_four_nodes_blocks_when_any_two_of_them_have_thirteen_pairs() -> None:
    pairs = turns("abcd", "abcd", MAX_PAIRS)
    found = confirmation(pairs, "a", MAX_PAIRS)
    assert (found.decision, found.pairs, found.against, found.for_it) == (Decision.BLOCKS, 27, 27, 0)
    assert found.e_value >= 1000 and not found.nodes and not found.missing
    assert confirmation(pairs[:26], "a", MAX_PAIRS).decision is Decision.OPEN, "the last two nodes have 12 pairs"


@pytest.mark.parametrize(("nodes", "pairs"), [("ab", 14), ("abc", 11)])
def test_fewer_nodes_warn_and_say_what_is_missing(nodes: str, pairs: int) -> None:
    found = confirmation(turns(nodes, nodes, MAX_PAIRS), "a", MAX_PAIRS)
    assert (found.decision, found.pairs) == (Decision.CONFIRMED, pairs)
    assert "4 nodes" in found.missing


def test_one_node_decides_nothing_whatever_it_reports() -> None:
    alone = confirmation(turns("a", "a", MAX_PAIRS - 1), "a", MAX_PAIRS)
    assert (alone.decision, alone.e_value) == (Decision.OPEN, 1.0)
    assert "another node" in confirmation(turns("a", "a", 50), "a", 50).missing
    beside_another = confirmation(turns("ab", "a", MAX_PAIRS), "a", MAX_PAIRS)
    assert (beside_another.decision, beside_another.nodes) == (Decision.UNDECIDED, ("a",)), "one of the two is wrong"
    assert "fails on a alone" in beside_another.missing
    both_fail = confirmation(turns("ab", "ab", MAX_PAIRS, control="b"), "a", MAX_PAIRS)
    assert both_fail.decision is Decision.UNDECIDED, "the control fails there as well"


def test_a_suspect_that_two_others_do_not_see_is_refuted() -> None:
    found = confirmation(turns("abc", "a", MAX_PAIRS), "a", MAX_PAIRS)
    assert (found.decision, found.nodes, found.against) == (Decision.REFUTED, ("a",), -(-found.pairs // 3))
    assert confirmation(turns("b", "", MAX_PAIRS - 1), "a", MAX_PAIRS).decision is Decision.OPEN, "one node is not two"
    worse = [pair("ab"[number % 2], number % 5 == 0, number % 5 != 0) for number in range(MAX_PAIRS)]
    assert confirmation(worse, "c", MAX_PAIRS).decision is Decision.REFUTED, "the control fails four times as often"


@pytest.mark.parametrize("others", ["cd", "cdefgh"])
def test_two_sick_nodes_are_named_and_their_suspect_is_given_up(others: str) -> None:
    found = confirmation(turns(f"ab{others}", "ab", MAX_PAIRS), "a", MAX_PAIRS)
    assert (found.decision, found.nodes, found.e_value) == (Decision.UNDECIDED, ("a", "b"), 1.0)
    assert found.pairs < 300 and "fails on a and b alone" in found.missing


def test_a_suspect_that_sometimes_works_is_confirmed_and_does_not_block() -> None:
    rng, ends = random.Random(5), Counter[Decision]()
    for _ in range(100):
        pairs = [pair("abcd"[number % 4], rng.random() < 0.7, rng.random() < 0.1) for number in range(150)]
        ends[confirmation(pairs, "a", 150).decision] += 1
    assert ends[Decision.CONFIRMED] + ends[Decision.BLOCKS] >= 95 and ends[Decision.CONFIRMED] > ends[Decision.BLOCKS]


def test_a_price_that_is_too_low_leaves_a_suspect_undecided_and_says_how_many_pairs_decide() -> None:
    found = confirmation(turns("abcd", "", 20), "a", 20)
    assert (found.decision, found.pairs) == (Decision.UNDECIDED, 20)
    assert f"{plan_pairs(ControlRuns(0, 20), 4)} in all would decide 4 times the odds" in found.missing


def test_a_suspect_whose_blocks_cannot_be_completed_is_given_up() -> None:
    assert (
        confirmation([], "a", 0).decision is Decision.UNDECIDED and confirmation([], "a", 5).decision is Decision.OPEN
    )


@given(st.lists(st.builds(Pair, node=st.sampled_from("abcde"), suspected_failed=st.sampled_from([True, True, False]),
                          control_failed=st.sampled_from([False, False, True])), max_size=90),
       st.permutations("abcde"))  # fmt: skip
def test_pairs_after_a_decision_and_the_names_of_nodes_change_nothing(pairs: list[Pair], names: list[str]) -> None:
    whole = confirmation(pairs, "a", 80)
    renamed = dict(zip("abcde", names, strict=True))
    other = confirmation([replace(one, node=renamed[one.node]) for one in pairs], renamed["a"], 80)
    assert {renamed[node] for node in whole.nodes} == set(other.nodes)
    assert replace(whole, nodes=(), missing="") == replace(other, nodes=(), missing="")
    for count in range(0, len(pairs), 7):
        if (found := confirmation(pairs[:count], "a", 80)).decision is not Decision.OPEN:
            assert whole == found
            return


# which cells


def suspect_of(cell: Cell, where: str = "a") -> Suspect:
    return Suspect(
        node=where,
        context_id="c",
        device_id="d",
        outcome=Outcome.ERROR,
        failures=3,
        runs=3,
        title="",
        refuting=0,
        content=cell.content,
    )


def test_a_suspect_that_computes_wrong_numbers_cannot_be_confirmed_by_how_cells_end(tmp_path: Path) -> None:
    cell = parse_plan(PLAN).cells[0]
    suspect = replace(suspect_of(cell), outcome=Outcome.WRONG)
    nodes = [node("n1"), node("n2")]

    async def inside() -> None:
        store = DuckStorage(tmp_path / "p.duckdb")
        contexts = {ALL_FACTS.context_of(one.server_facts) for one in nodes}
        suspects = (replace(suspect, context_id=contexts.pop()),)
        await store.published.put_release(Release(1, suspects=suspects))
        chosen = await suspects_to_confirm(store, [], nodes)
        assert not chosen.pairs and "compute other numbers" in chosen.notices[0]
        store.close()

    asyncio.run(inside())


def test_a_control_differs_in_one_setting_and_has_always_worked_elsewhere() -> None:
    cell = next(one for one in CELLS.values() if one.settings == SUSPECTED)
    by_settings = {json.dumps(one.settings): one for one in CELLS.values()}
    flash = by_settings['{"attention": "flash", "length": 1024}']
    short = by_settings['{"attention": "math", "length": 128}']
    both = by_settings['{"attention": "flash", "length": 128}']

    def ran(one: Cell, where: str, outcome: Outcome = Outcome.OK) -> Trial:
        return replace(trial(one, where, fingerprint_of(one)), outcome=outcome)

    suspect = suspect_of(cell)
    assert control_of(suspect, [ran(both, "b")] * 9) == "", "it differs in two settings"
    assert control_of(suspect, [ran(flash, "b"), ran(short, "b"), ran(short, "b")]) == short.content
    assert control_of(suspect, [ran(flash, "b"), ran(short, "b"), ran(short, "b", Outcome.NAN)]) == flash.content
    broken = [ran(one, "a", Outcome.ERROR) for one in (flash, short)]
    assert control_of(suspect, [*broken, ran(flash, "b")]) == flash.content, "a node that fails always hides nothing"
    assert control_of(suspect, [*broken[:1], ran(flash, "b"), ran(flash, "c"), ran(short, "b")]) == short.content
    assert control_of(suspect, [replace(ran(flash, "b"), context_id="other")]) == ""
    like_control = [ran(flash, "b"), ran(short, "c", Outcome.NAN), ran(short, "a", Outcome.NAN), ran(both, "b")]
    assert runs_like_control(suspect, like_control) == (1, 2), "those that differ in one setting, on other nodes"


def arms(number: int, pairs: int) -> SuspectArms:
    suspected = Cell(f"suspect/{number}", "mlp", {"width": 8 + number})
    control = replace(suspected, id=f"control/{number}", settings={"width": 99})
    return SuspectArms(f"s{number}", "", suspected, control, pairs)


@given(suspects=st.integers(1, 4), seed=st.integers(0, 1000))
def test_each_block_is_a_pair_of_one_suspect_and_all_suspects_take_turns(suspects: int, seed: int) -> None:
    works = schedule_pairs([arms(number, 6) for number in range(suspects)], seed)
    assert works == schedule_pairs([arms(number, 6) for number in range(suspects)], seed)
    blocks: dict[int, list[Work]] = defaultdict(list)
    for work in works:
        blocks[work.block].append(work)
    assert len(blocks) == 6 * suspects and all(len(block) == 2 for block in blocks.values())
    order = [block[0].suspect for _, block in sorted(blocks.items())]
    for turn in range(6):
        assert len(set(order[turn * suspects : (turn + 1) * suspects])) == suspects
    first = [str(block[0].cell.id).partition("/")[0] for block in blocks.values() if block[0].cell]
    assert seed or len(set(first)) == 2, "which of the two comes first is drawn"


def test_each_suspect_has_the_pairs_that_it_needs() -> None:
    works = schedule_pairs([arms(0, 2), arms(1, 5)], 3)
    assert Counter(work.suspect for work in works) == {"s0": 4, "s1": 10}
    assert sorted({work.block for work in works}) == list(range(7))
    with pytest.raises(PlanError, match="--most-pairs"):
        schedule_pairs([arms(0, MAX_WORKS)], 3)


@pytest.mark.parametrize("usable", [2, 3])
def test_the_pairs_of_a_suspect_are_spread_evenly_over_the_nodes(usable: int) -> None:
    works = OpenWorks(replace(work, context_id=node("n").facts_id) for work in schedule_pairs([arms(0, 12)], 1))
    ran: Counter[str] = Counter()
    while works.list_remaining():
        for name in [f"n{number}" for number in range(usable)] * 2:  # a fast node asks twice
            if (work := works.take(name, node(name).facts_id, usable, False)) is not None:
                ran[name] += 1
                works.finish(work)
    assert max(ran.values()) - min(ran.values()) <= 2 and len(ran) == usable


def test_only_complete_blocks_count_in_the_order_in_which_they_ended() -> None:
    one = arms(0, 3)
    pair_of = SuspectPair(
        suspect_id="s0", node="n1", title="", suspected=one.suspected.content, control=one.control.content
    )
    works = schedule_pairs([one], 1)
    done = [
        replace(work, state=WorkState.DONE, node=f"n{work.block}", outcome=Outcome.OK, ended_at=100.0 - work.block)
        for work in works
    ]
    assert [found.node for found in pairs_of(pair_of, done)] == ["n2", "n1", "n0"]
    half = [replace(work, state=WorkState.MOVED) if work.number == 0 else work for work in done]
    assert [found.node for found in pairs_of(pair_of, half)] == ["n2", "n1"]
    assert with_its_pairs(pair_of, done[:4] + works[4:]).confirmation.decision is Decision.OPEN
    given_up = with_its_pairs(pair_of, half).confirmation
    assert (given_up.decision, given_up.pairs, given_up.most_pairs) == (Decision.UNDECIDED, 2, 2)


# a campaign


@dataclass
class Node:
    """An agent whose cells fail as it is set."""

    failing: bool = False
    answered: int = 0

    def __call__(self, cell: Cell) -> str:
        self.answered += 1
        if content_of(cell) not in CELLS:  # the companion of a baseline: any result that worked will do
            return result_of(replace(next(iter(CELLS.values())), id=cell.id))
        if self.failing and cell.settings == SUSPECTED:
            return result_of(cell, outcome="error", step_seconds=[])
        return result_of(cell)


def agents(*nodes: Node) -> list[ScriptedAgent]:
    return [ScriptedAgent(f"n{number}", LARGE, DEVICE, number, one) for number, one in enumerate(nodes)]


async def suspect_id(site: ScriptedSite) -> str:
    await site.campaign(PLAN)
    await site.learn()
    (suspect,) = await site.listing("suspects")
    assert suspect["node"] == "n0"
    return str(suspect["id"])


def test_a_suspect_with_a_real_cause_blocks_and_its_row_comes_from_the_trials(tmp_path: Path) -> None:
    prepared(tmp_path)
    first, others = Node(failing=True), [Node(failing=True) for _ in range(3)]
    planned = plan_pairs(ControlRuns(0, 0), 4)

    async def work() -> None:
        async with scripted_site(tmp_path, agents(first)) as site:
            suspect = await suspect_id(site)
            assert not [row for row in await site.listing("table") if row["severity"] != "ok"]
        async with scripted_site(tmp_path, agents(first, *others)) as site:
            plan = await site.call("Operator", "PlanConfirmation", PlanConfirmationRequest(suspects=[suspect], seed=4))
            assert (plan.works, plan.blocks, plan.contexts) == (2 * planned, planned, 1)
            assert f"at most {planned} pairs on 4 nodes" in plan.prices[0] and "too low" not in plan.prices[0]
            going = asyncio.create_task(site.campaign(campaign_id=plan.campaign_id))
            began = first.answered
            while first.answered < began + 4:
                await asyncio.sleep(0.01)
        await asyncio.wait({going})  # the provider has ended in the middle
        async with scripted_site(tmp_path, agents(first, *others)) as site:
            while next(row for row in await site.listing("campaigns") if row["id"] == plan.campaign_id)["state"] == (
                "running"
            ):
                await asyncio.sleep(0.05)
            (found,) = await site.listing("confirmations")
            assert found["decision"] == "blocks" and 26 <= found["pairs"] == found["against"] <= 30
            row = next(row for row in await site.listing("campaigns") if row["id"] == plan.campaign_id)
            assert row["state"] == "done" and row["done"] + row["not_run"] == 2 * planned
            works = [one for one in await site.listing("campaign-works") if one["campaign"] == plan.campaign_id]
            done = Counter(one["node"] for one in works if one["state"] == "done")
            assert set(done) == {"n0", "n1", "n2", "n3"}
            assert 0 <= done.total() - 2 * found["pairs"] <= 6, "a block that was begun is completed"
            cells = [cell for cell in await site.listing("cells") if cell["block"].startswith(plan.campaign_id)]
            assert len(cells) == done.total() == len({(cell["block"], cell["cell"]) for cell in cells})
            await site.learn()
            blocking = [row for row in await site.listing("table") if row["severity"] == "block"]
            assert blocking and not await site.listing("suspects")

    asyncio.run(work())


def test_a_suspect_of_a_bad_node_is_refuted_and_stays_a_suspect(tmp_path: Path) -> None:
    prepared(tmp_path)

    async def work() -> None:
        async with scripted_site(tmp_path, agents(Node(failing=True), Node(), Node())) as site:
            suspect = await suspect_id(site)
            plan = await site.call("Operator", "PlanConfirmation", PlanConfirmationRequest(budget_minutes=30))
            await site.campaign(campaign_id=plan.campaign_id)
            (found,) = await site.listing("confirmations")
            assert (found["suspect"], found["decision"]) == (suspect, "refuted")
            assert found["against"] <= found["pairs"] // 2 and found["e_value"] == 1.0 and found["fails_on"] == "n0"
            await site.learn()
            against = [row for row in await site.listing("table") if row["severity"] != "ok"]
            assert {row["nodes"] for row in against} <= {"n0"}, "the node may be wrong for this work, and no other node"

    asyncio.run(work())


def test_a_confirmation_that_is_cancelled_keeps_its_pairs_and_one_that_is_priced_too_low_says_so(
    tmp_path: Path,
) -> None:
    prepared(tmp_path)
    first, second = Node(failing=True), Node(failing=True)

    async def work() -> None:
        async with scripted_site(tmp_path, agents(first, Node())) as site:
            await suspect_id(site)
        async with scripted_site(tmp_path, agents(first, second)) as site:
            plan = await site.call("Operator", "PlanConfirmation", PlanConfirmationRequest(most_pairs=5, seed=4))
            assert (plan.blocks, "priced too low" in plan.prices[0]) == (5, True)
            going = asyncio.create_task(site.campaign(campaign_id=plan.campaign_id))
            began = first.answered
            while first.answered < began + 2:
                await asyncio.sleep(0.01)
            await site.call("Operator", "CancelCampaign", CancelCampaignRequest(campaign_id=plan.campaign_id))
            await asyncio.wait({going})
            (found,) = await site.listing("confirmations")
            assert found["decision"] == "open" and found["most_pairs"] == 5
            done = [one for one in await site.listing("campaign-works") if one["campaign"] == plan.campaign_id]
            kept = {one["number"] for one in done if one["state"] == "done"}
            assert kept
            await site.campaign(campaign_id=plan.campaign_id)
            works = [one for one in await site.listing("campaign-works") if one["campaign"] == plan.campaign_id]
            assert len(works) == 10 and kept <= {one["number"] for one in works if one["state"] == "done"}
            (found,) = await site.listing("confirmations")
            assert (found["decision"], found["pairs"], found["against"]) == ("undecided", 5, 5)
            assert f"{plan_pairs(ControlRuns(0, 5), 2)} in all" in found["missing"]

    asyncio.run(work())


def test_what_cannot_be_confirmed_is_named(tmp_path: Path) -> None:
    prepared(tmp_path)

    async def work() -> None:
        async with scripted_site(tmp_path, agents(Node(failing=True), Node())) as site:
            with pytest.raises(grpc.aio.AioRpcError, match="the newest release has no suspects"):
                await site.call("Operator", "PlanConfirmation", PlanConfirmationRequest())
            await suspect_id(site)
            with pytest.raises(grpc.aio.AioRpcError, match="suspects: 'none' is not known"):
                await site.call("Operator", "PlanConfirmation", PlanConfirmationRequest(suspects=["none"]))
        async with scripted_site(tmp_path, agents(Node())) as site:
            with pytest.raises(grpc.aio.AioRpcError, match="1 nodes of its context are connected and free"):
                await site.call("Operator", "PlanConfirmation", PlanConfirmationRequest())
            assert len(await site.listing("campaigns")) == 1
            with pytest.raises(grpc.aio.AioRpcError, match="'none' is not known"):
                await site.call("Operator", "CancelCampaign", CancelCampaignRequest(campaign_id="none"))

    asyncio.run(work())
