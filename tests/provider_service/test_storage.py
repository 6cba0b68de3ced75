"""The contract of the storage, one implementation at a time; the DuckDB storage is the only one today."""

from __future__ import annotations

import asyncio
import math
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import duckdb
import pytest

from pharoah_benchmarks.campaign.cell import Cell, CellResult, Degradation
from pharoah_learning.evidence import BenchmarkResult, LeftOut, OutcomeReport
from pharoah_learning.release import Release
from pharoah_protocol.incident_states import CLEARED, CONFIRMED, SUSPECTED, IncidentState
from pharoah_protocol.vocabulary import Attribution, EndState, Outcome, Purpose
from pharoah_protocol.windows import Window
from pharoah_provider.domain import IncidentKind, Node, Report, Run, Subject, Transition
from pharoah_provider.storage import base
from pharoah_provider.storage.base import Storage
from pharoah_provider.storage.duckdb import DuckStorage
from pharoah_provider.storage.duckdb.database import migrate
from pharoah_provider.storage.duckdb.evidence import FUTURE
from pharoah_provider.storage.duckdb.statements import statements
from tests.harness.listings import listed

STORAGES: dict[str, Callable[[Path], Storage]] = {"duckdb": lambda folder: DuckStorage(folder / "p.duckdb")}
RUN = Run(
    run_id=b"r" * 16,
    tenant="acme",
    node="n1",
    attempt=1,
    ranks=2,
    beside_job=True,
    limit_seconds=1.0,
    job_id=b"j" * 16,
    joined_at=900.0,
)
NODE = Node("n1", b"k" * 32, "boot", ("cpu=x",), ("device=cpu",), (0, 1), "1")
NODE_N1 = Subject.node("n1")
UNKNOWN = float("nan")
WINDOW = Window(at_seconds=1.0, values={"step_ratio": 1.0, "memory_ratio": 1.0})


@pytest.fixture(params=sorted(STORAGES))
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[Callable[[Storage], Awaitable[None]]], None]:
    """Runs work on a storage, and closes it. Again on the same files: a restart."""

    def run(work: Callable[[Storage], Awaitable[None]]) -> None:
        storage = STORAGES[request.param](tmp_path)
        try:
            asyncio.run(work(storage))  # type: ignore[arg-type]
        finally:
            storage.close()

    return run


Opened = Callable[[Callable[[Storage], Awaitable[None]]], None]


def second(number: int, *ratios: float, at: float = 1000.0) -> list[Report]:
    """One second of a run: a report per rank."""
    return [Report(number, rank, at + number, 1.0, ratio, 1.0) for rank, ratio in enumerate(ratios)]


async def report(storage: Storage, *seconds: list[Report], run: Run = RUN, risk: float = UNKNOWN) -> None:
    reports = [row for rows in seconds for row in rows]
    await storage.runs.append_reports(run, reports, [False] * len(reports), [risk] * len(reports))


async def spans(storage: Storage, rank: int = 0) -> list[tuple[float, float, int, float]]:
    rows = [row for row in await listed(storage, "reports") if row["rank"] == rank]
    return [(row["started_at"], row["ended_at"], row["seconds"], row["step_ratio"]) for row in rows]


def test_every_protocol_is_small() -> None:
    protocols = [value for name, value in vars(base).items() if name.endswith("Store")]
    for protocol in protocols:
        assert len([name for name in vars(protocol) if not name.startswith("_")]) <= 12, protocol
    assert len(protocols) >= 6


def test_nodes_come_back_as_they_were_put(opened: Opened) -> None:
    async def work(storage: Storage) -> None:
        await storage.nodes.put_node(NODE)
        await storage.nodes.put_node(replace(NODE, version="2"))
        assert await storage.nodes.nodes() == [replace(NODE, version="2")]
        assert await storage.nodes.node("other") is None

    opened(work)


def test_a_ticket_belongs_to_the_run_that_used_it_first(opened: Opened) -> None:
    async def work(storage: Storage) -> None:
        assert await storage.runs.take_ticket("nonce", b"a") and await storage.runs.take_ticket("nonce", b"a")
        assert not await storage.runs.take_ticket("nonce", b"b")

    opened(work)


