"""A node that is gone does not end the campaign of the others, whenever within a round its time is over."""

from __future__ import annotations

import asyncio
import itertools
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch

import pytest

from pharoah_provider.campaigns import run as campaign_run
from pharoah_provider.campaigns.run import CampaignRun
from pharoah_provider.campaigns.works import Campaign, CampaignState, Work, WorkKind, WorkResult, WorkState
from pharoah_provider.domain import Node
from pharoah_provider.own_fingerprints import OwnFingerprints
from pharoah_provider.storage.duckdb import DuckStorage
from pharoah_serving.clock import Clock

GONE = Work(number=0, kind=WorkKind.BASELINE, context_id="c2", block=0, node="n2")


@dataclass
class OneOfTwo:
    """An executor whose second node is gone."""

    away_seconds: float = 10.0

    def nodes(self) -> list[Node]:
        return [Node("n1", b"k" * 32, "boot", ("device=a",), ("device=a",), (0,))]

    async def do(self, node: Node, work: Work, order_id: str) -> WorkResult:
        raise AssertionError(f"{node.node} has no work in this campaign")

    def release(self, node: str, order_id: str) -> None:
        """Nothing was ordered."""


@pytest.mark.parametrize("seconds_between_reads", [0.7, 0.9, 1.0, 1.3, 1.7, 2.1, 3.0, 4.0, 6.0, 9.9, 11.0])
def test_the_baseline_of_a_gone_node_is_set_aside(tmp_path: Path, seconds_between_reads: float) -> None:
    """Every reading of the clock is later than the one before, so that the time is over at all steps of a round."""
    readings = itertools.count()
    clock = Clock(wall=lambda: 0.0, steady=lambda: next(readings) * seconds_between_reads)

    async def inside() -> list[WorkState]:
        store = DuckStorage(tmp_path / "p.duckdb")
        campaign = Campaign(campaign_id="c", name="name", text="", seed=0, state=CampaignState.RUNNING, created_at=0.0)
        await store.campaigns.put_campaign(campaign, [GONE])
        run = CampaignRun(
            campaign=campaign,
            works=[GONE],
            suspects=[],
            executor=OneOfTwo(),
            store=store.campaigns,
            in_use=lambda _: False,
            report=lambda _: None,
            clock=clock,
        )
        try:
            with patch.object(campaign_run, "POLL_SECONDS", 0.0):
                assert await run.run(OwnFingerprints(store.dry_runs))
            return [work.state for work in await store.campaigns.works("c")]
        finally:
            store.close()

    assert asyncio.run(inside()) == [WorkState.NOT_RUN]
