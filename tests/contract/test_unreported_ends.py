"""Runs that end while the provider is away: a later run of the same user reports how they ended."""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import threading
import time
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from pharoah._settings import Settings
from pharoah.end_causes import JudgedEnd
from pharoah.sidecar import unreported_ends
from pharoah.sidecar.bounded_folder import Bound
from pharoah.sidecar.evidence import exchange_folder
from pharoah.sidecar.provider_connection import ProviderConnection
from pharoah.sidecar.run_reporter import RunReporter
from pharoah.sidecar.unreported_ends import KEPT_SECONDS, UnreportedEnds
from pharoah_protocol.reports import ReportedLevels
from pharoah_protocol.v1 import EndRunRequest, JoinRunRequest
from pharoah_protocol.vocabulary import EndState
from pharoah_provider.services.runs import RunsServicer
from pharoah_system.trusted_paths import is_own_file, make_folder
from tests.harness.loopback import Loopback, loopback, ticket
from tests.harness.runs import rows
from tests.harness.until import until


class ReportedRun:
    """A run as its sidecar reports it."""

    def __init__(self, site: Loopback, **changes: object) -> None:
        settings = site.settings(shutdown_timeout_seconds=1.0, **changes)
        self._provider = ProviderConnection(settings)
        self.reporter = RunReporter(self._provider, secrets.token_bytes(16), b"", settings, lambda _: None)
        self.reporter.start(ticket("n1"), 1, lambda: [ReportedLevels()])

    async def joined(self) -> None:
        await until(lambda: self.reporter.connected, "the run to join", 30)

    async def end(self, state: EndState) -> None:
        await self.reporter.end(JudgedEnd(state))
        await self._provider.channel.close()

    async def aclose(self) -> None:
        await self.end(EndState.OK)


async def end_states(site: Loopback) -> list[str]:
    """How the runs ended, in the order of the letters; "goes on" for one that has not."""
    return sorted(json.loads(row)["end_state"] or "goes on" for row in await rows(site, "runs"))


def kept(site: Loopback) -> list[Path]:
    """Ends that wait on the tenant's machine."""
    folder = exchange_folder(site.settings())
    assert folder is not None
    return sorted((folder / "ends").glob("*"))


@pytest.mark.parametrize("attempts", [1, 2])
def test_the_next_run_reports_how_an_earlier_one_ended(tmp_path: Path, attempts: int) -> None:
    async def inside() -> None:
        async with loopback(tmp_path) as site:
            earlier = [ReportedRun(site, keep_runs=kept_runs) for kept_runs in (0, 20)]
            await asyncio.gather(*(run.joined() for run in earlier))
        for run, state in zip(earlier, (EndState.PREEMPTED, EndState.FAILED), strict=True):
            await run.end(state)  # the provider is away
        assert len(kept(site)) == 2 and all(path.stat().st_mode & 0o077 == 0 for path in kept(site))
        for number in range(1, attempts + 1):
            async with loopback(tmp_path) as site, aclosing(ReportedRun(site)) as later:
                await later.joined()
                assert await end_states(site) == ["failed", "goes on", *["ok"] * (number - 1), "preempted"]
        assert kept(site) == []

    asyncio.run(inside())


def test_an_end_of_another_tenant_of_the_same_user_waits_for_that_tenant(tmp_path: Path) -> None:
    """A user may have accounts of two tenants of one provider, which knows a run only to the tenant whose it is."""

    async def inside() -> None:
        async with loopback(tmp_path) as site:
            await UnreportedEnds(site.settings()).keep(EndRunRequest(run_id=b"of another", state=1))
            async with aclosing(ReportedRun(site)) as run:
                await run.joined()
            assert [path.stem for path in kept(site)] == [b"of another".hex()]
            assert await end_states(site) == ["ok"]

    asyncio.run(inside())


def test_a_home_that_does_not_answer_delays_neither_reports_nor_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = threading.Event()

    def silent(path: Path) -> bool:
        answers.wait(30)
        return is_own_file(path)

    async def inside() -> None:
        async with loopback(tmp_path) as site:
            folder = exchange_folder(site.settings())
            assert folder is not None
            make_folder(folder / "ends")
            (folder / "ends" / "silent.end").touch()
            monkeypatch.setattr(unreported_ends, "is_own_file", silent)
            try:
                async with aclosing(ReportedRun(site)) as run:
                    await run.joined()
                assert await end_states(site) == ["ok"]
            finally:
                answers.set()

    asyncio.run(inside())