def test_the_first_end_state_of_an_attempt_stands(opened: Opened) -> None:
    async def work(storage: Storage) -> None:
        await storage.runs.put_run(RUN)
        assert await storage.runs.active_runs() == [RUN] and await storage.runs.end_state(RUN) is None
        await storage.runs.end_run(RUN, EndState.FAILED, 950.0)
        await storage.runs.end_run(RUN, EndState.OK, 960.0)
        assert await storage.runs.end_state(RUN) is EndState.FAILED and await storage.runs.active_runs() == []

    opened(work)


def test_a_run_keeps_all_its_attempts_and_nodes(opened: Opened) -> None:
    second_attempt = replace(RUN, attempt=2, node="n2", joined_at=950.0)
    third_attempt = replace(RUN, attempt=3, joined_at=990.0)

    async def work(storage: Storage) -> None:
        await storage.runs.put_run(RUN)
        await storage.runs.end_run(RUN, EndState.PREEMPTED, 940.0, Attribution.PLATFORM)
        await storage.runs.put_run(second_attempt)
        await storage.runs.put_run(third_attempt)
        assert await storage.runs.run(RUN.run_id) == third_attempt
        assert await storage.runs.active_runs() == [third_attempt]
        rows = await listed(storage, "runs")
        shown = [(row["attempt"], row["node"], row["end_state"], row["ended_at"], row["attribution"]) for row in rows]
        assert shown == [
            (1, "n1", "preempted", 940.0, "platform"),
            (2, "n2", "lost", 990.0, None),
            (3, "n1", None, None, None),
        ]
        assert {row["job"] for row in rows} == {RUN.job_id.hex()[:8]}

    opened(work)


def test_an_incident_is_what_it_has_become_and_its_history_is_kept(opened: Opened) -> None:
    suspected = Transition(
        incident_id="al-1",
        subject=Subject.node("n1"),
        kind=IncidentKind.SLOW,
        state=SUSPECTED,
        raised_by=RUN.run_id,
        what="step time 1.50x baseline",
        evidence="",
        since=1000.0,
        changed_at=1002.0,
        step_ratio=1.5,
    )
    confirmed = replace(suspected, state=CONFIRMED, evidence="memory 2.00x", changed_at=1010.0)
    elsewhere = replace(suspected, incident_id="al-2", subject=Subject.node("n2"), since=1001.0)

    async def work(storage: Storage) -> None:
        for change in (suspected, confirmed, elsewhere):
            await storage.incidents.put_transition(change)

    async def after_a_restart(storage: Storage) -> None:
        assert await storage.incidents.open_incidents() == [confirmed, elsewhere]
        assert await storage.incidents.changes(Subject.node("n1"), 0.0) == [suspected, confirmed]
        assert await storage.incidents.changes(Subject.node("n1"), 1005.0) == [confirmed]
        assert await storage.incidents.all_changes(1005.0) == [confirmed]
        assert await storage.incidents.histories(1021.0) == [suspected, elsewhere, confirmed], "both are open"
        await storage.incidents.put_transition(replace(confirmed, state=CLEARED, changed_at=1020.0))
        assert await storage.incidents.open_incidents() == [elsewhere]
        assert await storage.incidents.histories(1021.0) == [elsewhere]
        assert len(await storage.incidents.histories(1020.0)) == 4, "what has changed since then, from its beginning on"
        states = [(row["node"], row["state"], row["fault_domain"]) for row in await listed(storage, "alerts")]
        assert states == [("n1", "cleared", "node"), ("n2", "suspected", "unknown")]

    opened(work)
    opened(after_a_restart)


def test_an_incident_in_a_state_whose_plugin_is_gone_stays_open(opened: Opened) -> None:
    gone = IncidentState("chronic", code=64, help="It is gone.", is_open=True, is_reported=True)
    change = Transition(
        incident_id="al-1",
        subject=NODE_N1,
        kind=IncidentKind.SLOW,
        state=gone,
        raised_by=RUN.run_id,
        what="step time 1.50x baseline",
        evidence="",
        since=1000.0,
        changed_at=1002.0,
        step_ratio=1.5,
    )

    async def work(storage: Storage) -> None:
        await storage.incidents.put_transition(change)
        (found,) = await storage.incidents.open_incidents()
        assert found.state == "chronic" and found.state.is_open and found.state.is_reported

    opened(work)


