"""Dry runs of cells that gave no fingerprint: they are tried again a few times, and then no more."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from pharoah_benchmarks.campaign import fork_server
from pharoah_benchmarks.campaign.cell import Cell, DryCell
from pharoah_benchmarks.campaign.forked import ForkedAnswer
from pharoah_provider.agent.environment_children import EnvironmentChildren
from pharoah_provider.own_fingerprints import OwnFingerprints
from pharoah_provider.storage.duckdb import DuckStorage
from pharoah_provider.storage.duckdb.dry_runs import MAX_ATTEMPTS
from tests.campaigns.test_environments_of_cells import fingerprint_of

CELL, OTHER = Cell("c", "mlp", {"width": 8}), Cell("d", "mlp", {"width": 16})
FOUND = DryCell(fingerprint_of("peft==0.1", 8).to_json())
LATE = DryCell(reason="longer than 60 s")


def dry_runs(folder: Path, monkeypatch: pytest.MonkeyPatch, answers: list[DryCell], campaigns: int) -> set[str]:
    """The contents that have a fingerprint after so many campaigns, whose dry runs give these answers in turn."""
    left = iter(answers)

    async def ask(self: EnvironmentChildren, environment: str, line: str, timeout_seconds: float, locks: str) -> str:
        return next(left).to_json()

    monkeypatch.setattr(EnvironmentChildren, "ask", ask)

    async def inside() -> set[str]:
        store = DuckStorage(folder / "p.duckdb")
        for _ in range(campaigns):
            own = OwnFingerprints(store.dry_runs)
            for _ in range(2):  # a campaign may ask twice
                await own.complete([CELL])
        found = await own.find([CELL, OTHER])
        store.close()
        return set(found)

    contents = asyncio.run(inside())
    assert not list(left), "all of them were asked for"
    return contents


def test_a_dry_run_that_was_late_is_tried_by_the_next_campaign(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert dry_runs(tmp_path, monkeypatch, [LATE, FOUND], campaigns=4) == {CELL.content}


def test_a_cell_that_cannot_be_dry_run_is_not_tried_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not dry_runs(tmp_path, monkeypatch, [LATE] * MAX_ATTEMPTS, campaigns=MAX_ATTEMPTS + 3)


def test_a_fork_server_keeps_fingerprints_and_tries_few_cells_again(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = {CELL.content: [LATE, FOUND], OTHER.content: [LATE] * fork_server.MAX_DRY_RUNS}
    monkeypatch.setattr(fork_server, "dry_cell", lambda cell: answers[cell.content].pop(0))
    monkeypatch.setattr(fork_server, "in_child", lambda *_: ForkedAnswer(late=True))
    server = fork_server.ForkServer(0)
    assert [server.run(CELL).fingerprint for _ in range(4)] == ["", *[FOUND.fingerprint] * 3]
    assert [server.run(OTHER).fingerprint for _ in range(5)] == [""] * 5
    assert not any(answers.values())
