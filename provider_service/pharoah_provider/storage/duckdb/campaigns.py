"""Campaigns, their works, and the suspects that they confirm."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence, Set
from dataclasses import asdict
from statistics import fmean
from typing import Any

import duckdb

from pharoah_benchmarks.campaign.cell import Cell, CellResult
from pharoah_learning.confirmations import Confirmation, Decision
from pharoah_learning.context_rule import ContextRule
from pharoah_protocol.vocabulary import Outcome, Purpose
from pharoah_provider.campaigns.executor_settings import ExecutorSettings
from pharoah_provider.campaigns.not_run import NotRun
from pharoah_provider.campaigns.works import Campaign, CampaignState, SuspectPair, Work, WorkKind, WorkResult, WorkState
from pharoah_provider.domain import Node
from pharoah_provider.storage.duckdb.changes import Change
from pharoah_provider.storage.duckdb.database import Database, appending, executing, executing_with
from pharoah_provider.storage.duckdb.evidence import append_cell, append_probes
from pharoah_provider.storage.duckdb.statements import statements
from pharoah_serving.costs import in_thread

SQL = statements("campaigns")


class DuckCampaignStore:
    """See `storage.base.CampaignStore`."""

    def __init__(self, database: Database) -> None:
        self._db = database

    async def put_campaign(
        self, campaign: Campaign, works: Sequence[Work], suspects: Sequence[SuspectPair] = ()
    ) -> None:
        values = [
            campaign.campaign_id,
            campaign.name,
            campaign.text,
            campaign.seed,
            campaign.state,
            campaign.created_at,
            campaign.skip_same_code,
            campaign.executor.to_json(),
            campaign.budget_seconds,
            json.dumps(asdict(campaign.context_rule)),
        ]
        put = executing(SQL["put_campaign"], values)
        with_suspects = [_put_suspect(campaign.campaign_id, suspect) for suspect in suspects]
        await self._db.apply(put, _add(campaign.campaign_id, works), *with_suspects)

    async def campaigns(self) -> list[Campaign]:
        return [_campaign(row) for row in await self._db.read(SQL["campaigns"])]

    async def works(self, campaign_id: str) -> list[Work]:
        rows = await self._db.read(SQL["works"], [campaign_id])
        return await in_thread(lambda: [_work(row) for row in rows])  # up to 200,000

    async def suspects(self, campaign_id: str) -> list[SuspectPair]:
        return [_suspect(row) for row in await self._db.read(SQL["suspects"], [campaign_id])]

    async def list_planned_cells(self, workload: str) -> list[Cell]:
        rows = await self._db.read(SQL["cells_of_workload"], [workload])
        return await in_thread(lambda: [Cell.from_json(row["cell"]) for row in rows])  # those of all campaigns

    async def cell_seconds(self, workload: str) -> dict[str, float]:
        rows = await self._db.read(SQL["seconds_of_cells"], [workload])
        return await in_thread(_mean_seconds, rows)

    async def set_state(self, campaign_id: str, state: CampaignState, reason: str = "") -> None:
        await self._db.execute(SQL["set_state"], [state, reason, campaign_id])

    async def set_budget(self, campaign_id: str, budget_seconds: float) -> None:
        await self._db.execute(SQL["set_budget"], [budget_seconds, campaign_id])

    async def set_confirmation(self, campaign_id: str, suspect: SuspectPair, needless: Sequence[Work]) -> None:
        values = [*_encode_confirmation(suspect.confirmation), campaign_id, suspect.suspect_id]
        await self._db.apply(executing(SQL["set_confirmation"], values), _set_aside(campaign_id, needless))

    async def assign_block(self, campaign_id: str, work: Work) -> None:
        await self._db.execute(SQL["assign_block"], [work.node, campaign_id, work.block])

    async def move_blocks(self, campaign_id: str, blocks: Set[int], added: Sequence[Work]) -> None:
        moves = [executing(SQL["move_block"], [campaign_id, block]) for block in sorted(blocks)]
        await self._db.apply(*moves, _add(campaign_id, added))

    async def set_aside(self, campaign_id: str, works: Sequence[Work], reason: str) -> None:
        await self._db.apply(_set_aside(campaign_id, works, reason))

    async def bring_back(self, campaign_id: str) -> None:
        await self._db.execute(SQL["bring_back"], [campaign_id])

    async def finish_work(self, campaign: Campaign, work: Work, node: Node, result: WorkResult) -> None:
        if isinstance(result, CellResult):
            assert work.cell is not None, "a baseline has no cell"
            kept = append_cell(campaign.name, node, work.cell, result, f"{campaign.campaign_id}/{work.block}")
        else:
            kept = append_probes(result, Purpose.BASELINE)
        await self._db.apply(_finish(campaign, work, kept))


def _mean_seconds(rows: Sequence[dict[str, Any]]) -> dict[str, float]:
    """By the content of the cells: the same cell has other ids in other blocks."""
    taken: dict[str, list[float]] = defaultdict(list)
    for row in rows:
        taken[Cell.from_json(row["cell"]).content].append(row["seconds"])
    return {content: fmean(seconds) for content, seconds in taken.items()}


def _set_aside(campaign_id: str, works: Sequence[Work], reason: str = "") -> Change:
    """The change that sets works aside, each with its cause: one statement, because each costs a millisecond in which
    nobody else can write, and a campaign may set 200,000 aside at once."""

    def set_aside(connection: duckdb.DuckDBPyConnection) -> None:
        if works:
            columns: dict[str, Sequence[Any]] = {
                "number": [work.number for work in works],
                "cause": [str(work.cause or "") for work in works],
                "campaign_id": [campaign_id] * len(works),
                "reason": [reason] * len(works),
            }
            executing_with(SQL["set_aside"], columns)(connection)

    return set_aside


def _finish(campaign: Campaign, work: Work, kept: Change) -> Change:
    """The change that ends a work and keeps its results, unless it has ended before."""
    values = [WorkState.DONE, work.began_at, work.ended_at, work.outcome or "", campaign.campaign_id, work.number]

    def finish(connection: duckdb.DuckDBPyConnection) -> None:
        if connection.execute(SQL["finish_work"], values).fetchone() == (1,):
            kept(connection)

    return finish


def _add(campaign_id: str, works: Sequence[Work]) -> Change:
    """The change that adds works. Their columns are made in the thread of the writer."""

    def add(connection: duckdb.DuckDBPyConnection) -> None:
        if works:
            appending("campaign_works", _columns(campaign_id, works))(connection)

    return add


def _columns(campaign_id: str, works: Sequence[Work]) -> dict[str, Sequence[Any]]:
    return {
        "campaign_id": [campaign_id] * len(works),
        "number": [work.number for work in works],
        "kind": [str(work.kind) for work in works],
        "context_id": [work.context_id for work in works],
        "block": [work.block for work in works],
        "node": [work.node for work in works],
        "cell": [work.cell.to_json() if work.cell else "" for work in works],
        "state": [str(work.state) for work in works],
        "suspect": [work.suspect for work in works],
    }


def _put_suspect(campaign_id: str, suspect: SuspectPair) -> Change:
    names = (suspect.suspect_id, suspect.node, suspect.title, suspect.suspected, suspect.control)
    return executing(SQL["put_suspect"], [campaign_id, *names, *_encode_confirmation(suspect.confirmation)])


def _encode_confirmation(found: Confirmation) -> list[Any]:
    counts = [found.decision, found.pairs, found.most_pairs, found.against, found.for_it, found.e_value]
    return [*counts, list(found.nodes), found.missing]


def _campaign(row: dict[str, Any]) -> Campaign:
    executor, rule = ExecutorSettings.from_json(row["executor"]), ContextRule.from_dict(json.loads(row["context_rule"]))
    return Campaign(**{**row, "state": CampaignState(row["state"]), "executor": executor, "context_rule": rule})


def _suspect(row: dict[str, Any]) -> SuspectPair:
    names = ("suspect_id", "node", "title", "suspected", "control")
    found = {name: row[name] for name in asdict(Confirmation())}
    read = {"decision": Decision(row["decision"]), "nodes": tuple(row["nodes"])}
    return SuspectPair(**{name: row[name] for name in names}, confirmation=Confirmation(**{**found, **read}))


def _work(row: dict[str, Any]) -> Work:
    return Work(
        number=row["number"],
        kind=WorkKind(row["kind"]),
        context_id=row["context_id"],
        block=row["block"],
        cell=Cell.from_json(row["cell"]) if row["cell"] else None,
        node=row["node"],
        state=WorkState(row["state"]),
        suspect=row["suspect"] or "",
        cause=NotRun(row["cause"]) if row["cause"] else None,
        outcome=Outcome(row["outcome"]) if row["outcome"] else None,
        began_at=row["began_at"] or 0.0,
        ended_at=row["ended_at"] or 0.0,
    )