def test_alerts_of_an_older_release_become_incidents_and_runs_become_attempts(tmp_path: Path) -> None:
    connection = duckdb.connect(str(tmp_path / "p.duckdb"))
    migrate(connection, before=5)
    connection.execute("INSERT INTO runs VALUES (?,'acme','n1',2,1,TRUE,1.0,900.0,950.0,'ok')", [RUN.run_id])
    connection.execute(
        "INSERT INTO alerts VALUES ('al-1',?,'n1','confirmed','node','step time','gemm 2.00x',1.0,2.0,1.5)",
        [RUN.run_id],
    )
    connection.close()
    storage = DuckStorage(tmp_path / "p.duckdb")

    async def work() -> None:
        (incident,) = await storage.incidents.open_incidents()
        assert (incident.incident_id, incident.subject, incident.raised_by) == ("al-1", NODE_N1, RUN.run_id)
        run = await storage.runs.run(RUN.run_id)
        assert run is not None and (run.attempt, run.job_id) == (2, b"")
        assert await storage.runs.end_state(run) is EndState.OK

    asyncio.run(work())
    storage.close()


def test_equal_reports_are_one_span_also_across_batches_and_a_restart(opened: Opened) -> None:
    async def begin(storage: Storage) -> None:
        await storage.runs.put_run(RUN)
        assert await storage.runs.last_row_number(RUN.run_id, 1) == -1
        await report(storage, second(0, 1.0, 1.0), second(1, 1.0, 1.0))
        await report(storage, second(2, 1.0, 1.5))

    async def go_on(storage: Storage) -> None:
        assert await storage.runs.last_row_number(RUN.run_id, 1) == 2
        await report(storage, second(3, 1.0, 1.5), second(4, 1.0, 1.0))
        assert await spans(storage) == [(999.0, 1004.0, 5, 1.0)]
        assert [row[2:] for row in await spans(storage, rank=1)] == [(2, 1.0), (2, 1.5), (1, 1.0)]

    opened(begin)
    opened(go_on)


def test_a_gap_another_risk_a_clock_that_was_set_and_another_attempt_begin_a_new_span(opened: Opened) -> None:
    async def work(storage: Storage) -> None:
        await storage.runs.put_run(RUN)
        await report(storage, second(0, 1.0))
        await report(storage, second(2, 1.0))
        await report(storage, second(3, 1.0), risk=0.5)
        await report(storage, second(4, 1.0, at=5000.0), risk=0.5)
        assert [row[2] for row in await spans(storage)] == [1, 1, 1, 1]
        again = replace(RUN, attempt=2)
        await storage.runs.put_run(again)
        assert await storage.runs.last_row_number(RUN.run_id, 2) == -1
        await report(storage, second(0, 1.0), run=again)
        await storage.runs.end_run(again, EndState.OK, 9000.0)
        assert sum(row[2] for row in await spans(storage)) == 5, "closing spans loses none and doubles none"
        assert await storage.runs.last_row_number(RUN.run_id, 1) == 4

    opened(work)


def test_runs_that_report_at_the_same_time_keep_their_own_spans(opened: Opened) -> None:
    runs = [replace(RUN, run_id=bytes([number]) * 16) for number in range(20)]

    async def work(storage: Storage) -> None:
        for at in range(5):
            await asyncio.gather(*(report(storage, second(at, 1.0, 2.0), run=run) for run in runs))
        rows = await listed(storage, "reports")
        assert len(rows) == 2 * len(runs) and {row["seconds"] for row in rows} == {5}

    opened(work)


def test_a_span_of_several_days_counts_with_its_seconds_of_today_alone(opened: Opened) -> None:
    """Both the spans of a run that goes on and those of one that has ended. Second 99 has ended at 1099."""
    ended = replace(RUN, run_id=b"e" * 16)

    async def work(storage: Storage) -> None:
        for run in (RUN, ended):
            await storage.runs.put_run(run)
            await report(storage, *(second(number, 1.0, 1.0) for number in range(100)), run=run)
        await storage.runs.end_run(ended, EndState.OK, 1100.0)
        for since, seconds in ((0.0, 100), (1090.0, 9), (1098.5, 1)):
            (amount,) = await storage.runs.list_reported_since(since)
            assert (amount.tenant, amount.rank_seconds, amount.rows) == ("acme", 4 * seconds, 4), "two runs, two ranks"
        assert await storage.runs.list_reported_since(1099.5) == []

    opened(work)


