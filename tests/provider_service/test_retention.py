"""Old rows are deleted by the clock; what the provider answers for is never deleted."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from pathlib import Path

import pytest

from pharoah_learning.evidence import BenchmarkResult, OutcomeReport
from pharoah_learning.fleet_comparison import PAST_RUNS
from pharoah_learning.release import Release
from pharoah_protocol.vocabulary import EndState
from pharoah_provider import cli
from pharoah_provider.domain import Report, Run
from pharoah_provider.storage.duckdb import DuckStorage
from pharoah_provider.storage.retention import (
    DAY_SECONDS,
    MAX_CLOCK_JUMP_SECONDS,
    RETENTION,
    RetentionTask,
    markdown_table,
    retention,
)
from pharoah_serving.errors import Invalid
from tests.harness.listings import listed
from tests.harness.tokens import write_list

NOW = 1_800_000_000.0
PROBE = BenchmarkResult("o", "n1", "gemm", False, 0.0, 0.0, (1.0,))


class Clock:
    """A wall clock that can be set, and one that counts since boot."""

    def __init__(self) -> None:
        self.wall, self.since_boot = NOW, 0.0

    def forward(self, seconds: float) -> None:
        self.wall += seconds
        self.since_boot += seconds


def task(storage: DuckStorage, clock: Clock, **days: float) -> RetentionTask:
    return RetentionTask(storage, retention(days), lambda: clock.wall, lambda: clock.since_boot)


async def fill(storage: DuckStorage, at: float) -> None:
    """Rows of every table from about this time on, one a day for 400 days back."""
    days = [at - day * DAY_SECONDS for day in range(400)]
    await storage.nodes.append_telemetry("n1", days, ["m"] * 400, [""] * 400, [1.0] * 400)
    for purpose in ("baseline", "level"):
        await storage.evidence.append_probes([replace(PROBE, ended_at=then) for then in days], purpose)

    async def report(day: int, then: float) -> None:
        run = Run(day.to_bytes(16, "big"), "acme", "n1", 1, 1, False, 0.0)
        await storage.runs.append_reports(run, [Report(0, 0, then, 1.0, 1.0, 1.0)], [False], [float("nan")])

    await asyncio.gather(*(report(day, then) for day, then in enumerate(days)))  # few commits, not one for each
    await storage.published.put_release(Release(1), made_at=0.0)
    await storage.log.put_log_entries(0, [b"entry"])


def test_no_row_is_kept_past_its_retention_and_no_younger_one_is_deleted(tmp_path: Path) -> None:
    clock, storage = Clock(), DuckStorage(tmp_path / "p.duckdb")

    async def work() -> None:
        await fill(storage, NOW - 1.0)
        deleted = await task(storage, clock).run()
        rest = {"telemetry": 30, "reports": 30, "probes": 30}
        assert {table: 400 - deleted[table] for table in rest} == rest
        assert {row["purpose"] for row in await listed(storage, "probes")} == {"baseline", "level"}
        assert len(await listed(storage, "probes")) == 400 + 30, "baselines are kept for ever"
        again = await task(storage, clock).run()
        assert sum(again.values()) == 0, "rows past their retention"
        assert await storage.published.newest_release() is not None and await storage.log.log_entries() == [b"entry"]

    asyncio.run(work())
    storage.close()


def test_the_newest_checks_of_a_node_are_kept_so_that_it_can_be_compared_after_months(tmp_path: Path) -> None:
    clock, storage = Clock(), DuckStorage(tmp_path / "p.duckdb")

    async def work() -> None:
        days = [NOW - day * DAY_SECONDS for day in range(60, 100)]
        await storage.evidence.append_probes([replace(PROBE, ended_at=then) for then in days], "check")
        await storage.evidence.append_probes([replace(PROBE, ended_at=days[0], error="no space")], "check")
        deleted = await task(storage, clock).run()
        assert deleted["probes"] == 40 + 1 - (PAST_RUNS + 1)
        kept = await storage.idle_checks.results("gemm", ["n1"], 1 + PAST_RUNS)
        assert [one.ended_at for one in kept] == days[PAST_RUNS::-1]
        assert sum((await task(storage, clock).run()).values()) == 0

    asyncio.run(work())
    storage.close()


def test_tickets_runs_and_outcomes_of_this_moment_age_with_the_clock(tmp_path: Path) -> None:
    """The storage stamps these rows with the time of the machine."""
    storage = DuckStorage(tmp_path / "p.duckdb")

    async def work() -> None:
        run = Run(b"r" * 16, "acme", "n1", 1, 1, False, 0.0)
        await storage.runs.put_run(run)
        await storage.runs.take_ticket("nonce", run.run_id)
        await storage.evidence.put_outcome_report(OutcomeReport(run.run_id, 1, "ab", "acme", "ctx", True))
        await storage.sharing.put_revealed(run, "ctx", "{}")
        for table in ("tickets", "outcomes", "revealed", "runs"):
            assert await storage.delete_before(table, 1_000.0) == 0
        assert await storage.delete_before("runs", 4e9) == 0, "a run that goes on is not deleted"
        await storage.runs.end_run(run, EndState.OK, 2_000.0)
        for table in ("tickets", "outcomes", "revealed", "runs"):
            assert await storage.delete_before(table, 4e9) == 1

    asyncio.run(work())
    storage.close()


def test_every_table_with_a_retention_can_be_deleted_from(tmp_path: Path) -> None:
    storage = DuckStorage(tmp_path / "p.duckdb")
    assert asyncio.run(task(storage, Clock()).run()) == dict.fromkeys(RETENTION, 0)
    storage.close()


def test_old_rows_are_deleted_once_a_day(tmp_path: Path) -> None:
    clock, storage = Clock(), DuckStorage(tmp_path / "p.duckdb")
    old = task(storage, clock, telemetry=1)

    async def left() -> int:
        await old.run_if_due()
        return len(await listed(storage, "telemetry"))

    async def work() -> None:
        await storage.nodes.append_telemetry("n1", [NOW - DAY_SECONDS + 60], ["m"], [""], [1.0])
        assert await left() == 1
        clock.forward(DAY_SECONDS - 60)
        assert await left() == 1, "not yet due"
        clock.forward(60)
        assert await left() == 0

    asyncio.run(work())
    storage.close()


def test_small_steps_of_several_days_are_no_jump(tmp_path: Path) -> None:
    clock, storage = Clock(), DuckStorage(tmp_path / "p.duckdb")
    old = task(storage, clock, telemetry=1)

    async def work() -> None:
        for _ in range(5):
            await storage.nodes.append_telemetry("n1", [clock.wall], ["m"], [""], [1.0])
            clock.forward(DAY_SECONDS + 60)
            clock.wall += 0.6 * MAX_CLOCK_JUMP_SECONDS
            await old.run_if_due()
            assert await listed(storage, "telemetry") == []

    asyncio.run(work())
    storage.close()


def test_a_clock_that_jumped_deletes_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    clock, storage = Clock(), DuckStorage(tmp_path / "p.duckdb")
    old = task(storage, clock)

    async def work() -> None:
        await storage.nodes.append_telemetry("n1", [NOW], ["m"], [""], [1.0])
        clock.wall += 1000 * DAY_SECONDS
        await old.run_if_due()
        assert len(await listed(storage, "telemetry")) == 1

    with caplog.at_level(logging.ERROR):
        asyncio.run(work())
    assert "clock has jumped" in caplog.text
    storage.close()


@pytest.mark.parametrize(
    ("setting", "expected"),
    [("log=1", "log is not one of telemetry"), ("tickets=0.5", "at least 1"), ("telemetry=soon", "not a number")],
)
def test_a_retention_that_makes_no_sense_is_refused(
    setting: str, expected: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_list(tmp_path / "tokens", ["operator ops oooooooooooooooooooooooooooooooo"])
    arguments = [
        "serve",
        "--listen",
        f"unix:{tmp_path}/p.sock",
        "--http",
        "127.0.0.1:0",
        "--tokens",
        str(tmp_path / "tokens"),
    ]
    try:
        code = cli.main(
            [*arguments, "--db", str(tmp_path / "p"), "--keys", str(tmp_path / "k"), "--retention", setting]
        )
    except SystemExit as error:
        code = int(error.code or 0)
    assert code in (1, 2) and expected in capsys.readouterr().err
    assert not (tmp_path / "p").exists()


def test_docs_hold_the_retention_of_every_table() -> None:
    text = (Path(__file__).parents[2] / "docs" / "provider" / "operation.md").read_text()
    assert markdown_table() in text, f"docs/provider/operation.md must contain\n{markdown_table()}"


def test_a_retention_of_no_table_is_an_error() -> None:
    with pytest.raises(Invalid, match="releases is not one of"):
        retention({"releases": 1.0})
