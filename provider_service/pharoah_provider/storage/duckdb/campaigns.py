"""Campaigns and their works."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence, Set
from dataclasses import asdict
from typing import Any

import duckdb

from pharoah_benchmarks.campaign.cell import Cell, CellResult
from pharoah_learning.context_rule import ContextRule
from pharoah_learning.evidence import BenchmarkResult
from pharoah_protocol.vocabulary import Purpose
from pharoah_provider.campaigns.works import Campaign, CampaignState, Work, WorkKind, WorkState
from pharoah_provider.domain import Node
from pharoah_provider.storage.duckdb.database import Change, Database, Statement, appending, executing
from pharoah_provider.storage.duckdb.evidence import append_cell, append_probes
from pharoah_provider.storage.duckdb.statements import statements

SQL = statements("campaigns")


class DuckCampaignStore:
    """See `storage.base.CampaignStore`."""

    def __init__(self, database: Database) -> None:
        self._db = database

    async def put_campaign(self, campaign: Campaign, works: Sequence[Work]) -> None:
        values = [
            campaign.campaign_id,
            campaign.name,
            campaign.text,
            campaign.seed,
            campaign.state,
            campaign.created_at,
            json.dumps(asdict(campaign.context_rule)),
        ]
        put = executing(SQL["put_campaign"], values)
        await self._db.apply(put, _added(campaign.campaign_id, works))

    async def campaigns(self) -> list[Campaign]:
        return [_campaign(row) for row in await self._db.read(SQL["campaigns"])]

    async def works(self, campaign_id: str) -> list[Work]:
        return [_work(row) for row in await self._db.read(SQL["works"], [campaign_id])]

    async def set_state(self, campaign_id: str, state: CampaignState, reason: str = "") -> None:
        await self._db.execute(SQL["set_state"], [state, reason, campaign_id])

    async def assign_block(self, campaign_id: str, work: Work) -> None:
        await self._db.execute(SQL["assign_block"], [work.node, campaign_id, work.block])

    async def move_blocks(self, campaign_id: str, blocks: Set[int], added: Sequence[Work]) -> None:
        moves = [executing(SQL["move_block"], [campaign_id, block]) for block in sorted(blocks)]
        await self._db.apply(*moves, _added(campaign_id, added))

    async def drop_work(self, campaign_id: str, work: Work) -> None:
        await self._db.execute(*_ending(campaign_id, work, WorkState.DROPPED))

    async def finish_cell(self, campaign: Campaign, work: Work, node: Node, cell: Cell, result: CellResult) -> None:
        kept = append_cell(campaign.name, node, cell, result, f"{campaign.campaign_id}/{work.block}")
        await self._db.apply(_finished(campaign, work, kept))

    async def finish_baseline(self, campaign: Campaign, work: Work, results: Sequence[BenchmarkResult]) -> None:
        await self._db.apply(_finished(campaign, work, append_probes(results, Purpose.BASELINE)))


def _ending(campaign_id: str, work: Work, state: WorkState) -> Statement:
    return Statement(SQL["end_work"], [state, time.time(), campaign_id, work.number])


def _finished(campaign: Campaign, work: Work, kept: Change) -> Change:
    """The change that ends a work and keeps its results, unless it has ended before."""
    sql, parameters = _ending(campaign.campaign_id, work, WorkState.DONE)

    def finish(connection: duckdb.DuckDBPyConnection) -> None:
        if connection.execute(sql, parameters).fetchone() == (1,):
            kept(connection)

    return finish


def _added(campaign_id: str, works: Sequence[Work]) -> Change:
    if not works:
        return lambda connection: connection
    columns: dict[str, Sequence[Any]] = {
        "campaign_id": [campaign_id] * len(works),
        "number": [work.number for work in works],
        "kind": [str(work.kind) for work in works],
        "context_id": [work.context_id for work in works],
        "block": [work.block for work in works],
        "node": [work.node for work in works],
        "cell": [work.cell.to_json() if work.cell else "" for work in works],
        "state": [str(work.state) for work in works],
    }
    return appending("campaign_works", columns)


def _campaign(row: dict[str, Any]) -> Campaign:
    rule = ContextRule.from_dict(json.loads(row["context_rule"]))
    return Campaign(**{**row, "state": CampaignState(row["state"]), "context_rule": rule})


def _work(row: dict[str, Any]) -> Work:
    return Work(
        number=row["number"],
        kind=WorkKind(row["kind"]),
        context_id=row["context_id"],
        block=row["block"],
        cell=Cell.from_json(row["cell"]) if row["cell"] else None,
        node=row["node"],
        state=WorkState(row["state"]),
    )