def test_reports_that_were_acknowledged_are_there_after_kill_9(tmp_path: Path) -> None:
    """The reports change nothing, so each is only an update of the run's open span."""
    script = """
import asyncio, os, sys
from pathlib import Path
from pharoah_provider.storage.duckdb import DuckStorage
from tests.harness.listings import listed
from tests.provider_service.test_storage import report, second
storage = DuckStorage(Path(sys.argv[1]))
async def work():
    for number in range(50):
        await report(storage, second(number, 1.0))
        print(number, flush=True)
        if number == 30:
            os.kill(os.getpid(), 9)
asyncio.run(work())
"""
    path = tmp_path / "p.duckdb"
    done = subprocess.run([sys.executable, "-c", script, str(path)], capture_output=True)
    assert done.returncode == -9 and len(done.stdout.split()) == 31, done.stderr
    storage = DuckStorage(path)
    assert [row["seconds"] for row in asyncio.run(listed(storage, "reports"))] == [31]
    storage.close()


def test_old_reports_become_spans(tmp_path: Path) -> None:
    """A database from before spans: five equal seconds, one other, two equal ones."""
    connection = duckdb.connect(str(tmp_path / "p.duckdb"))
    migrate(connection, before=7)
    for number, ratio in enumerate([1.0] * 5 + [2.0] + [1.0] * 2):
        values = [b"r" * 16, 1, number, 0, 1000.0 + number, 1.0, ratio, 1.0, False, math.nan]
        connection.execute("INSERT INTO reports VALUES (?,?,?,?,?,?,?,?,?,?)", values)
    connection.close()
    storage = DuckStorage(tmp_path / "p.duckdb")
    assert [row[2:] for row in asyncio.run(spans(storage))] == [(5, 1.0), (1, 2.0), (2, 1.0)]
    storage.close()


def test_probes_of_an_older_release_have_no_answer_and_new_ones_keep_theirs(tmp_path: Path) -> None:
    connection = duckdb.connect(str(tmp_path / "p.duckdb"))
    migrate(connection, before=44)
    connection.execute("INSERT INTO probes VALUES ('o', 'n1', 'gemm', 'baseline', FALSE, 1.0, 2.0, [0.5], '')")
    connection.close()
    storage = DuckStorage(tmp_path / "p.duckdb")
    old = BenchmarkResult("o", "n1", "gemm", False, 1.0, 2.0, (0.5,))
    right = replace(old, started_at=3.0, correct=True, digest="ab" * 32)
    wrong = replace(old, started_at=4.0, seconds=(), correct=False, digest="cd" * 32)

    async def work() -> None:
        await storage.evidence.append_probes([old], Purpose.LEVEL)  # a batch without any answer
        await storage.evidence.append_probes([right, wrong], Purpose.BASELINE)
        assert await storage.evidence.baseline_probes() == [old, right, wrong]

    asyncio.run(work())
    storage.close()


def test_cells_and_probes_that_measured_nothing_are_kept(opened: Opened) -> None:
    cell = Cell("c/1", "gpt", {"batch_size": 1}, seconds=1.0)
    probe = BenchmarkResult("o", "n1", "gemm", False, 1.0, 2.0, (), "no device")

    async def work(storage: Storage) -> None:
        failed = CellResult(cell=cell.id, outcome=Outcome.ERROR, detail="why", fingerprint="{}")
        await storage.evidence.append_cell("c", NODE, cell, failed)
        degraded = replace(cell, degradation=Degradation())
        for outcome in (Outcome.MEMORY, Outcome.OK):
            result = CellResult(cell=cell.id, outcome=outcome, windows=[WINDOW])
            await storage.evidence.append_cell("c", NODE, degraded, result)
        await storage.evidence.append_probes([probe], Purpose.BASELINE)
        await storage.evidence.append_probes([replace(probe, seconds=(0.5,), error="")], Purpose.BASELINE)
        (trial,) = await storage.evidence.trials()
        assert trial.outcome == "error" and trial.step_seconds == ()
        assert [run.died for run in await storage.evidence.list_degraded_runs()] == [True, False]
        assert [probe.seconds for probe in await storage.evidence.baseline_probes()] == [(0.5,)]
        assert len(await listed(storage, "probes")) == 2

    opened(work)


