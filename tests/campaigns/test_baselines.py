"""The baseline beside a job: it counts only where the companion trained during all of its rounds."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from math import inf
from typing import Any

import pytest

from pharoah_benchmarks.campaign.cell import Cell, CellResult
from pharoah_learning.evidence import BenchmarkResult
from pharoah_protocol.vocabulary import Outcome
from pharoah_provider.campaigns.executors import agents
from pharoah_provider.campaigns.works import Work, WorkKind
from pharoah_provider.domain import Node
from pharoah_provider.fleet import Fleet

NODE = Node("n1", b"k" * 32, "boot", ("device=a CPU",), ("device=a CPU",), (0,))
WORK = Work(number=0, kind=WorkKind.BASELINE, context_id="c", block=0, node="n1")
SKEW_SECONDS = -3600.0
"""The clock of the node is an hour behind."""


@dataclass
class Companion:
    """How the companion of the node trains."""

    outcome: Outcome = Outcome.OK
    began_after: float = 0.0
    """Seconds after it was ordered."""
    trained: float = 18.0
    began: bool = True


class OneNode(Fleet):
    """A fleet of one node, which answers at once."""

    def __init__(self, companion: Companion, first: Companion | None) -> None:
        super().__init__()
        self._companions = [companion, first or companion]

    def list_connected(self) -> list[Node]:
        return [NODE]

    async def probe(
        self, node: str, benchmarks: list[str], repeats: int, beside_job: bool, limit_seconds: float, **_: Any
    ) -> list[BenchmarkResult]:
        assert 0 < limit_seconds < inf
        began = time.time() + SKEW_SECONDS
        await asyncio.sleep(0.02)
        ended = time.time() + SKEW_SECONDS
        return [BenchmarkResult("", node, name, beside_job, began, ended, (0.01,) * repeats) for name in benchmarks]

    async def run_cell(self, node: str, cell: Cell, order_id: str = "") -> CellResult:
        how = self._companions.pop()
        began_at = time.time() + SKEW_SECONDS + how.began_after if how.began else 0.0
        await asyncio.sleep(0.2)
        return CellResult(cell=cell.id, outcome=how.outcome, began_at=began_at, step_seconds=[how.trained])


def baseline(companion: Companion, first: Companion | None = None) -> list[BenchmarkResult]:
    """The baseline of a node on which a companion trains so, and the first one, if given, otherwise."""
    result = asyncio.run(agents.AgentExecutor(OneNode(companion, first)).do(NODE, WORK, "o"))
    assert isinstance(result, list)
    return result


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agents, "COMPANION_START_SECONDS", 0.01)


def test_rounds_beside_a_companion_that_trains_are_the_baseline() -> None:
    found = baseline(Companion())
    idle = [one for one in found if not one.beside_job]
    beside = [one for one in found if one.beside_job]
    assert len(idle) == agents.IDLE_ROUNDS * len({one.benchmark for one in idle})
    assert len(beside) == agents.BESIDE_ROUNDS * len({one.benchmark for one in beside}), (
        "those that warm up do not count"
    )


@pytest.mark.parametrize(
    "companion",
    [
        Companion(outcome=Outcome.ERROR),
        Companion(outcome=Outcome.CRASH, began=False, trained=0.0),
        Companion(trained=0.03),
        Companion(began_after=5.0),
        Companion(began=False),
    ],
    ids=["it failed", "it crashed", "it ended at once", "it began late", "it never began"],
)
def test_rounds_on_a_node_that_was_idle_are_no_baseline_beside_a_job(companion: Companion) -> None:
    found = baseline(companion)
    assert found and not any(one.beside_job for one in found)
    again = baseline(Companion(), companion)
    assert any(one.beside_job for one in again), "the second attempt counts"
