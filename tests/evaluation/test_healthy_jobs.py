"""Healthy jobs count as watched when they went on to their end, and for as long as they really trained."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from evaluation.figures import Figures
from evaluation.loop.healthy_jobs import MIN_HOURS, _figures, _quotas, require_watched
from evaluation.loop.step_times import Step, steps_of, watched_seconds
from evaluation.loop.watched_faults import CONTROL_GROUPS
from evaluation.loop.watched_jobs import result_of

OUTPUT = 'pharoah  VERDICT  UNKNOWN\n{"outcome": "ok", "steps": 9, "step_seconds": 0.1}\n12:00:00 pharoah CLEARED\n'


def steps(seconds: float, every: float = 10.0) -> list[Step]:
    return [Step(1_700_000_000.0 + every * (number + 1), every) for number in range(int(seconds / every))]


def test_a_job_that_went_on_to_its_end_counts() -> None:
    assert result_of(OUTPUT)["steps"] == 9 and result_of("no result\n") == {}
    require_watched("n1-a", 0, OUTPUT)


@pytest.mark.parametrize(
    ("code", "output", "message"),
    [
        (-9, OUTPUT, "n1-a ended with -9, its outcome is ok"),
        (0, OUTPUT.replace('"ok"', '"error"'), "ended with 0, its outcome is error"),
        (0, "pharoah  VERDICT  UNKNOWN\n", "ended with 0, its outcome is none"),
        (0, OUTPUT.partition("\n")[2], "does not print what it hears"),
    ],
)
def test_a_job_that_ended_early_is_refused(code: int, output: str, message: str) -> None:
    with pytest.raises(SystemExit, match=message):
        require_watched("n1-a", code, output)


def test_the_hours_are_those_of_the_steps() -> None:
    figures = Figures("loop healthy")
    _figures(figures, 0, {"n1-a": steps(1800.0), "n1-b": steps(900.0), "n2-a": [], "n2-b": steps(900.0)}, quick=False)
    assert figures.values["healthy_job_hours"] == pytest.approx(1.0)
    assert figures.write(None) == 1, f"an hour is less than {MIN_HOURS:g}"
    assert "0 in 1.00" in next(row.interval for row in figures.rows if row.key == "false_alerts_per_job_hour")


def test_five_hours_of_steps_are_enough() -> None:
    figures = Figures("loop healthy")
    _figures(figures, 0, {name: steps(4520.0) for name in ("n1-a", "n1-b", "n2-a", "n2-b")}, quick=False)
    assert figures.write(None) == 0


def test_the_file_of_durations_says_how_long_a_job_was_watched(tmp_path: Path) -> None:
    path = tmp_path / "durations"
    assert steps_of(path) == [] and watched_seconds([]) == 0.0
    path.write_text("1000.5 0.5 usual\n1002.0 0.25 longer\n")
    assert steps_of(path) == [Step(1000.5, 0.5), Step(1002.0, 0.25)]
    assert watched_seconds(steps_of(path)) == 2.0


@pytest.fixture
def controller() -> Iterator[Path]:
    """A control group of this process' own, in which others may be made."""
    parent = CONTROL_GROUPS / "cpu" / f"pharoah-test-{os.getpid()}"
    try:
        parent.mkdir()
    except OSError:
        pytest.skip("needs root and control groups of version 1")
    yield parent
    for left in parent.glob("pharoah-*"):
        left.rmdir()
    parent.rmdir()


def test_quotas_use_groups_again_and_leave_none(controller: Path) -> None:
    (controller / "pharoah-n2-a").mkdir()
    with pytest.raises(KeyboardInterrupt), _quotas(controller) as groups:
        assert {group.name for group in groups.values()} == {path.name for path in controller.glob("pharoah-*")}
        assert [(group / "cpu.cfs_quota_us").read_text() for group in groups.values()] == ["45000\n"] * 4
        raise KeyboardInterrupt
    assert not list(controller.glob("pharoah-*"))


def test_quotas_that_cannot_be_set_leave_no_group(controller: Path) -> None:
    """The group above has less than these may have, which the kernel refuses."""
    (controller / "cpu.cfs_quota_us").write_text("30000")
    with pytest.raises(OSError), _quotas(controller):
        pytest.fail("the kernel accepts more than there is")
    assert not list(controller.glob("pharoah-*"))
