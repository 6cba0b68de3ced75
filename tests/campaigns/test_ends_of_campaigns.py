"""How a campaign ends whose budget is short, whose nodes fail, or whose clock jumps. Real DuckDB, no real time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from unittest.mock import patch

import pytest

from pharoah_benchmarks.campaign.cell import Cell, CellResult
from pharoah_protocol.vocabulary import Outcome
from pharoah_provider.agent_connection import WrongAnswer
from pharoah_provider.campaigns import run as campaign_run
from pharoah_provider.campaigns.campaign_time import campaign_time
from pharoah_provider.campaigns.failed_attempts import Consequence, FailedAttempts
from pharoah_provider.campaigns.run import CampaignRun
from pharoah_provider.campaigns.works import Campaign, CampaignState, Work, WorkKind, WorkResult, WorkState
from pharoah_provider.domain import Node
from pharoah_provider.own_fingerprints import OwnFingerprints
from pharoah_provider.storage.duckdb import DuckStorage
from pharoah_serving.clock import Clock
from pharoah_serving.errors import NotReady

MAX_LOOKS = 1000
"""A campaign that looks so often for its nodes waits for something that never comes."""
WAITING, DONE, NOT_RUN = WorkState.WAITING, WorkState.DONE, WorkState.NOT_RUN


def node(name: str, fact: str = "device=a") -> Node:
    return Node(name, b"k" * 32, "boot", (fact,), ("device=a",), (int(name[1:]),))


N1, N2 = node("n1"), node("n2")
CAMPAIGN = Campaign(campaign_id="c", name="name", text="", seed=0, state=CampaignState.RUNNING, created_at=0.0)
HERE = CAMPAIGN.context_of(N1)


@dataclass
class Site:
    """An executor whose works take as long as it is set, on a clock that moves only while works run, or while a
    campaign waits for nodes; it stands still while results are stored."""

    nodes_there: list[Node] = field(default_factory=lambda: [N1])
    seconds: float = 10.0
    """How long each work takes."""
    jump: float = 0.0
    """By how much the wall clock is set forward, or back, while each work runs."""
    fails: Callable[[Node, Work], NotReady | None] = lambda node, work: None
    away_seconds: float = 10.0
    steady: float = 0.0
    wall: float = 1e6
    looks: int = 0
    busy: int = 0
    done: list[tuple[str, int]] = field(default_factory=list)

    @property
    def clock(self) -> Clock:
        return Clock(wall=lambda: self.wall, steady=lambda: self.steady)

    def nodes(self) -> list[Node]:
        if not self.busy:
            self.looks += 1
            assert self.looks < MAX_LOOKS, "the campaign hangs"
            self.steady, self.wall = self.steady + 1.0, self.wall + 1.0
        return self.nodes_there

    async def do(self, node: Node, work: Work, order_id: str) -> WorkResult:
        self.steady, self.wall = self.steady + self.seconds, self.wall + self.seconds + self.jump
        if (failure := self.fails(node, work)) is not None:
            raise failure
        self.busy += 1
        self.done.append((node.node, work.number))
        return [] if work.cell is None else CellResult(cell=work.cell.id, outcome=Outcome.OK)

    def release(self, node: str, order_id: str) -> None:
        self.busy -= 1


def cell_work(number: int, workload: str = "mlp", context: str = HERE, **changes: object) -> Work:
    cell = Cell(f"{workload}#{number}", workload, {"width": number})
    work = Work(number=number, kind=WorkKind.CELL, context_id=context, block=number, cell=cell)
    return replace(work, **changes)  # type: ignore[arg-type]


def baseline_of(number: int, node: Node) -> Work:
    context = CAMPAIGN.context_of(node)
    return Work(number=number, kind=WorkKind.BASELINE, context_id=context, block=number, node=node.node)


def took(work: Work, seconds: float) -> Work:
    return replace(work, node="n1", state=DONE, outcome=Outcome.OK, began_at=0.0, ended_at=seconds)


@dataclass(frozen=True)
class End:
    """What came of a campaign."""

    all_done: bool | None
    """None where it was paused."""
    reason: str
    states: list[WorkState]


def ended(folder: Path, site: Site, works: Sequence[Work], budget: float = 0.0) -> End:
    """Run a campaign to its end. With a folder that was used before, go on with it."""

    async def inside() -> End:
        store = DuckStorage(folder / "p.duckdb")
        campaign = replace(CAMPAIGN, budget_seconds=budget)
        if not await store.campaigns.campaigns():
            await store.campaigns.put_campaign(campaign, works)
        stored = {work.number: work for work in await store.campaigns.works("c")}
        run = CampaignRun(
            campaign=campaign,
            works=[replace(work, state=stored[work.number].state) if work.state is WAITING else work for work in works],
            suspects=[],
            executor=site,
            store=store.campaigns,
            in_use=lambda _: False,
            report=lambda _: None,
            clock=site.clock,
        )
        try:
            with patch.object(campaign_run, "POLL_SECONDS", 0.001), patch.object(OwnFingerprints, "complete", nothing):
                all_done, reason = await run.run(OwnFingerprints(store.dry_runs)), ""
        except* NotReady as failures:
            all_done, reason = None, str(failures.exceptions[0])
        finally:
            states = [work.state for work in await store.campaigns.works("c")]
            store.close()
        return End(all_done, reason, states)

    return asyncio.run(inside())


async def nothing(*_: object) -> None:
    """No dry run is made here."""


# the budget


def test_a_baseline_uses_the_time_that_is_too_short_for_a_cell(tmp_path: Path) -> None:
    works = [took(cell_work(0), 100.0), cell_work(1), baseline_of(2, N1)]
    site = Site()
    end = ended(tmp_path, site, works, budget=170.0)
    assert site.done == [("n1", 2)], "70 s are left; a cell takes 100 s and a baseline 60 s"
    assert end.all_done is False and end.states[1:] == [WAITING, DONE]


def test_a_campaign_is_spent_although_the_cells_of_nodes_that_are_gone_would_fit(tmp_path: Path) -> None:
    elsewhere = CAMPAIGN.context_of(node("n2", "device=b"))
    works = [
        took(cell_work(0), 100.0),
        took(cell_work(1, "lstm"), 5.0),
        cell_work(2),
        cell_work(3, "lstm", elsewhere),
        cell_work(4, "lstm", elsewhere, node="n2"),
    ]
    site = Site()
    end = ended(tmp_path, site, works, budget=150.0)
    assert end.all_done is False and not site.done, "50 s are left; what would fit is not for this node"
    assert end.states[2:] == [WAITING] * 3


def test_nodes_that_are_not_back_yet_have_time_to_come_before_a_campaign_is_spent(tmp_path: Path) -> None:
    elsewhere = node("n2", "device=b")
    works = [
        took(cell_work(0), 100.0),
        took(cell_work(1, "lstm"), 5.0),
        cell_work(2),
        cell_work(3, "lstm", CAMPAIGN.context_of(elsewhere)),
    ]
    site = Site(seconds=5.0)

    def nodes_of(self: Site) -> list[Node]:
        there = plain(self)
        return [*there, elsewhere] if self.looks > 5 else there

    plain = Site.nodes
    with patch.object(Site, "nodes", nodes_of):
        end = ended(tmp_path, site, works, budget=150.0)
    assert end.all_done is False and site.done == [("n2", 3)]


@pytest.mark.parametrize("jump", [86_400.0, -86_400.0, 0.0])
def test_a_jump_of_the_wall_clock_uses_no_budget_and_gives_none(tmp_path: Path, jump: float) -> None:
    works = [cell_work(number) for number in range(6)]
    end = ended(tmp_path, Site(jump=jump), works, budget=45.0)
    assert end.all_done is False and end.states == [DONE] * 4 + [WAITING] * 2, "four cells of 10 s fit into 45 s"


def test_the_time_of_a_campaign_goes_on_after_the_newest_end() -> None:
    site = Site(wall=50.0)
    assert campaign_time(site.clock, [took(cell_work(0), 100.0)])() == 100.0, "the clock was set back since"
    now = campaign_time(site.clock, [took(cell_work(0), 40.0)])
    site.steady, site.wall = 7.0, 1e9
    assert now() == 57.0


# attempts that fail


def failing(
    *numbers: int, error: type[NotReady] = NotReady, where: str = "n1"
) -> Callable[[Node, Work], NotReady | None]:
    return lambda node, work: error(f"{where}: it ended") if work.number in numbers and node.node == where else None


def test_a_work_that_ends_its_agent_is_set_aside_alone(tmp_path: Path) -> None:
    works = [cell_work(0), cell_work(1), cell_work(2), baseline_of(3, N1)]
    site = Site(fails=failing(1))
    end = ended(tmp_path, site, works)
    assert end.all_done and end.states == [DONE, NOT_RUN, DONE, DONE]
    assert [number for _, number in site.done] == [0, 2, 3], "its node goes on"


def test_a_node_that_fails_at_everything_is_excluded_and_its_works_wait_until_the_campaign_is_resumed(
    tmp_path: Path,
) -> None:
    works = [cell_work(0), *(cell_work(number, node="n1") for number in (1, 2)), baseline_of(3, N1)]
    end = ended(tmp_path, Site(fails=failing(*range(4))), works)
    assert end.all_done is None and "every node has left the campaign; the first: n1: it ended" in end.reason
    assert "campaign resume c" in end.reason
    assert sorted(end.states) == [NOT_RUN, WAITING, WAITING, WAITING]
    again = ended(tmp_path, Site(), works)
    assert again.all_done and sorted(again.states) == [DONE, DONE, DONE, NOT_RUN]


def test_works_of_an_excluded_node_wait_beside_another_context_that_is_done(tmp_path: Path) -> None:
    other = node("n2", "device=b")
    works = [cell_work(number) for number in range(3)]
    works += [cell_work(3, context=CAMPAIGN.context_of(other)), baseline_of(4, N1), baseline_of(5, other)]
    site = Site(nodes_there=[N1, other], fails=failing(*range(6)))
    end = ended(tmp_path, site, works)
    assert end.all_done is None and "n1: it ended" in end.reason and HERE in end.reason
    assert end.states == [NOT_RUN, WAITING, WAITING, DONE, WAITING, DONE]
    again = ended(tmp_path, Site(nodes_there=[N1, other]), works)
    assert again.all_done and again.states == [NOT_RUN, DONE, DONE, DONE, DONE, DONE]


def test_what_a_wrong_answer_leaves_behind_is_set_aside_where_others_go_on(tmp_path: Path) -> None:
    works = [cell_work(0), cell_work(1), baseline_of(2, N1), baseline_of(3, N2)]
    site = Site(nodes_there=[N1, N2], fails=failing(*range(4), error=WrongAnswer))
    end = ended(tmp_path, site, works)
    assert end.all_done and end.states[2:4] == [NOT_RUN, DONE]


def test_a_campaign_whose_only_node_answers_wrong_is_not_done(tmp_path: Path) -> None:
    works = [cell_work(0), baseline_of(1, N1)]
    end = ended(tmp_path, Site(fails=failing(0, error=WrongAnswer)), works)
    assert end.all_done is None and end.states == [WAITING, WAITING]


def test_repeats_of_one_cell_are_one_reason_to_exclude_a_node() -> None:
    first, other = cell_work(0), cell_work(2)
    repeat = replace(first, number=1, block=1)
    failures = FailedAttempts()

    def thrice(work: Work) -> list[Consequence]:
        return [failures.count("n1", work) for _ in range(3)]

    again = [Consequence.TRY_AGAIN] * 2
    assert thrice(first) == thrice(repeat) == [*again, Consequence.SET_WORK_ASIDE]
    failures.note_success("n1")
    assert thrice(other) == [*again, Consequence.SET_WORK_ASIDE], "the node has worked since"
    assert thrice(baseline_of(3, N1)) == [*again, Consequence.EXCLUDE_NODE]


def test_a_node_that_fails_at_repeat_after_repeat_leaves_the_others_to_other_nodes() -> None:
    failures = FailedAttempts()
    repeats = [replace(cell_work(0), number=number, block=number) for number in range(3)]
    last = [[failures.count("n1", work) for _ in range(3)][-1] for work in repeats]
    assert last == [Consequence.SET_WORK_ASIDE, Consequence.SET_WORK_ASIDE, Consequence.EXCLUDE_NODE]
