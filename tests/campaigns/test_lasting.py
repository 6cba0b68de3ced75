"""A campaign goes on after its provider or an agent has ended; each work has one result. Real gRPC, real DuckDB."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path

import grpc.aio
import pytest

from pharoah_benchmarks.campaign.cell import Cell, CellResult
from pharoah_protocol.v1 import CancelCampaignRequest, PlanCampaignRequest
from pharoah_protocol.vocabulary import Outcome
from tests.harness.scripted_agents import ScriptedAgent, ScriptedSite, scripted_site

PLAN = 'name = "small"\nrepeats = 3\n[[workload]]\nname = "mlp"\nvary = { width = [8, 16], batch = [2, 4] }\n'
CELLS = 12
FACTS = ("device=cpu small",)


@dataclass
class Answers:
    """Answers every cell at once, until it has answered so many; then nothing more, or with the result of another
    cell."""

    most: int = 1000
    wrong_then: bool = False
    answered: list[str] = field(default_factory=list)
    reached: asyncio.Event = field(default_factory=asyncio.Event)

    def __call__(self, cell: Cell) -> str | None:
        self.answered.append(cell.id)
        if len(self.answered) > self.most:
            self.reached.set()
            return CellResult(cell="another cell", outcome=Outcome.OK).to_json() if self.wrong_then else None
        return CellResult(cell=cell.id, outcome=Outcome.OK, step_seconds=[0.1, 0.1]).to_json()


def agent(name: str, cpu: int, answer: Callable[[Cell], str | None]) -> ScriptedAgent:
    return ScriptedAgent(name, FACTS, ("device=cpu",), cpu, answer)


def token_of(name: str) -> str:
    """The line of the token file for an agent that comes and goes."""
    return f"agent {name} {agent(name, 0, Answers()).token}"


async def status(site: ScriptedSite) -> dict[str, object]:
    (row,) = await site.listing("campaigns")
    return row


def at(folder: Path, work: Callable[[Path], Awaitable[None]]) -> None:
    async def inside() -> None:
        await work(folder)

    asyncio.run(inside())


def test_a_provider_that_starts_again_goes_on_with_its_campaign(tmp_path: Path) -> None:
    async def work(folder: Path) -> None:
        async with scripted_site(folder, [], [token_of("n1")]) as site:
            async with site.connected(agent("n1", 0, Answers())):
                plan = await site.call("Operator", "PlanCampaign", PlanCampaignRequest(campaign=PLAN, seed=3))
                assert (plan.works, plan.blocks, plan.contexts, plan.seed) == (CELLS + 1, 4, 1, 3)
                assert (await status(site))["state"] == "planned"
            going = asyncio.create_task(site.campaign(campaign_id=plan.campaign_id))
            while (await status(site))["state"] != "running":
                await asyncio.sleep(0.01)
        await asyncio.wait({going})
        async with scripted_site(folder, [agent("n1", 0, Answers())]) as site:
            while (await status(site))["state"] == "running":
                await asyncio.sleep(0.05)
            row = await status(site)
            assert (row["state"], row["done"], row["works"], row["failed"]) == ("done", CELLS + 1, CELLS + 1, 0)
            cells = await site.listing("cells")
            assert len(cells) == CELLS and len({cell["cell"] for cell in cells}) == CELLS
            assert {Counter(cell["block"] for cell in cells)[block] for block in {c["block"] for c in cells}} == {4}
            with pytest.raises(grpc.aio.AioRpcError, match="done already"):
                await site.campaign(campaign_id=plan.campaign_id)

    at(tmp_path, work)


@pytest.mark.parametrize("wrong", [False, True])
def test_blocks_of_a_node_that_goes_away_or_answers_wrong_are_run_by_another(tmp_path: Path, wrong: bool) -> None:
    async def work(folder: Path) -> None:
        async with scripted_site(folder, [agent("n1", 0, Answers())], [token_of("n2")]) as site:
            answers = Answers(most=2, wrong_then=wrong)
            async with site.connected(agent("n2", 1, answers)):
                going = asyncio.create_task(site.campaign(PLAN))
                await answers.reached.wait()
                if wrong:
                    await asyncio.wait({going})
            lines = await going
            assert any(line.startswith("n2 leaves the campaign") for line in lines) == wrong
            row = await status(site)
            assert row["state"] == "done" and row["done"] == row["works"] - 1, "the baseline of n2 is set aside"
            works = await site.listing("campaign-works")
            blocks = {work["block"] for work in works if work["state"] == "moved"}
            assert len(blocks) == 1
            whole = Counter(cell["block"] for cell in await site.listing("cells"))
            assert sorted(whole.values()) == [2, 4, 4, 4], "the results of the block that was moved are kept"

    at(tmp_path, work)


def test_a_campaign_without_its_nodes_is_paused_and_can_be_resumed_and_cancelled(tmp_path: Path) -> None:
    async def work(folder: Path) -> None:
        async with scripted_site(folder, [], [token_of("n1")]) as site:
            async with site.connected(agent("n1", 0, Answers())):
                plan = await site.call("Operator", "PlanCampaign", PlanCampaignRequest(campaign=PLAN))
            with pytest.raises(grpc.aio.AioRpcError, match="no node of context"):
                await site.campaign(campaign_id=plan.campaign_id)
            row = await status(site)
            assert row["state"] == "paused" and f"resume {plan.campaign_id}" in str(row["reason"])
            cancel = CancelCampaignRequest(campaign_id=plan.campaign_id)
            await site.call("Operator", "CancelCampaign", cancel)
            with pytest.raises(grpc.aio.AioRpcError, match="is cancelled"):
                await site.call("Operator", "CancelCampaign", cancel)
            async with site.connected(agent("n1", 0, Answers())):
                assert len(await site.campaign(campaign_id=plan.campaign_id)) == CELLS + 1
            assert (await status(site))["state"] == "done"

    at(tmp_path, work)


def test_bad_requests_name_their_field(tmp_path: Path) -> None:
    async def work(folder: Path) -> None:
        async with scripted_site(folder, [agent("n1", 0, Answers())]) as site:
            with pytest.raises(grpc.aio.AioRpcError, match="give one of them"):
                await site.campaign()
            with pytest.raises(grpc.aio.AioRpcError, match="seed: 4294967295 is not between"):
                await site.call("Operator", "PlanCampaign", PlanCampaignRequest(campaign=PLAN, seed=2**32 - 1))
            with pytest.raises(grpc.aio.AioRpcError, match="'none' is not known"):
                await site.campaign(campaign_id="none")
            with pytest.raises(grpc.aio.AioRpcError, match="campaign: workload"):
                await site.call("Operator", "PlanCampaign", PlanCampaignRequest(campaign="repeats = 3"))
            assert not await site.listing("campaigns")

    at(tmp_path, work)
