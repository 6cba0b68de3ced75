"""A monitored run: what the provider gets of its ranks, and how it ends."""

from __future__ import annotations

import asyncio
from pathlib import Path

from pharoah._settings import Settings
from pharoah.comparison.history import History
from pharoah.end_causes import JudgedEnd
from pharoah.sidecar.monitored_run import MonitoredRun
from pharoah_protocol.reports import BASELINE_WINDOWS, SKIPPED_STEPS
from pharoah_protocol.vocabulary import EndState

SECOND = 1_000_000_000
"""Nanoseconds."""


def monitored(folder: Path) -> MonitoredRun:
    return MonitoredRun(bytes(16), b"", Settings(state_folder=str(folder)), lambda _: None)


def test_a_rank_that_steps_later_keeps_the_places_of_the_others(tmp_path: Path) -> None:
    run = monitored(tmp_path)
    healthy = [SECOND // 4] * (SKIPPED_STEPS + 4 * BASELINE_WINDOWS)
    run.note_step(1, [*healthy, *[SECOND] * 24], 1 << 30)
    (slow,) = run.levels()
    assert slow.step > 8
    run.note_step(0, healthy, 1 << 30)
    assert [level.step for level in run.levels()] == [slow.step, 0]


def test_the_steps_of_the_next_program_are_compared_with_its_own(tmp_path: Path) -> None:
    """It takes four times as long for a step as the one before, and the place of its rank stays."""
    run = monitored(tmp_path)
    steps = SKIPPED_STEPS + 4 * BASELINE_WINDOWS + 24
    for rank in (1, 0):
        run.note_step(rank, [SECOND // 4] * steps, 1 << 30)
    run.next_program(1)
    run.note_step(1, [SECOND] * steps, 1 << 30)
    assert [level.step for level in run.levels()] == [0, 0]
    run.note_step(0, [SECOND] * 24, 1 << 30)
    assert [level.step > 8 for level in run.levels()] == [False, True], "one program that became slow"


def test_a_run_that_can_report_its_end_is_not_lost(tmp_path: Path) -> None:
    async def inside() -> None:
        run = monitored(tmp_path)
        run.note_start("python train.py", {})
        await run.end(JudgedEnd(EndState.LOST), None)

    asyncio.run(inside())
    (recorded,) = History(Settings(state_folder=str(tmp_path))).runs()
    assert recorded.state == EndState.FAILED
