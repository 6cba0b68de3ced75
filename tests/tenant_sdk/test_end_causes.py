"""How a job ended, and who caused it: rules on what the machine shows, and real processes that end."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from pharoah.end_causes import EndFacts, MemoryKills, judged, memory_kills
from pharoah_protocol.vocabulary import Attribution, EndState

LIMIT = 1_700_000_000
"""Unix seconds at which the time of a job is over."""
SLURM = {"SLURM_JOB_ID": "4711", "SLURM_JOB_END_TIME": str(LIMIT)}


@pytest.fixture
def scontrol(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A program that answers as `scontrol --oneliner show job` does; its answer is the text of a file beside it."""
    program = tmp_path / "scontrol"
    program.write_text(f"#!/bin/sh\ncat {tmp_path}/answer\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    return tmp_path / "answer"


@pytest.mark.parametrize(
    ("seconds", "state"),
    [(0, EndState.TIME_LIMIT), (120, EndState.TIME_LIMIT), (-600, EndState.CANCELLED), (4000, EndState.CANCELLED)],
)
def test_a_slurm_job_that_is_asked_to_end_at_its_limit_has_reached_it(seconds: int, state: EndState) -> None:
    facts = EndFacts(status=-signal.SIGTERM, terminated_at=LIMIT + seconds, environ=SLURM)
    assert judged(facts, EndState.FAILED).state is state


@pytest.mark.parametrize(
    ("word", "state", "attribution"),
    [
        ("PREEMPTED", EndState.PREEMPTED, Attribution.UNKNOWN),
        ("TIMEOUT", EndState.TIME_LIMIT, Attribution.UNKNOWN),
        ("NODE_FAIL", EndState.FAILED, Attribution.NODE),
        ("OUT_OF_MEMORY", EndState.FAILED, Attribution.USER),
        ("FAILED", EndState.CANCELLED, Attribution.UNKNOWN),
    ],
)
def test_the_state_that_slurm_gives_a_job_decides_where_it_names_a_cause(
    scontrol: Path, word: str, state: EndState, attribution: Attribution
) -> None:
    scontrol.write_text(f"JobId=4711 JobName=train UserId=ada(1000) JobState={word} Reason=None Requeue=1\n")
    facts = EndFacts(status=-signal.SIGTERM, terminated_at=float(LIMIT - 9000), environ=SLURM)
    assert judged(facts, EndState.FAILED) == (state, attribution)


def test_slurm_is_not_asked_about_a_job_whose_number_is_no_number(scontrol: Path) -> None:
    scontrol.write_text("JobState=PREEMPTED\n")
    facts = EndFacts(status=1, environ={"SLURM_JOB_ID": "4711; rm -rf /"})
    assert judged(facts, EndState.FAILED).state is EndState.FAILED


@pytest.mark.parametrize(
    ("kills", "attribution"),
    [(MemoryKills(1, 3, 1), Attribution.USER), (MemoryKills(1, 0, 1), Attribution.UNKNOWN)],
)
def test_a_job_killed_at_its_own_limit_of_memory_has_asked_for_too_little(
    kills: MemoryKills, attribution: Attribution
) -> None:
    for status in (-signal.SIGKILL, 128 + signal.SIGKILL):
        assert judged(EndFacts(status=status, kills=kills), EndState.FAILED) == (EndState.FAILED, attribution)


def test_a_job_that_failed_by_itself_is_not_out_of_memory_because_a_neighbour_was() -> None:
    facts = EndFacts(status=1, error="KeyError: 'x'", kills=MemoryKills(0, 0, 5))
    assert judged(facts, EndState.FAILED).attribution not in (Attribution.NODE, Attribution.NEIGHBOUR)


@pytest.mark.parametrize("status", [-signal.SIGTERM, 128 + signal.SIGINT, -signal.SIGHUP])
def test_a_job_that_was_asked_to_end_was_cancelled(status: int) -> None:
    assert judged(EndFacts(status=status), EndState.FAILED).state is EndState.CANCELLED


@pytest.mark.parametrize("number", [signal.SIGSEGV, signal.SIGBUS, signal.SIGABRT, signal.SIGKILL])
def test_a_signal_that_is_a_symptom_has_no_attribution(number: int) -> None:
    assert judged(EndFacts(status=-number), EndState.FAILED) == (EndState.FAILED, Attribution.UNKNOWN)


def test_a_job_that_vanished_without_being_asked_to_has_failed() -> None:
    assert judged(EndFacts(), EndState.FAILED) == (EndState.FAILED, Attribution.UNKNOWN)
    assert judged(EndFacts(terminated_at=1.0), EndState.FAILED).state is EndState.CANCELLED


@pytest.mark.parametrize(
    ("line", "file", "text"),
    [
        ("0::/job.slice/1\n", "job.slice/1/memory.events", "low 0\noom 2\noom_kill 1\noom_group_kill 0\n"),
        ("5:cpu:/x\n4:memory:/job\n", "memory/job/memory.oom_control", "oom_kill_disable 0\noom_kill 1\noom 2\n"),
        ("0::/../..\n", "memory.events", "oom 2\noom_kill 1\n"),
    ],
    ids=["version 2", "version 1", "in a container"],
)
def test_kills_are_read_from_the_control_group_of_the_process(tmp_path: Path, line: str, file: str, text: str) -> None:
    proc, cgroups = tmp_path / "proc", tmp_path / "cgroup"
    (proc / "self").mkdir(parents=True)
    (proc / "self" / "cgroup").write_text(line)
    (proc / "vmstat").write_text("nr_free_pages 1\noom_kill 7\n")
    (cgroups / file).parent.mkdir(parents=True)
    (cgroups / file).write_text(text)
    assert memory_kills(proc, cgroups) == MemoryKills(own=1, at_own_limit=2, host=7)


def test_a_machine_that_counts_no_kills_has_none(tmp_path: Path) -> None:
    assert memory_kills(tmp_path, tmp_path) == MemoryKills(0, 0, 0)
