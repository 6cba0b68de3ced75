"""What one agent may change and send in a day: its facts, and its telemetry."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pharoah_protocol.v1 import AdmitNodeRequest, AgentMessage, Telemetry
from pharoah_provider.agent_budgets import CHANGES_A_DAY, MAX_SIGNALS, ROWS_AT_ONCE, AgentBudgets
from pharoah_provider.services import agent as agent_service
from pharoah_provider.storage.duckdb import DuckStorage
from pharoah_serving.clock import Clock
from tests.harness.loopback import node as known_node
from tests.harness.scripted_agents import scripted_site
from tests.harness.until import until
from tests.security.test_lying_agents import LARGE, PLAN, honest_agents


def test_an_agent_brings_few_new_contexts_a_day_without_an_operators_word(tmp_path: Path) -> None:
    agents = [replace(agent, server_facts=(*LARGE, f"try={at}")) for at, agent in enumerate(honest_agents()[:1] * 6)]

    async def inside() -> None:
        async with scripted_site(tmp_path, [agents[0]]) as site:
            contexts = set()
            for agent in agents[1:]:
                async with site.connected(agent):
                    (row,) = await site.listing("nodes")
                    contexts.add(row["context"])
            assert len(contexts) == CHANGES_A_DAY
            async with site.connected(agents[5]):
                (row,) = await site.listing("nodes")
                assert row["connected"] == "held" and "pharoah-provider admit" in site.notices["n1"]
                with pytest.raises(Exception, match="no agent is connected"):
                    await site.campaign(PLAN)
                await site.call("Operator", "AdmitNode", AdmitNodeRequest(node="n1"))
                await until(lambda: site.notices["n1"] == "", "the agent to connect again", 10)
                (row,) = await site.listing("nodes")
                assert row["connected"] == "yes" and row["context"] not in contexts

    asyncio.run(inside())


def test_the_day_of_changes_passes_by_the_providers_clock(tmp_path: Path) -> None:
    async def inside() -> list[bool]:
        store, now = DuckStorage(tmp_path / "p.duckdb"), [1e9]
        budgets = AgentBudgets(store.nodes, Clock(lambda: now[0], lambda: now[0]))
        held = []
        try:
            for number in range(CHANGES_A_DAY + 2):
                admitted = await budgets.admit(known_node("n1", f"try={number}"))
                held.append(admitted.held)
                await store.nodes.put_node(admitted.node)
            now[0] += 86_401
            held.append((await budgets.admit(known_node("n1", "try=other"))).held)
        finally:
            store.close()
        return held

    assert asyncio.run(inside()) == [False, False, False, False, True, False]


def test_telemetry_beyond_the_budget_is_dropped_and_neither_looked_at_nor_acknowledged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # So many that a batch, of 42 KB, is none that only the result of a cell may have.
    batches = 40
    rows, within, checked = int(ROWS_AT_ONCE) // batches, list[bool](), list[int]()
    takes, check = AgentBudgets.takes_rows, agent_service.check_telemetry

    def noted_takes(*arguments: Any) -> bool:
        within.append(takes(*arguments))
        return within[-1]

    def noted_check(at: Any, *arguments: Any) -> None:
        checked.append(len(at))
        check(at, *arguments)

    monkeypatch.setattr(AgentBudgets, "takes_rows", noted_takes)
    monkeypatch.setattr(agent_service, "check_telemetry", noted_check)

    def batch(number: int) -> AgentMessage:
        columns = {"sampled_at": [time.time()] * rows, "metric": ["m"] * rows, "device": [""] * rows}
        return AgentMessage(telemetry=Telemetry(batch=number, **columns, value=[float(number)] * rows))

    async def inside() -> None:
        (agent,) = honest_agents()[:1]
        async with scripted_site(tmp_path, [], [f"agent {agent.name} {agent.token}"]) as site:
            async with site.connected(agent) as out:
                for number in range(1, batches + 5):
                    out.put_nowait(batch(number))
                await until(lambda: site.acknowledged.get("n1", 0) >= batches, "the batches within the budget", 20)
                await until(lambda: len(within) == batches + 4, "the batches beyond the budget", 20)
                (newest,) = await site.listing("telemetry")
            assert site.acknowledged["n1"] == batches and newest["value"] <= batches
            assert within == [True] * batches + [False] * 4 and checked == [rows] * batches

    asyncio.run(inside())


def test_telemetry_of_another_day_is_dropped_and_acknowledged_so_that_the_agent_goes_on(tmp_path: Path) -> None:
    """An agent sends what is not acknowledged again: with an error for it, none of its messages would ever be taken."""

    def batch(number: int, at: float) -> AgentMessage:
        columns = {"sampled_at": [at], "metric": ["m"], "device": [""], "value": [float(number)]}
        return AgentMessage(telemetry=Telemetry(batch=number, **columns))

    async def inside() -> None:
        (agent,) = honest_agents()[:1]
        async with scripted_site(tmp_path, [], [f"agent {agent.name} {agent.token}"]) as site:
            async with site.connected(agent) as out:
                for number, days in enumerate((-2, 2, 0), start=1):
                    out.put_nowait(batch(number, time.time() + days * 86_400))
                await until(lambda: site.acknowledged.get("n1", 0) == 3, "all batches", 20)
                (newest,) = await site.listing("telemetry")
            assert newest["value"] == 3.0

    asyncio.run(inside())


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ({"value": [math.inf]}, "telemetry.value"),
        ({"device": ["\x1b[2J"]}, "telemetry.device"),
        ({"sampled_at": [math.nan]}, "telemetry.sampled_at"),
        ({"metric": ["m", "m"]}, "telemetry.metric"),
    ],
)
def test_telemetry_that_nobody_can_have_measured_is_dropped_with_a_notice_and_the_agent_goes_on(
    tmp_path: Path, wrong: dict[str, Any], field: str
) -> None:
    def batch(number: int, **changes: Any) -> AgentMessage:
        columns = {"sampled_at": [time.time()], "metric": ["m"], "device": [""], "value": [float(number)], **changes}
        return AgentMessage(telemetry=Telemetry(batch=number, **columns))

    async def inside() -> None:
        (agent,) = honest_agents()[:1]
        async with scripted_site(tmp_path, [], [f"agent {agent.name} {agent.token}"]) as site:
            async with site.connected(agent) as out:
                out.put_nowait(batch(1, **wrong))
                await until(lambda: site.acknowledged.get("n1", 0) == 1, "the wrong batch", 20)
                assert field in site.notices["n1"]
                out.put_nowait(batch(2))
                await until(lambda: site.acknowledged.get("n1", 0) == 2, "the next batch", 20)
                (newest,) = await site.listing("telemetry")
            assert newest["value"] == 2.0

    asyncio.run(inside())


def test_invented_signals_are_dropped_and_known_ones_are_kept_also_after_a_restart(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Every commit looks at the open spans, so that their number must not be the agent's choice."""
    (agent,) = honest_agents()[:1]

    def batch(number: int, device: list[str], value: float) -> AgentMessage:
        at = [time.time()] * len(device)
        columns = {"sampled_at": at, "metric": ["m"] * len(device), "value": [value] * len(device)}
        return AgentMessage(telemetry=Telemetry(batch=number, device=device, **columns))

    async def flood(word: str, expected: int) -> None:
        token = f"agent {agent.name} {agent.token}"
        async with scripted_site(tmp_path, [], [token]) as site, site.connected(agent) as out:
            out.put_nowait(batch(1, ["real"], 1.0))
            out.put_nowait(batch(2, [f"{word}{number}" for number in range(MAX_SIGNALS)], 2.0))
            out.put_nowait(batch(3, ["real", f"another {word}"], 3.0))
            await until(lambda: site.acknowledged.get("n1", 0) == 3, "all batches", 20)
            assert "more than 2048 signals" in site.notices["n1"]
            rows = {row["device"]: row["value"] for row in await site.listing("telemetry")}
        assert len(rows) == MAX_SIGNALS and rows["real"] == 3.0
        assert sum(name.startswith(word) for name in rows) == expected and f"another {word}" not in rows

    async def inside() -> None:
        await flood("first", MAX_SIGNALS - 1)
        await flood("second", 0)

    with caplog.at_level(logging.WARNING, "pharoah.provider.agents"):
        asyncio.run(inside())
    assert len([line for line in caplog.messages if "2048 signals of devices" in line]) == 2, "one line of each process"
