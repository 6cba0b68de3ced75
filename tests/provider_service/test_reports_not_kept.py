"""Reports that could not be stored: they cost a run and its organisation nothing, and what was stored counts once."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from pharoah_learning.release import DegradationModel
from pharoah_provider.domain import Report, Run
from pharoah_provider.monitoring import intake
from pharoah_provider.monitoring import run_budgets as budgets
from pharoah_serving.errors import Exhausted, NotReady, StoreError
from tests.harness.monitored import MonitoredSite, monitored_site
from tests.harness.slow_node import RELEASE, at_site

BATCH = 512
"""Seconds of one report, in several parts."""
BUDGET = 600
"""Seconds that may be reported at once: more than one report, and less than two."""


class FullDisk:
    """The storage of runs refuses reports while the disk is full."""

    def __init__(self, site: MonitoredSite, monkeypatch: pytest.MonkeyPatch) -> None:
        self.free_parts = 0.0
        """So many parts of reports are stored before the disk is full again."""
        self.risks: list[float] = []
        """The risks of the reports that were stored."""
        honest = site.storage.runs.append_reports

        async def append(run: Run, reports: Sequence[Report], masked: list[bool], risks: list[float]) -> int:
            if self.free_parts <= 0:
                raise StoreError("the disk is full")
            self.free_parts -= 1
            self.risks += risks
            return await honest(run, reports, masked, risks)

        monkeypatch.setattr(site.storage.runs, "append_reports", append)

    def has_room(self, parts: float = float("inf")) -> None:
        self.free_parts = parts


@pytest.fixture(params=["run", "organisation", "day"])
def budget(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """One of the budgets holds BUDGET seconds, and gets none while a test runs; what the error says of it."""
    if request.param == "run":
        monkeypatch.setattr(intake, "CAUGHT_UP_SECONDS", float(BUDGET))
        return "a run has"
    if request.param == "organisation":
        monkeypatch.setattr(budgets, "RANK_SECONDS_AT_ONCE", float(BUDGET))
        return "an organisation has"
    monkeypatch.setattr(budgets, "RANK_SECONDS_PER_DAY", BUDGET)
    return "today's"


def seconds_from(first: int, count: int = BATCH) -> list[Report]:
    return [Report(number, 0, float(number), 1.0, 1.0, 1.0) for number in range(first, first + count)]


def test_a_report_that_is_refused_by_a_full_disk_costs_nothing(
    tmp_path: Path, budget: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work(site: MonitoredSite) -> None:
        disk, run = FullDisk(site, monkeypatch), await site.join("n1")
        for _ in range(3):
            with pytest.raises(StoreError, match="full"):
                await site.intake.take(run, seconds_from(0))
        disk.has_room()
        await site.intake.take(run, seconds_from(0))
        assert await site.storage.runs.last_row_number(run.run_id, run.attempt) == BATCH - 1
        await site.intake.take(run, seconds_from(BATCH, BUDGET - BATCH))
        with pytest.raises(Exhausted, match=budget):
            await site.intake.take(run, seconds_from(BUDGET, 1))

    at_site(tmp_path, work)


def test_the_part_of_a_report_that_was_stored_is_counted_once(
    tmp_path: Path, budget: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work(site: MonitoredSite) -> None:
        disk, run = FullDisk(site, monkeypatch), await site.join("n1")
        disk.has_room(parts=1)
        with pytest.raises(StoreError, match="full"):
            await site.intake.take(run, seconds_from(0))
        assert await site.storage.runs.last_row_number(run.run_id, run.attempt) == intake.AT_ONCE - 1
        disk.has_room()
        await site.intake.take(run, seconds_from(0))
        await site.intake.take(run, seconds_from(BATCH, BUDGET - BATCH))
        with pytest.raises(Exhausted, match=budget):
            await site.intake.take(run, seconds_from(BUDGET, 1))

    at_site(tmp_path, work)


def test_reports_are_scored_as_if_the_disk_had_never_been_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = DegradationModel({"slowdown": 1.0, "growth": 1.0, "trend": 1.0}, 9.0, 24, 16)
    rising = [replace(report, step_ratio=1.0 + report.row_number / 20) for report in seconds_from(0, 10)]

    async def work(site: MonitoredSite) -> None:
        disk, run, other = FullDisk(site, monkeypatch), await site.join("n1"), await site.join("n2")
        for number in range(10):
            for _ in range(3):
                with pytest.raises(StoreError, match="full"):
                    await site.intake.take(run, rising[number : number + 1])
            disk.has_room(parts=1)
            await site.intake.take(run, rising[number : number + 1])
        disk.has_room()
        await site.intake.take(other, rising)
        assert disk.risks[:10] == disk.risks[10:] and len(set(disk.risks)) > 5

    at_site(tmp_path, work, replace(RELEASE, degradation=model))


def test_a_report_of_a_run_that_ends_meanwhile_costs_its_next_attempt_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(intake, "CAUGHT_UP_SECONDS", float(BUDGET))

    async def work(site: MonitoredSite) -> None:
        run, honest = await site.join("n1"), intake.give_way

        async def ends() -> None:
            site.monitor.unwatch(run.run_id)

        monkeypatch.setattr(intake, "give_way", ends)
        with pytest.raises(NotReady, match="has ended"):
            await site.intake.take(run, seconds_from(0))
        monkeypatch.setattr(intake, "give_way", honest)
        await site.intake.take(await site.join("n1", run_id=run.run_id), seconds_from(0))

    at_site(tmp_path, work)


def test_a_run_pays_nothing_for_what_the_budget_of_its_organisation_refuses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(intake, "CAUGHT_UP_SECONDS", float(BUDGET))
    monkeypatch.setattr(budgets, "RANK_SECONDS_AT_ONCE", float(BUDGET))
    monkeypatch.setattr(budgets, "RANK_SECONDS_PER_SECOND", float(BUDGET))

    async def inside() -> None:
        async with monitored_site(tmp_path) as site:
            first, second = await site.join("n1"), await site.join("n1")
            await site.intake.take(first, seconds_from(0))
            for _ in range(3):
                with pytest.raises(Exhausted, match="an organisation has"):
                    await site.intake.take(second, seconds_from(0))
            site.time.now += 1.0
            await site.intake.take(second, seconds_from(0))

    asyncio.run(inside())
