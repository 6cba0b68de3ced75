"""Two nodes that differ in a fact which does not matter are in one context, for everybody: the exchange, the fleet,
campaigns, votes and listings. Real gRPC, real DuckDB, real learning."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import grpc.aio
import pytest

from pharoah_auditor.replay import replay
from pharoah_learning.context_rule import ContextRule, IgnoredFact, KnownContext
from pharoah_protocol.v1 import ExportAuditBundleRequest, GetOfferRequest, PlanCampaignRequest, RollbackRequest
from pharoah_provider.contexts import Contexts
from pharoah_provider.domain import Node
from pharoah_provider.fleet import Fleet
from pharoah_serving.keys import open_keys
from tests.harness.scripted_agents import ScriptedAgent, ScriptedSite, scripted_site, ticket_of
from tests.security.test_lying_agents import PLAN, honest_agents, prepared

TENANT = "t" * 32
OTHERS = (f"tenant acme {TENANT}",)
LASTING = PLAN.replace("repeats = 5", "repeats = 7")
"""Seven blocks of four cells: 28 matched pairs."""


def agents() -> list[ScriptedAgent]:
    """Four equal nodes, two with an older kernel."""
    first = honest_agents()[0]
    kernels = ("5.15", "5.15", "6.1", "6.1")
    return [
        replace(first, name=f"n{at}", server_facts=(*first.server_facts, f"kernel={kernel}"), cpu=at)
        for at, kernel in enumerate(kernels, 1)
    ]


async def offered(site: ScriptedSite, node: str) -> tuple[bytes, ...]:
    """The classes of an offer for a node, and the facts of its context."""
    offer = await site.call("Exchange", "GetOffer", GetOfferRequest(ticket=ticket_of(node)), TENANT)
    return (*offer.class_ids, *(fact.encode() for fact in offer.context))


async def contexts(site: ScriptedSite) -> dict[str, str]:
    return {row["node"]: row["context"] for row in await site.listing("nodes")}


def test_nodes_that_are_one_irrelevant_fact_apart_are_one_class(tmp_path: Path) -> None:
    prepared(tmp_path)

    async def inside() -> None:
        async with scripted_site(tmp_path, agents(), OTHERS) as site:
            assert len(set((await contexts(site)).values())) == 2, "before any evidence every set of facts is a context"
            plan = await site.call("Operator", "PlanCampaign", PlanCampaignRequest(campaign=LASTING))
            assert plan.contexts == 2
            await site.campaign(campaign_id=plan.campaign_id)
            lines = await site.learn()
            assert any(line.startswith("fact kernel does not matter: 28 matched pairs") for line in lines), lines
            assert len(set((await contexts(site)).values())) == 1
            assert await offered(site, "n1") == await offered(site, "n3")
            assert (await offered(site, "n1"))[2:] == (b"device=a CPU",), "what does not matter is not sent"
            table = await site.listing("table")
            assert {row["nodes"] for row in table if row["scope"] == "server"} == {"n1+n2+n3+n4"}
            assert {row["context"] for row in await site.listing("cells")} == set((await contexts(site)).values())
            again = await site.call("Operator", "PlanCampaign", PlanCampaignRequest(campaign=LASTING))
            assert again.contexts == 1
            (row,) = await site.listing("contexts")
            assert row["description"] == "device model a CPU; kernel does not matter" and row["tried"] == "yes"
            bundle = await site.call("Operator", "ExportAuditBundle", ExportAuditBundleRequest(epoch=1))
            (tmp_path / "bundle.json").write_text(bundle.content)
        public = open_keys(tmp_path / "keys").public
        findings = replay(tmp_path / "bundle.json", public)
        assert all(finding.holds is not False for finding in findings), findings
        assert any("the rule of contexts and 1 contexts follow" in finding.what for finding in findings)

    asyncio.run(inside())


def test_a_new_kernel_is_another_context_with_its_nearest_one_beside_it_and_a_campaign_tries_it(tmp_path: Path) -> None:
    prepared(tmp_path)
    known = agents()
    newer = replace(known[3], server_facts=(known[3].server_facts[0], "kernel=6.9"))

    async def inside() -> None:
        async with scripted_site(tmp_path, known, OTHERS) as site:
            await site.campaign(LASTING)
            await site.learn()
        async with scripted_site(tmp_path, [*known[:3], newer], OTHERS) as site:
            rows = {row["nodes"]: row for row in await site.listing("contexts")}
            assert rows["n4"]["tried"] == "no" and rows["n4"]["differs"] == "kernel"
            assert rows["n4"]["nearest"] == rows["n1+n2+n3"]["context"]
            assert not any(row["nodes"] == "n4" for row in await site.listing("table")), "no verdict is borrowed"
            plan = await site.call("Operator", "PlanCampaign", PlanCampaignRequest(campaign=LASTING, untried=True))
            assert plan.contexts == 2, "the new one, and the nearest one as its control"
        async with scripted_site(tmp_path, known, OTHERS) as site:
            with pytest.raises(grpc.aio.AioRpcError, match="have tried the contexts of all connected nodes"):
                await site.call("Operator", "PlanCampaign", PlanCampaignRequest(campaign=LASTING, untried=True))

    asyncio.run(inside())


def test_a_release_that_is_rolled_back_to_has_its_own_rule(tmp_path: Path) -> None:
    prepared(tmp_path)

    async def inside() -> None:
        async with scripted_site(tmp_path, agents(), OTHERS) as site:
            await site.campaign(PLAN)  # five blocks: 20 matched pairs are too few
            lines = await site.learn()
            assert any(line.startswith("fact kernel counts: 20 matched pairs") for line in lines), lines
            before = await contexts(site)
            await site.campaign(PLAN)
            await site.learn()
            assert len(set((await contexts(site)).values())) == 1
            await site.call("Operator", "Rollback", RollbackRequest())
            assert await contexts(site) == before
            assert await offered(site, "n1") != await offered(site, "n3")
        async with scripted_site(tmp_path, agents(), OTHERS) as site:
            assert await offered(site, "n1") != await offered(site, "n3"), "also after a restart"

    asyncio.run(inside())


def test_a_node_of_an_untried_context_is_monitored_beside_the_nearest_one_unless_a_known_cause_differs() -> None:
    rule = ContextRule((IgnoredFact(name="kernel", values=("5.15", "6.1"), reason=""),))
    usual = ("device=a CPU", "isa=avx2", "kernel=6.1")
    known = [KnownContext(context_id=rule.context_of(usual), facts=rule.relevant(usual), description="")]
    fleet = Fleet(contexts=Contexts(rule, known))

    def standing(name: str, cpu: int, *facts: str) -> Node:
        return Node(name, bytes(32), "boot", facts, ("device=a CPU",), (cpu,))

    first = standing("n1", 1, "device=a CPU", "isa=avx2", "kernel=5.15")
    second, new = standing("n2", 2, *usual), standing("n3", 3, "device=a CPU", "isa=avx2", "kernel=6.9")
    other = standing("n4", 4, "device=a CPU", "isa=avx512", "kernel=6.9")
    for one in (first, second, new, other):
        fleet.connect(one)

    def peers(node: Node) -> list[str]:
        return [peer.node for peer in fleet.peers(node)]

    assert (peers(first), peers(second), peers(new), peers(other)) == (["n2"], ["n1"], ["n1", "n2"], [])
    assert [node.node for node in fleet.contexts.list_untried([first, second, new, other])] == ["n1", "n2", "n3", "n4"]
    assert fleet.contexts.list_untried([first, second]) == []