def test_trials_that_are_dated_later_are_left_out_and_counted(opened: Opened) -> None:
    cell, now, left_out = Cell("c/1", "gpt", {"batch_size": 1}), time.time(), LeftOut()

    async def work(storage: Storage) -> None:
        for _ in range(2):
            result = CellResult(cell=cell.id, outcome=Outcome.OK, fingerprint="{}")
            await storage.evidence.append_cell("c", NODE, cell, result)
        assert not await storage.evidence.trials(now - 60.0, left_out), "the clock was an hour ahead then"
        assert left_out.lines() == [f"left out: 2 trials of {NODE.node}: {FUTURE}"]
        assert len(await storage.evidence.trials(now + 60.0, none_left := LeftOut())) == 2 and not none_left.counts

    opened(work)


def test_the_first_outcome_report_about_a_run_stands(opened: Opened) -> None:
    first = OutcomeReport(b"r", 7, "ab", "acme", "ctx", True)

    async def work(storage: Storage) -> None:
        await storage.evidence.put_outcome_report(first)
        await storage.evidence.put_outcome_report(replace(first, failed=False))
        assert await storage.evidence.outcome_reports(7) == [first] and await storage.evidence.outcome_reports(8) == []

    opened(work)


def test_a_release_that_was_rolled_back_is_passed_over(opened: Opened) -> None:
    async def work(storage: Storage) -> None:
        published = storage.published
        assert await published.newest_release() is None and await published.last_release_number() == 0
        for number in (1, 2, 3):
            await published.put_release(Release(number), made_at=float(number))
        await published.roll_back_release(2)
        before = await published.release_before(3)
        assert before is not None and before.release == 1 and await published.release_made_at(3) == 3.0
        await published.roll_back_release(3)
        newest = await published.newest_release()
        assert newest is not None and newest.release == 1 and await published.last_release_number() == 3

    opened(work)


def test_the_log_keeps_its_order_and_revoked_rows_their_ids(opened: Opened) -> None:
    async def work(storage: Storage) -> None:
        log = storage.log
        await log.put_log_entries(0, [b"a", b"b"])
        await log.put_revoked(1, 1, {"x": b"1" * 32, "y": b"2" * 32}, 2, b"c")
        assert await log.log_entries() == [b"a", b"b", b"c"]
        assert sorted(await log.list_revoked_ids()) == ["x", "y"] and len(await log.list_revoked(1)) == 2
        await log.reinstate(["x"])
        assert await log.list_revoked_ids() == ["y"] and len(await log.list_revoked(1)) == 2, "this epoch's list stays"
        await log.keep_revoked(1, {"x": b"1" * 32})
        assert sorted(await log.list_revoked_ids()) == ["x", "y"]
        assert await log.checkpoint() == b""
        await log.put_checkpoint(b"one")
        await log.put_checkpoint(b"two")
        assert await log.checkpoint() == b"two"

    opened(work)


STATEMENTS = ["nodes", "telemetry", "runs", "reports", "retention", "incidents", "evidence", "published", "log"]


@pytest.mark.parametrize("store", STATEMENTS)
def test_every_statement_is_valid_sql_for_the_schema(tmp_path: Path, store: str) -> None:
    connection = duckdb.connect(str(tmp_path / "p.duckdb"))
    migrate(connection)
    # What `executing_with` passes to a statement; a span has all columns that any of them reads.
    open_spans = "open_telemetry_spans" if store == "telemetry" else "open_report_spans"
    connection.execute(f"CREATE TEMP TABLE batch AS SELECT * FROM {open_spans}")
    for name, sql in statements(store).items():
        (statement,) = connection.extract_statements(sql)
        assert statement.query, name
        connection.execute(f"PREPARE s AS {sql}")
        connection.execute("DEALLOCATE s")