def test_an_end_is_kept_also_while_earlier_ends_are_being_read(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    going = threading.Event()

    def slow(_: UnreportedEnds) -> list[EndRunRequest]:
        going.wait(10)
        return []

    async def inside() -> None:
        ends = UnreportedEnds(settings)
        monkeypatch.setattr(UnreportedEnds, "_read_all", slow)
        reading = asyncio.create_task(ends.all())
        await asyncio.sleep(0)
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)
        keeping = asyncio.create_task(ends.keep(EndRunRequest(run_id=bytes(16), state=1)))
        await asyncio.sleep(0)
        going.set()
        await keeping

    asyncio.run(inside())
    monkeypatch.undo()
    assert [end.run_id for end in all_of(UnreportedEnds(settings))] == [bytes(16)]


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    (tmp_path / "provider.pub").write_text("07" * 32)
    return Settings(state_folder=str(tmp_path / "state"), provider_key_file=str(tmp_path / "provider.pub"))


def all_of(ends: UnreportedEnds) -> list[EndRunRequest]:
    return asyncio.run(ends.all())


def test_ends_are_bounded_in_number_and_in_age(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unreported_ends, "KEPT_ENDS", Bound(most_files=4, most_bytes=1 << 10))
    ends = UnreportedEnds(settings)
    numbers = [bytes([number]) * 16 for number in range(4 + 3)]
    folder = exchange_folder(settings)
    assert folder is not None
    for second, run_id in enumerate(numbers):
        asyncio.run(ends.keep(EndRunRequest(run_id=run_id, state=1)))
        os.utime(folder / "ends" / f"{run_id.hex()}.end", (second, second))
    now = len(numbers) + KEPT_SECONDS
    assert {end.run_id for end in all_of(UnreportedEnds(settings, lambda: now - KEPT_SECONDS))} == {*numbers[3:]}
    (folder / "ends" / "damaged.end").write_bytes(b"\xff")
    assert all_of(UnreportedEnds(settings, lambda: time.time() + now)) == []
    assert list((folder / "ends").iterdir()) == []


def test_an_end_that_can_neither_be_read_nor_deleted_is_left_where_it_is(settings: Settings) -> None:
    folder = exchange_folder(settings)
    assert folder is not None
    (folder / "ends" / "damaged.end").mkdir(parents=True)  # neither a file to read nor one to delete
    assert all_of(UnreportedEnds(settings)) == []
    assert all_of(UnreportedEnds(settings, lambda: time.time() + 2 * KEPT_SECONDS)) == []


def test_a_folder_that_cannot_be_written_costs_only_the_memory(settings: Settings) -> None:
    ends, end = UnreportedEnds(settings), EndRunRequest(run_id=bytes(16), state=1)
    Path(settings.state_folder).write_text("a file")
    asyncio.run(ends.keep(end))
    asyncio.run(ends.forget(end))
    assert all_of(ends) == []


def test_a_run_that_ends_while_it_joins_has_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    join, joining = RunsServicer.JoinRun, asyncio.Event()

    async def slow(self: RunsServicer, request: JoinRunRequest, context: Any) -> Any:
        joining.set()
        await asyncio.sleep(0.2)  # the run ends meanwhile; the order of the two messages is what is tested
        return await join(self, request, context)

    async def inside() -> None:
        async with loopback(tmp_path) as site:
            run = ReportedRun(site)
            await asyncio.wait_for(joining.wait(), 30)
            await run.end(EndState.OK)
            assert await end_states(site) == ["ok"]

    monkeypatch.setattr(RunsServicer, "JoinRun", slow)
    asyncio.run(inside())


def test_a_process_that_can_start_no_thread_goes_on_without_its_files(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The job may have used up its processes (pids.max)."""

    def refuses(_: object) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr("pharoah.sidecar.file_work.begin_in_own_thread", refuses)
    assert all_of(UnreportedEnds(settings)) == []
