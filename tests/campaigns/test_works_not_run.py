"""No work of a campaign is lost: each without a result has a cause, and resuming brings all of them back."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import duckdb
import pytest

from pharoah_benchmarks.campaign import fork_server
from pharoah_benchmarks.campaign.cell import Cell, CellResult, DryCell, NotBuilt
from pharoah_benchmarks.campaign.forked import ForkedAnswer
from pharoah_protocol.vocabulary import Outcome
from pharoah_provider.agent_connection import AgentAway, CameLate, NoRoomThere, NotBuiltThere, WrongAnswer
from pharoah_provider.campaigns.book import Campaigns
from pharoah_provider.campaigns.not_run import NotRun
from pharoah_provider.campaigns.works import Campaign, CampaignState, Work
from pharoah_provider.cell_results import is_of
from pharoah_provider.fleet import Fleet
from pharoah_provider.listings import LISTINGS
from pharoah_provider.listings._listing import ListingSources, Row
from pharoah_provider.storage.duckdb import DuckStorage
from pharoah_provider.storage.duckdb.database import migrate
from pharoah_serving.clock import Clock
from pharoah_serving.errors import NotReady
from pharoah_system.had_time import MAX_WALL_RATIO, LimitClock, ThreadTimes
from tests.campaigns.test_ends_of_campaigns import (
    CAMPAIGN,
    DONE,
    N1,
    N2,
    NOT_RUN,
    WAITING,
    Site,
    baseline_of,
    cell_work,
    ended,
    failing,
)

CELL = Cell("c", "mlp", {"width": 64})


def stored(folder: Path) -> list[Work]:
    async def inside() -> list[Work]:
        store = DuckStorage(folder / "p.duckdb")
        try:
            return await store.campaigns.works("c")
        finally:
            store.close()

    return asyncio.run(inside())


def resumed(folder: Path, state: CampaignState) -> None:
    """What `campaign resume` does to the works of a campaign in a state. Raises NotReady as it does."""

    async def inside() -> None:
        store = DuckStorage(folder / "p.duckdb")
        try:
            await store.campaigns.set_state("c", state)
            campaigns = Campaigns(store, Fleet(), lambda _: False, Clock())
            await campaigns._resumable("c", 0.0)
        finally:
            store.close()

    asyncio.run(inside())


@pytest.mark.parametrize(
    ("error", "cause"),
    [
        (NotBuiltThere, NotRun.NOT_BUILT),
        (AgentAway, NotRun.AGENT_AWAY),
        (CameLate, NotRun.CAME_LATE),
        (NoRoomThere, NotRun.NO_ROOM),
        (NotReady, NotRun.ATTEMPTS_FAILED),
    ],
)
def test_a_work_that_a_site_fails_at_has_its_cause_and_is_done_after_the_campaign_is_resumed(
    tmp_path: Path, error: type[NotReady], cause: NotRun
) -> None:
    works = [cell_work(number) for number in range(3)]
    assert ended(tmp_path, Site(fails=failing(1, error=error)), works).states == [DONE, NOT_RUN, DONE]
    assert [work.cause for work in stored(tmp_path)] == [None, cause, None]
    assert stored(tmp_path)[1].outcome is None, "a failure of the site is no outcome of the cell"
    resumed(tmp_path, CampaignState.DONE)
    assert [work.state for work in stored(tmp_path)] == [DONE, WAITING, DONE]
    site = Site()
    assert ended(tmp_path, site, works).states == [DONE] * 3
    assert site.done == [("n1", 1)], "what has a result is not done again"


def test_what_a_wrong_answer_leaves_behind_comes_back_as_well(tmp_path: Path) -> None:
    works = [cell_work(0), cell_work(1), baseline_of(2, N1), baseline_of(3, N2)]
    assert ended(tmp_path, Site(nodes_there=[N1, N2], fails=failing(*range(4), error=WrongAnswer)), works).all_done
    assert [work.cause for work in stored(tmp_path)[2:4]] == [NotRun.NODES_LEFT, None]
    resumed(tmp_path, CampaignState.DONE)
    assert [work.state for work in stored(tmp_path)[2:4]] == [WAITING, DONE]


@pytest.mark.parametrize("state", [CampaignState.PAUSED, CampaignState.CANCELLED, CampaignState.PLANNED])
def test_a_campaign_in_any_state_brings_all_back(tmp_path: Path, state: CampaignState) -> None:
    with_works(tmp_path, [cell_work(number).set_aside(cause) for number, cause in enumerate(SET_ASIDE)])
    resumed(tmp_path, state)
    assert {(work.state, work.cause) for work in stored(tmp_path)} == {(WAITING, None)}


def test_a_campaign_that_lacks_nothing_is_done_already(tmp_path: Path) -> None:
    needless = [cause for cause in SET_ASIDE if cause.needs_no_run]
    with_works(tmp_path, [cell_work(number).set_aside(cause) for number, cause in enumerate(needless)])
    with pytest.raises(NotReady, match="done already"):
        resumed(tmp_path, CampaignState.DONE)
    assert {work.state for work in stored(tmp_path)} == {NOT_RUN}


SET_ASIDE = [NotRun.SAME_CODE, NotRun.DECIDED, NotRun.NOT_BUILT, NotRun.AGENT_AWAY, NotRun.CAME_LATE, NotRun.NO_ROOM]


def with_works(folder: Path, works: list[Work], campaign: Campaign = CAMPAIGN) -> None:
    """Store a campaign whose works are set aside where they have a cause."""

    async def inside() -> None:
        store = DuckStorage(folder / "p.duckdb")
        try:
            await store.campaigns.put_campaign(campaign, [replace(work, state=WAITING, cause=None) for work in works])
            await store.campaigns.set_aside("c", [work for work in works if work.cause], "a reason")
        finally:
            store.close()

    asyncio.run(inside())


# the list


def listed(folder: Path) -> list[Row]:
    async def inside() -> list[Row]:
        store = DuckStorage(folder / "p.duckdb")
        try:
            return await LISTINGS["works-not-run"].rows(ListingSources(store, {}, 0.0))
        finally:
            store.close()

    return asyncio.run(inside())


@pytest.mark.parametrize(
    ("state", "cause"),
    [
        (CampaignState.PLANNED, NotRun.NOT_BEGUN),
        (CampaignState.RUNNING, NotRun.IN_TURN),
        (CampaignState.PAUSED, NotRun.PAUSED),
        (CampaignState.CANCELLED, NotRun.CANCELLED),
        (CampaignState.SPENT, NotRun.BUDGET_USED),
    ],
)
def test_every_work_without_a_result_is_listed_with_its_cause_and_what_to_do(
    tmp_path: Path, state: CampaignState, cause: NotRun
) -> None:
    works = [cell_work(0), *(cell_work(1 + number).set_aside(why) for number, why in enumerate(SET_ASIDE))]
    with_works(tmp_path, works, replace(CAMPAIGN, state=state))
    rows = listed(tmp_path)
    assert [row["cause"] for row in rows] == [cause, *SET_ASIDE]
    assert all(row["remedy"] and "{" not in row["remedy"] for row in rows)
    assert all(("campaign resume c" in row["remedy"]) == row["needed"] for row in rows[1:])
    assert {row["reason"] for row in rows[1:]} == {"a reason"}


def test_works_of_an_older_release_that_were_dropped_come_back_with_a_cause(tmp_path: Path) -> None:
    connection = duckdb.connect(str(tmp_path / "p.duckdb"))
    migrate(connection, before=73)
    reasons = {
        ("same code", "it executes the same code as in x"): NotRun.SAME_CODE,
        ("dropped", "all nodes that could do it have left the campaign"): NotRun.NODES_LEFT,
        ("dropped", "3 attempts have failed; the last: it ended"): NotRun.ATTEMPTS_FAILED,
        ("dropped", "n1: peft==0.3: pip: no such version"): NotRun.NOT_BUILT,
        ("waiting", ""): None,
    }
    for number, (state, reason) in enumerate(reasons):
        connection.execute(
            "INSERT INTO campaign_works (campaign_id, number, kind, context_id, block, node, cell, state, reason) "
            "VALUES ('c', ?, 'cell', '', 0, '', ?, ?, ?)",
            [number, CELL.to_json(), state, reason],
        )
    connection.close()
    assert [work.cause for work in stored(tmp_path)] == list(reasons.values())


# limits on a busy machine


def busy_clock(wall: float) -> tuple[LimitClock, Callable[[], float]]:
    """A limit of 10 s after so many seconds of wall time, in which its process always waited for a processor."""
    now = [0.0]
    clock = LimitClock(
        10.0, 1, clock=lambda: now[0], times=lambda _: {1: ThreadTimes(computed=0.0, queued=now[0])}, cores=2
    )
    now[0] = wall
    return clock, lambda: now[0]


def test_a_limit_in_wall_time_is_known_from_one_on_the_time_that_was_had() -> None:
    starving, _ = busy_clock(10.0 * MAX_WALL_RATIO)
    assert starving.get_remaining() == 0.0 and starving.has_starved
    waiting, _ = busy_clock(10.0 * MAX_WALL_RATIO - 1.0)
    assert waiting.get_remaining() > 0.0 and not waiting.has_starved
    times = iter([0.0, 10.0, 10.0])
    late = LimitClock(10.0, 1, clock=lambda: next(times), times=lambda _: {}, cores=2)
    assert late.get_remaining() == 0.0 and not late.has_starved, "it has had its time"


def test_a_cell_that_got_no_time_has_no_outcome(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fork_server, "dry_cell", lambda _: DryCell(reason="busy", may_be_tried_again=True))
    server = fork_server.ForkServer(0)
    monkeypatch.setattr(fork_server, "in_child", lambda *_: ForkedAnswer(starved=True))
    answer = server.run(CELL)
    assert isinstance(answer, NotBuilt) and answer.may_be_tried_again
    monkeypatch.setattr(fork_server, "in_child", lambda *_: ForkedAnswer(late=True))
    for _ in range(fork_server.MAX_DRY_RUNS + 1):
        late = server.run(CELL)
        assert isinstance(late, CellResult) and late.outcome is Outcome.TIMEOUT
    monkeypatch.setattr(fork_server, "dry_cell", lambda _: DryCell(fingerprint="found"))
    assert server._fingerprint(CELL) == "found", "dry runs that a busy machine has ended do not count"


def test_steps_of_a_busy_machine_are_those_of_the_cell() -> None:
    def answer(seconds: float) -> CellResult:
        return CellResult(cell=CELL.id, outcome=Outcome.OK, step_seconds=[seconds])

    assert is_of(answer(CELL.limit_seconds * 3), CELL), "its limit runs on the time that it has had"
    assert not is_of(answer(CELL.limit_seconds * MAX_WALL_RATIO * 1.01), CELL)
