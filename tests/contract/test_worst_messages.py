"""The worst that an agent can send, asked and unasked: the event loop does little about it, and drops most unread."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pharoah_benchmarks.campaign.cell import Cell
from pharoah_protocol.v1 import AgentMessage, CellResult, LookResult, ProbeResult
from pharoah_provider.agent_connection import ANSWERS_WITHOUT_ORDER
from tests.harness.scripted_agents import ScriptedAgent, scripted_site
from tests.harness.until import until
from tests.harness.worst_messages import MAX_GRAMMAR, PASSES, worst_results
from tests.security.test_lying_agents import CELLS, DEVICE, LARGE, prepared, result_of

PLAN = """
name = "worst"
repeats = 10
[[workload]]
name = "gpt"
settings = { attention = "flash", length = 128 }
"""
SAID = "of the event loop"


def honest(cell: Cell, **changes: Any) -> str:
    """The companion of a baseline has no settings."""
    return result_of(replace(cell, settings=cell.settings or next(iter(CELLS.values())).settings), **changes)


@pytest.mark.parametrize("unasked", [MAX_GRAMMAR, "[]" * 30_000, "[]" * 2_000_000])
def test_what_nobody_has_ordered_is_dropped_unread_and_ends_the_stream_in_the_end(
    unasked: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    agent = ScriptedAgent("n1", LARGE, DEVICE, 0, lambda _: None)

    async def inside() -> None:
        async with scripted_site(tmp_path, [], [f"agent n1 {agent.token}"]) as site, site.connected(agent) as out:
            for _ in range(int(ANSWERS_WITHOUT_ORDER) - 2):
                out.put_nowait(AgentMessage(cell=CellResult(order_id="o", outcome=unasked[:60_000])))
            out.put_nowait(AgentMessage(cell=CellResult(order_id="o", outcome=unasked)))
            out.put_nowait(AgentMessage(probe=ProbeResult(order_id="o", seconds=[float("nan")] * 7000)))
            out.put_nowait(AgentMessage(look=LookResult(order_id="o")))
            await until(lambda: "answers to orders that are not open" in site.notices["n1"], "the end of the stream")

    with caplog.at_level(logging.WARNING):
        asyncio.run(inside())
    assert SAID not in caplog.text


@pytest.mark.parametrize("half", [0, 1])
def test_the_worst_answers_to_a_cell_take_the_event_loop_no_time(
    half: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Each comes from a node of its own. It is read in another process, which refuses it or finds it as good as any."""
    prepared(tmp_path)
    every = worst_results(honest)  # more than the streams of one connection
    answers = {name: way for at, (name, way) in enumerate(every.items()) if at % 2 == half or name.startswith(PASSES)}
    agents = [ScriptedAgent(f"n{cpu}", LARGE, DEVICE, cpu, answer) for cpu, answer in enumerate(answers.values())]
    names = dict(zip((agent.name for agent in agents), answers, strict=True))

    async def inside() -> list[str]:
        async with scripted_site(tmp_path, agents) as site:
            return await site.campaign(PLAN)

    with caplog.at_level(logging.WARNING):
        lines = asyncio.run(inside())
    left = {names[line.split()[0]] for line in lines if "leaves the campaign" in line}
    assert left == {name for name in answers if not name.startswith(PASSES)}
    assert SAID not in caplog.text
