"""Plans: randomised complete blocks, spread over nodes."""

from __future__ import annotations

from collections import Counter, defaultdict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pharoah_benchmarks.campaign.plan import PlanError, parse_plan
from pharoah_provider.campaigns.open_works import OpenWorks
from pharoah_provider.campaigns.schedule import schedule_works
from pharoah_provider.campaigns.works import Work, WorkKind, WorkState
from pharoah_provider.domain import Node

PLAN = """
name = "two workloads"
repeats = {repeats}
[[workload]]
name = "mlp"
vary = {{ width = [32, 64], dtype = ["float32", "bfloat16"] }}
[[workload]]
name = "lstm"
vary = {{ length = [8, 16, 32] }}
[degrade]
workload = "mlp"
seconds = 8
healthy = 2
[[degrade.fault]]
name = "cpu_share"
doses = [1.0]
"""


def node(name: str, context: str = "a") -> Node:
    return Node(name, bytes(32), f"boot of {name}", (f"device=cpu {context}",), ("device=cpu",), (0,))


def works_of(repeats: int, nodes: list[Node], seed: int = 7) -> list[Work]:
    return schedule_works(parse_plan(PLAN.format(repeats=repeats)), nodes, seed)


def blocks_of(works: list[Work]) -> dict[int, list[Work]]:
    found: dict[int, list[Work]] = defaultdict(list)
    for work in works:
        found[work.block].append(work)
    return dict(found)


@given(repeats=st.integers(1, 6), nodes=st.integers(1, 4), contexts=st.integers(1, 3), seed=st.integers(0, 2**31 - 1))
def test_each_block_holds_each_cell_of_its_workload_once(repeats: int, nodes: int, contexts: int, seed: int) -> None:
    there = [node(f"n{number}{context}", str(context)) for context in range(contexts) for number in range(nodes)]
    works = works_of(repeats, there, seed)
    assert works == works_of(repeats, there, seed), "the seed is all that is drawn from"
    assert [work.number for work in works] == list(range(len(works)))
    cells = [work for work in works if work.kind is WorkKind.CELL]
    for block in blocks_of(cells).values():
        contents = [work.cell.content for work in block if work.cell]
        assert len(set(contents)) == len(contents) == {"mlp": 4, "lstm": 3}[block[0].subject.rpartition("/")[2]]
    wanted = max(repeats, 2 if nodes > 1 else 1)
    runs = Counter((work.context_id, work.cell.content) for work in cells if work.cell)
    assert len(runs) == 7 * contexts and set(runs.values()) == {wanted}


def test_first_repeats_come_before_second_ones_and_orders_differ() -> None:
    works = [work for work in works_of(5, [node("n1")]) if work.kind is WorkKind.CELL]
    repeats = [work.cell.repeat for work in works if work.cell]
    assert repeats == sorted(repeats)
    orders = {
        tuple(work.cell.content for work in block if work.cell)
        for block in blocks_of(works).values()
        if len(block) == 4
    }
    assert len(orders) > 1, "the order within each block is drawn anew"


def cells_left(works: OpenWorks) -> bool:
    return bool(works.list_remaining(WorkKind.CELL, WorkKind.DEGRADED))


def done_by(works: OpenWorks, name: str, usable: int, most: int = 1000) -> list[Work]:
    """One node takes as much as it is given."""
    done: list[Work] = []
    while (
        len(done) < most and (work := works.take(name, node(name).facts_id, usable, not cells_left(works))) is not None
    ):
        works.finish(work)
        done.append(work)
    return done


@given(repeats=st.integers(1, 5))
def test_two_nodes_run_each_workload_where_there_are_two(repeats: int) -> None:
    works = OpenWorks(works_of(repeats, [node("n1"), node("n2")]))
    ran: dict[str, set[str]] = defaultdict(set)
    for name in ("n1", "n2", "n1"):
        for work in done_by(works, name, 2):
            ran[work.cell.content if work.cell else ""].add(name)
    assert not works.list_remaining()
    assert all(len(names) == 2 for content, names in ran.items() if content and '"lstm"' in content)


def test_a_block_stays_on_its_node_and_baselines_come_last() -> None:
    works = OpenWorks(works_of(2, [node("n1"), node("n2")]))
    first, second = (works.take(name, node(name).facts_id, 2, False) for name in ("n1", "n2"))
    assert first is not None and second is not None and first.block != second.block
    done = [first, second, *done_by(works, "n1", 2), *done_by(works, "n2", 2)]
    assert len({(work.block, work.node) for work in done}) == len({work.block for work in done})
    assert not [work for work in done if work.kind is WorkKind.BASELINE], "two cells are still out"
    for work in (first, second):
        works.finish(work)
    assert {work.kind for name in ("n1", "n2") for work in done_by(works, name, 2)} == {WorkKind.BASELINE}
    assert works.done == works.total


def test_what_a_node_leaves_behind_begins_again_as_a_complete_block() -> None:
    works = OpenWorks(works_of(2, [node("n1"), node("n2")]))
    begun = done_by(works, "n1", 2, most=1)
    (block,) = {work.block for work in begun}
    total = works.total
    added = works.release("n1")
    assert {work.block for work in added} != {block} and all(not work.node for work in added)
    whole = [work for work in works_of(2, [node("n1"), node("n2")]) if work.block == block]
    assert [work.cell for work in added] == [work.cell for work in whole], "also the cell that was done"
    assert all(work.state is WorkState.WAITING for work in added)
    assert works.total == total + len(begun), "the results of an incomplete block count, too"
    assert {work.number for work in done_by(works, "n2", 1)} >= {work.number for work in added}


def test_a_cell_has_a_step_at_least() -> None:
    with pytest.raises(PlanError, match="steps: 0 is not a whole number from 1 to"):
        parse_plan('[[workload]]\nname = "mlp"\nsteps = 0\n')
    assert [cell.steps for cell in parse_plan('repeats = 1\n[[workload]]\nname = "mlp"\nsteps = 1\n').cells] == [1]
