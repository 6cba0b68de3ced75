"""What becomes of the report of a dry run that is not read to its end: the first step counts, and the reason is named.

Children are real processes that write a report which was made here.
"""

from __future__ import annotations

import os
import subprocess
from array import array
from collections.abc import Mapping
from pathlib import Path
from typing import BinaryIO

import pytest

from pharoah._errors import UnknownReason
from pharoah.cost.findings import memory_finding
from pharoah.cost.memory_fit import MemoryBudget, fit
from pharoah.cost.step import Memory, StepCost
from pharoah.dryrun import dry_run, report_reader
from pharoah.dryrun.report_reader import read_report
from pharoah.dryrun.reports import ENDED, Decision, Report, ReportKind, ReportLine
from pharoah.dryrun.result import DryRun
from pharoah.dryrun.ways import LATER_STEPS, together
from pharoah.launchers import Launch
from pharoah_archetypes import Fingerprint, parse
from pharoah_system.had_time import LimitClock
from tests.tenant_sdk.conftest import STEP, TRAIN, DryRunner

GRAMMAR = "fwd: gemm act gemm"


def result(events: int = 1) -> str:
    """A result, as a child writes it, with as many allocations of various sizes."""
    skeleton = parse(GRAMMAR)
    parts = {"parameters": 80, "activations": 40}
    fingerprint = Fingerprint(skeleton.archetype, skeleton.compute, GRAMMAR, {}, parts, {"torch": "2.13.0"})
    sizes = array("q", [512 * (1 + (number * 7919) % 10_007) for number in range(events)])
    return DryRun(fingerprint, StepCost((), (), Memory(sizes, "a" * events)), {}).to_json()


def line(kind: ReportKind, content: str = "", decisions: tuple[Decision, ...] = ()) -> str:
    return ReportLine(kind, content, decisions).to_json() + "\n"


FIRST_STEP = line(ReportKind.PROVISIONAL, result())


def child(folder: Path, report: str, seconds: float, *, then: str) -> DryRun:
    """The dry run of a child that writes a report and then runs a command of a shell."""
    (folder / "report").write_text(report)

    def start(_: Launch, __: Mapping[str, str], results: int, ___: BinaryIO, ____: float) -> subprocess.Popen[bytes]:
        command = ["sh", "-c", f"cat '{folder}/report' > /dev/fd/{results}; {then}"]
        return subprocess.Popen(command, pass_fds=(results,), start_new_session=True)

    return dry_run(["python", "train.py"], seconds, start=start)


def test_a_first_step_whose_next_one_takes_too_long_says_so(tmp_path: Path) -> None:
    found = child(tmp_path, FIRST_STEP, 2.0, then="exec sleep 600")
    assert found.assumptions == ("only the first step was seen: the dry run took longer than 2 s",)


def test_a_first_step_whose_child_was_killed_says_so(tmp_path: Path) -> None:
    found = child(tmp_path, FIRST_STEP, 60.0, then="kill -KILL $$")
    assert found.assumptions == ("only the first step was seen: the dry run died (SIGKILL)",)


def test_a_first_step_whose_next_one_has_too_large_a_report_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(report_reader, "MAX_REPORT_BYTES", 1 << 20)
    second = line(ReportKind.FINAL, "x" * (1 << 21))
    found = child(tmp_path, FIRST_STEP + second, 60.0, then="exec sleep 600")
    assert found.assumptions == ("only the first step was seen: the report of the dry run is larger than 1 MiB",)


def test_a_report_that_is_too_large_has_that_reason_and_not_the_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(report_reader, "MAX_REPORT_BYTES", 1 << 20)
    with pytest.raises(UnknownReason, match=r"^the report of the dry run is larger than 1 MiB$"):
        child(tmp_path, line(ReportKind.PROVISIONAL, "x" * (1 << 21)), 60.0, then="exec sleep 600")


def test_a_million_events_of_memory_are_no_large_report(tmp_path: Path) -> None:
    large = result(events=1_500_000)
    report = line(ReportKind.PROVISIONAL, large) + line(ReportKind.FINAL, large)
    assert len(report) > 1 << 22
    found = child(tmp_path, report, 60.0, then="true")
    assert found.assumptions == () and len(found.cost.memory.events) == 1_500_000


def test_results_that_were_replaced_do_not_make_a_report_large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report_reader, "MAX_REPORT_BYTES", 3 * len(FIRST_STEP))
    found = child(tmp_path, FIRST_STEP * 20 + line(ReportKind.FINAL, result()), 60.0, then="exec sleep 600")
    assert found.assumptions == ()


def test_the_results_of_other_ways_are_kept() -> None:
    other = (Decision("train.py:7", "if loss > 1:", True),)
    read_end, write_end = os.pipe()
    with os.fdopen(read_end, "rb") as results:
        report = FIRST_STEP + line(ReportKind.BRANCH, decisions=other) + line(ReportKind.PROVISIONAL, result(), other)
        os.write(write_end, (report + FIRST_STEP).encode())
        os.close(write_end)
        read = read_report(results.fileno(), LimitClock(60.0, os.getpid()), "over")
    assert [(each.kind.value, each.decisions) for each in read.lines] == [
        ("branch", other),
        ("provisional", other),
        ("provisional", ()),
    ]


def test_lines_that_no_child_writes_are_the_reason(tmp_path: Path) -> None:
    for written in ("hello\n", "[1, 2]\n", '["final", 3, []]\n', "[" * 100_000 + "\n", '["final", "x", []]\n'):
        with pytest.raises(UnknownReason, match="the script wrote into the file"):
            child(tmp_path, written, 60.0, then="exec sleep 600")


def test_memory_of_a_first_step_alone_is_a_lower_bound() -> None:
    room = MemoryBudget("test", 1 << 40)
    first = ReportLine.from_json(FIRST_STEP)
    cut = together([first], "the dry run took longer than 30 s")
    assert cut is not None and cut.cost.uncounted == (LATER_STEPS,)
    finding = memory_finding(fit(cut.cost, room), uncounted=cut.cost.uncounted)
    assert finding.evidence.endswith(f"; not counted: {LATER_STEPS}")
    for ended in (together([first]), together([first, ReportLine(ReportKind.REASON, ENDED, ())], "never read")):
        assert ended is not None and ended.cost.uncounted == ended.assumptions == ()


def test_a_script_that_dies_after_its_first_step_is_named(dry_run_script: DryRunner) -> None:
    """As one that the kernel kills because the machine has no memory left."""
    found = dry_run_script(TRAIN + STEP + "import os, signal; os.kill(os.getpid(), signal.SIGKILL)\n")
    assert found.assumptions == ("only the first step was seen: the dry run died (SIGKILL)",)
    assert found.cost.uncounted[0] == LATER_STEPS


def test_a_report_reaches_its_reader_line_by_line() -> None:
    read_end, write_end = os.pipe()
    with os.fdopen(read_end, "rb") as results:
        Report(write_end).reason("first")
        Report(write_end).reason("second")
        os.write(write_end, b'["reason", "without an end", []]')
        os.close(write_end)
        read = read_report(results.fileno(), LimitClock(60.0, os.getpid()), "over")
    assert [each.content for each in read.lines] == ["first", "second", "without an end"] and read.unread == ""
