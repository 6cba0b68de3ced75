"""The works that are left: what is kept beside them says the same as the works themselves, and costs no more with more
of them."""

from __future__ import annotations

import math
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from types import FrameType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pharoah_benchmarks.campaign.cell import Cell
from pharoah_benchmarks.campaign.plan import CampaignPlan, PlanError
from pharoah_learning.opinions import MIN_NODES
from pharoah_provider.campaigns import schedule
from pharoah_provider.campaigns.open_works import OpenWorks, Place
from pharoah_provider.campaigns.schedule import schedule_pairs, schedule_works
from pharoah_provider.campaigns.works import Work, WorkKind, WorkState
from tests.campaigns.test_confirmations import arms
from tests.campaigns.test_schedule import node, works_of

NODES = ["n0", "n1", "n2"]
CONTEXT = node("n").facts_id


class Model:
    """The works alone, from which each answer is found anew."""

    def __init__(self, works: Iterable[Work]) -> None:
        self.works = {work.number: work for work in works}
        self.out: set[int] = set()

    def left(self) -> list[Work]:
        return [work for work in self.works.values() if work.state is WorkState.WAITING]

    def counts(self) -> tuple[int, int]:
        """Works that are done, and all."""
        there = [work for work in self.works.values() if work.state is not WorkState.MOVED]
        return sum(work.state is not WorkState.WAITING for work in there), len(there)

    def next(self, name: str, usable: int, measured: bool) -> Work | None:
        free = [work for work in self.left() if work.number not in self.out]
        own = [work for work in free if work.node == name and (work.cell or measured)]
        begun: set[int] = set()
        for work in free:
            if not work.node and work.context_id == CONTEXT and work.block not in begun:
                begun.add(work.block)
                if (not own or not own[0].cell) and self.may(name, work, usable):
                    own.append(work)
        return own[0] if own else None

    def may(self, name: str, work: Work, usable: int) -> bool:
        same = [one for one in self.works.values() if one.subject == work.subject and one.state is not WorkState.MOVED]
        owners = {one.block: one.node for one in same if one.context_id == work.context_id}
        taken = Counter(filter(None, owners.values()))
        if work.suspect:
            return taken[name] < math.ceil((taken.total() + 1) / max(1, usable))
        others = min(MIN_NODES, usable) - len(taken.keys() | {name})
        return work.kind is not WorkKind.CELL or len(owners) - taken.total() > max(0, others)


def all_agree(works: OpenWorks, model: Model) -> None:
    left = model.left()
    assert works.list_remaining() == left and works.any_left() == bool(left)
    assert (works.done, works.total) == model.counts()
    assert works.owners() == {work.node for work in left if work.node}
    for kind in WorkKind:
        assert works.any_left(kind) == any(work.kind is kind for work in left)
    at: dict[Place, list[Work]] = defaultdict(list)
    for work in left:
        at[Place.from_work(work)].append(work)
    assert {place: works.at(place) for place in works.places()} == at
    for place, here in at.items():
        assert works.has_cells(place) == any(work.cell for work in here)
        blocks = {work.block for work in here if work.cell} if place.node else set()
        assert set(works.list_begun(place.node)) == blocks or not place.node


@given(
    orders=st.lists(st.tuples(st.integers(0, 9), st.sampled_from(NODES), st.integers(1, 3)), max_size=60),
    suspects=st.booleans(),
    restart=st.integers(0, 60),
)
def test_what_is_kept_beside_the_works_says_what_they_say(
    orders: list[tuple[int, str, int]], suspects: bool, restart: int
) -> None:
    pairs = [replace(work, context_id=CONTEXT) for work in schedule_pairs([arms(0, 4), arms(1, 4)], 1)]
    plan = pairs if suspects else works_of(2, [node(name) for name in NODES])
    works, model = OpenWorks(plan), Model(plan)
    for number, (order, name, usable) in enumerate(orders):
        if number == restart:  # a provider that starts again has the works as they are stored
            works, model.out = OpenWorks(model.works.values()), set()
        out = [model.works[one] for one in sorted(model.out) if model.works[one].node == name]
        if order == 0:
            model.works |= {work.number: work for work in released(works, model, name)}
        elif order == 1 and out:
            works.put_back(out[0])
            model.out.discard(out[0].number)
        elif order == 2 and (left := model.left()):
            finish(works, model, left[len(left) // usable - 1], WorkState.NOT_RUN)
        elif order in (3, 4) and out:
            finish(works, model, out[0], WorkState.DONE)
        else:
            expected, found = model.next(name, usable, order > 7), works.take(name, CONTEXT, usable, order > 7)
            assert (found and found.number) == (expected and expected.number)
            if found is not None:
                block = [work for work in model.works.values() if work.block == found.block]
                model.works |= {work.number: replace(work, node=name) for work in block}
                model.out.add(found.number)
        all_agree(works, model)


def finish(works: OpenWorks, model: Model, work: Work, state: WorkState) -> None:
    works.finish(work, state)
    model.works[work.number] = replace(work, state=state)
    model.out.discard(work.number)


def released(works: OpenWorks, model: Model, name: str) -> list[Work]:
    """What a node that is gone leaves behind, which begins again as complete blocks."""
    blocks = {work.block for work in model.left() if work.node == name and work.cell}
    whole = [work for work in model.works.values() if work.block in blocks and work.state is not WorkState.NOT_RUN]
    added = works.release(name)
    assert [work.cell for work in added] == [work.cell for work in whole]
    for work in whole:
        if work.state is WorkState.WAITING:
            model.works[work.number] = replace(work, state=WorkState.MOVED)
            model.out.discard(work.number)
    return added


def lines_of(what: Callable[[], object]) -> int:
    """How many lines of Python run."""
    count = 0

    def trace(_: FrameType, event: str, __: Any) -> Any:
        nonlocal count
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        what()
    finally:
        sys.settrace(before)
    return count


def one_work(works: OpenWorks) -> None:
    """What a campaign asks for when one of its nodes does a work."""
    assert works.any_left() and works.owners() is not None
    assert [works.has_cells(place) for place in works.places()]
    work = works.take("n0", CONTEXT, 1, False)
    assert work is not None
    works.finish(work)
    assert works.done < works.total


def test_a_work_of_a_large_campaign_costs_no_more_than_one_of_a_small_campaign() -> None:
    small, large = (OpenWorks(works_of(repeats, [node("n0")])) for repeats in (20, 400))
    assert large.total > 15 * small.total
    for works in (small, large):
        for _ in range(30):
            one_work(works)
    few, many = (sum(lines_of(partial(one_work, works)) for _ in range(7)) for works in (small, large))
    assert many < 1.5 * few


def test_a_campaign_with_too_many_works_is_refused_before_they_are_made(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = CampaignPlan("many", tuple(Cell(f"mlp#{number}", "mlp", {}, repeat=number) for number in range(100)), ())
    nodes = [node(f"n{number}", str(number)) for number in range(5)]
    monkeypatch.setattr(schedule, "MAX_WORKS", 505)
    assert len(schedule_works(plan, nodes, 1)) == 505
    monkeypatch.setattr(schedule, "MAX_WORKS", 504)
    monkeypatch.setattr(schedule, "_blocks_of", None)
    with pytest.raises(PlanError, match=r"the cells are 505 works in the 5 contexts .* at most 504"):
        schedule_works(plan, nodes, 1)
