"""What stands of the ends that ranks and launchers report."""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from pharoah.end_causes import GROUP, end_causes
from pharoah.sidecar import job_end
from pharoah.sidecar.job_end import JobEnd
from pharoah_protocol.rank_messages import End
from pharoah_protocol.vocabulary import Attribution, EndState
from tests.harness.plugins import write_plugin

STATED = End(EndState.PREEMPTED, stated=True)
ECC = End(EndState.FAILED, error="RuntimeError: CUDA error: uncorrectable ECC error encountered")
ASKED_TO_END = End(EndState.FAILED, last=True, status=1, asked_at=1_700_000_000.0)
"""What the launcher of a job reports that was asked to end."""


@pytest.mark.parametrize(
    ("reported", "expected"),
    [
        ([End(EndState.OK)], EndState.OK),
        ([STATED, End(EndState.OK)], EndState.PREEMPTED),
        ([STATED, End(EndState.FAILED, status=143)], EndState.PREEMPTED),
        ([End(EndState.OK), STATED], EndState.PREEMPTED),
        ([STATED, End(EndState.CANCELLED, stated=True)], EndState.CANCELLED),
    ],
)
def test_what_a_script_states_stands_over_how_its_processes_end(reported: list[End], expected: EndState) -> None:
    end = JobEnd({})
    for message in reported:
        end.take_report(message)
    assert asyncio.run(end.judge()).state is expected


def test_a_launcher_that_was_asked_to_end_was_cancelled_though_it_leaves_with_1() -> None:
    for asked_at, state in ((1_700_000_000.0, EndState.CANCELLED), (None, EndState.FAILED)):
        end = JobEnd({})
        end.take_report(End(EndState.FAILED, error="KeyboardInterrupt: "))
        end.take_report(End(EndState.FAILED, last=True, status=1, asked_at=asked_at))
        assert asyncio.run(end.judge()).state is state


def test_the_first_time_at_which_a_job_is_asked_to_end_counts() -> None:
    """It decides whether the job had reached the end of its time. The sidecar, which is asked later, is asked now."""
    limit = {"SLURM_JOB_ID": "4711", "SLURM_JOB_END_TIME": "1700000000"}
    end = JobEnd(limit)
    end.terminate()
    end.take_report(End(EndState.FAILED, last=True, status=1, asked_at=1_700_000_001.0))
    end.terminate()
    assert asyncio.run(end.judge()).state is EndState.TIME_LIMIT


def test_the_error_of_a_process_that_never_trained_counts_last() -> None:
    """A rank may start a script for an evaluation, and go on when that fails."""
    early = End(EndState.FAILED, error="RuntimeError: CUDA error: uncorrectable ECC error encountered", early=True)
    last = End(EndState.FAILED, last=True, status=1)
    alone, before_steps, beside = JobEnd({}), JobEnd({}), JobEnd({})
    for end in (alone, before_steps, beside):
        end.take_report(early)
    before_steps.note_step(os.getpid())
    beside.take_report(End(EndState.FAILED, error="KeyError: 'x'"))
    for end in (alone, before_steps, beside):
        end.take_report(last)
    found = [asyncio.run(end.judge()).attribution for end in (alone, before_steps, beside)]
    assert found == [Attribution.NODE, Attribution.UNKNOWN, asyncio.run(judged_alone("KeyError: 'x'"))]


async def judged_alone(error: str) -> Attribution:
    end = JobEnd({})
    end.take_report(End(EndState.FAILED, error=error))
    return (await end.judge()).attribution


def test_an_error_after_which_the_job_goes_on_does_not_decide_about_its_end() -> None:
    """torchrun starts the ranks again (`--max-restarts`), and somebody ends the job a day later."""
    end = JobEnd({})
    end.take_report(ECC)
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as started_again:
        end.note_step(started_again.pid)
    end.take_report(ASKED_TO_END)
    assert asyncio.run(end.judge()).state is EndState.CANCELLED


def test_ranks_as_old_as_the_one_that_failed_do_not_hide_its_error() -> None:
    """Their steps may come later than the error. So may those of a process that has ended, or that cannot be seen."""
    ended = subprocess.Popen(["true"])
    ended.wait()
    end = JobEnd({})
    end.take_report(ECC)
    for process in (os.getpid(), ended.pid, 0):
        end.note_step(process)
    end.take_report(ASKED_TO_END)
    assert asyncio.run(end.judge()) == (EndState.FAILED, Attribution.NODE)


@pytest.fixture
def causes_are_read_again(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(job_end, "JUDGING_SECONDS", 60.0)  # to read all distributions takes long on a busy machine
    end_causes.cache_clear()
    yield
    end_causes.cache_clear()


FROM_HERE = "from pharoah.end_causes import EndCause, JudgedEnd\nENTRY = EndCause('site', 'our scheduler', {})"
UNUSABLE = {
    "its place is taken": FROM_HERE.format("40, lambda facts: None"),
    "it cannot be imported": "import no_such_module",
    "it raises": FROM_HERE.format("5, lambda facts: JudgedEnd(facts.environ['SITE_STATE'])"),
    "it answers something else": FROM_HERE.format("5, lambda facts: 'preempted'"),
    "it answers a state that there is not": FROM_HERE.format("5, lambda facts: JudgedEnd('ended')"),
}


@pytest.mark.usefixtures("causes_are_read_again")
@pytest.mark.parametrize("source", UNUSABLE.values(), ids=UNUSABLE)
def test_an_end_is_judged_although_a_cause_of_another_distribution_cannot_be_used(
    source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    name = f"site_{list(UNUSABLE.values()).index(source)}"  # modules of the same name would be imported once
    monkeypatch.syspath_prepend(write_plugin(tmp_path, GROUP, source, name=name))
    end = JobEnd({})
    end.take_report(ECC)
    assert asyncio.run(end.judge()) == (EndState.FAILED, Attribution.NODE)
    assert "site" in caplog.text


@pytest.mark.usefixtures("causes_are_read_again")
def test_an_end_is_reported_although_no_cause_can_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """One distribution whose list of entry points is broken ends the search for all of them."""
    folder = write_plugin(tmp_path, GROUP, "")
    [entry_points] = folder.rglob("entry_points.txt")
    entry_points.write_bytes(b"[\xff]\n")
    monkeypatch.syspath_prepend(folder)
    end = JobEnd({})
    end.take_report(ECC)
    assert asyncio.run(end.judge()) == (EndState.FAILED, Attribution.UNKNOWN)
    assert "the end of the run was not judged: UnicodeDecodeError" in caplog.text
