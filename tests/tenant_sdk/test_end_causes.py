"""How a job ended, and who caused it: rules on what the machine shows, and real processes that end."""

from __future__ import annotations

import os
import signal
from dataclasses import replace
from pathlib import Path

import pytest

from pharoah.end_causes import EndFacts, MemoryKills, judge_end, memory_kills
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
    assert judge_end(facts, EndState.FAILED).state is state


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
    assert judge_end(facts, EndState.FAILED) == (state, attribution)


def test_the_state_of_another_job_is_not_that_of_this_one(scontrol: Path) -> None:
    """Slurm answers with a line for each job of an array, and for each part of a job with several."""
    scontrol.write_text(
        "JobId=47110 ArrayJobId=4711 ArrayTaskId=1 JobName=train JobState=PREEMPTED Reason=None\n"
        "JobId=4711 ArrayJobId=4711 ArrayTaskId=2 JobName=train JobState=TIMEOUT Reason=None\n"
    )
    facts = EndFacts(status=1, environ={"SLURM_JOB_ID": "4711"})
    assert judge_end(facts, EndState.FAILED).state is EndState.TIME_LIMIT
    facts = EndFacts(status=1, environ={"SLURM_JOB_ID": "4712"})
    assert judge_end(facts, EndState.FAILED).state is EndState.FAILED


def test_slurm_is_not_asked_about_a_job_whose_number_is_no_number(scontrol: Path) -> None:
    scontrol.write_text("JobState=PREEMPTED\n")
    facts = EndFacts(status=1, environ={"SLURM_JOB_ID": "4711; rm -rf /"})
    assert judge_end(facts, EndState.FAILED).state is EndState.FAILED


@pytest.mark.parametrize(
    ("kills", "attribution"),
    [(MemoryKills(1, 3, 1), Attribution.USER), (MemoryKills(1, 0, 1), Attribution.UNKNOWN)],
)
def test_a_job_killed_at_its_own_limit_of_memory_has_asked_for_too_little(
    kills: MemoryKills, attribution: Attribution
) -> None:
    for status in (-signal.SIGKILL, 128 + signal.SIGKILL, 256 - signal.SIGKILL):
        assert judge_end(EndFacts(status=status, kills=kills), EndState.FAILED) == (EndState.FAILED, attribution)


def test_a_job_that_failed_by_itself_is_not_out_of_memory_because_a_neighbour_was() -> None:
    facts = EndFacts(status=1, error="KeyError: 'x'", kills=MemoryKills(0, 0, 5))
    assert judge_end(facts, EndState.FAILED).attribution not in (Attribution.NODE, Attribution.NEIGHBOUR)


AT_LIMIT = MemoryKills(own=1, at_own_limit=1, host=1)
LOST = "RuntimeError: Connection closed by peer [10.0.0.2]:2341"
"""What a rank sees of the end of another one."""


@pytest.mark.parametrize("error", ["", LOST, "RuntimeError: DataLoader worker (pid(s) 77) exited unexpectedly"])
def test_a_launcher_hides_that_the_kernel_has_killed_a_rank(error: str) -> None:
    """torchrun and Accelerate leave with 1 when a rank was killed."""
    facts = EndFacts(status=1, error=error, kills=AT_LIMIT)
    assert judge_end(facts, EndState.FAILED) == (EndState.FAILED, Attribution.USER)
    asked = replace(facts, terminated_at=1.0)
    assert judge_end(asked, EndState.FAILED).attribution is not Attribution.USER


def test_an_error_that_names_its_cause_stands_over_a_process_that_the_kernel_has_killed() -> None:
    error = "RuntimeError: CUDA error: uncorrectable ECC error encountered"
    facts = EndFacts(status=1, error=error, kills=AT_LIMIT)
    assert judge_end(facts, EndState.FAILED) == (EndState.FAILED, Attribution.NODE)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
@pytest.mark.parametrize("kills", [MemoryKills(0, 0, 0), MemoryKills(0, 0, 5)])
def test_an_exit_code_of_a_signal_does_not_hide_the_error_of_a_rank(number: int, kills: MemoryKills) -> None:
    """`srun --kill-on-bad-exit` reports the signal by which it has ended the ranks that had not failed."""
    facts = EndFacts(status=128 + number, error="ImportError: cannot import name 'x' from 'y'", kills=kills)
    assert judge_end(facts, EndState.FAILED) == (EndState.FAILED, Attribution.SOFTWARE)
    lost = EndFacts(status=128 + signal.SIGTERM, error=LOST)
    assert judge_end(lost, EndState.FAILED).state is EndState.CANCELLED


@pytest.mark.parametrize("status", [1, 255, -signal.SIGKILL, 128 + signal.SIGKILL])
@pytest.mark.parametrize("error", ["", "KeyboardInterrupt: ", LOST])
def test_a_job_that_was_asked_to_end_was_cancelled_whatever_its_launcher_makes_of_it(status: int, error: str) -> None:
    facts = EndFacts(status=status, error=error, terminated_at=1.0)
    assert judge_end(facts, EndState.FAILED).state is EndState.CANCELLED
    assert judge_end(replace(facts, terminated_at=None), EndState.FAILED).state is EndState.FAILED


def test_a_job_that_failed_by_an_error_of_its_own_was_not_cancelled() -> None:
    facts = EndFacts(status=1, error="KeyError: 'x'", terminated_at=1.0)
    assert judge_end(facts, EndState.FAILED) == (EndState.FAILED, Attribution.USER)


@pytest.mark.parametrize(
    ("error", "end"),
    [
        ("", (EndState.CANCELLED, Attribution.UNKNOWN)),
        ("KeyboardInterrupt: ", (EndState.CANCELLED, Attribution.UNKNOWN)),
        (LOST, (EndState.CANCELLED, Attribution.UNKNOWN)),
        ("RuntimeError: CUDA error: uncorrectable ECC error encountered", (EndState.FAILED, Attribution.NODE)),
    ],
)
@pytest.mark.parametrize("status", [1, 128 + signal.SIGTERM])
def test_what_asks_a_job_to_end_because_a_rank_has_failed_does_not_hide_the_error(
    status: int, error: str, end: tuple[EndState, Attribution]
) -> None:
    """A node with a broken device is drained, and a gang of pods is deleted with its first pod."""
    assert judge_end(EndFacts(status=status, error=error, terminated_at=1.0), EndState.FAILED) == end


@pytest.mark.parametrize(
    ("status", "number"),
    [(1, 0), (128, 0), (137, 9), (191, 63), (192, 64), (241, 15), (247, 9), (254, 2), (255, 0), (-15, 15), (0, 0)],
)
def test_the_signal_is_read_off_the_exit_code_of_a_launcher(status: int, number: int) -> None:
    assert EndFacts(status=status).signal == number


@pytest.mark.parametrize("status", [-signal.SIGTERM, 128 + signal.SIGINT, -signal.SIGHUP])
def test_a_job_that_was_asked_to_end_was_cancelled(status: int) -> None:
    assert judge_end(EndFacts(status=status), EndState.FAILED).state is EndState.CANCELLED


@pytest.mark.parametrize("number", [signal.SIGSEGV, signal.SIGBUS, signal.SIGABRT, signal.SIGKILL])
def test_a_signal_that_is_a_symptom_has_no_attribution(number: int) -> None:
    assert judge_end(EndFacts(status=-number), EndState.FAILED) == (EndState.FAILED, Attribution.UNKNOWN)


@pytest.mark.parametrize("status", [126, 127])
def test_a_program_that_could_not_be_started_is_missing_unless_a_rank_knows_better(status: int) -> None:
    """`bash train.sh` leaves so when its last line names a program that is not there, or that may not be executed."""
    assert judge_end(EndFacts(status=status), EndState.FAILED) == (EndState.FAILED, Attribution.USER)
    for error, attribution in (
        ("RuntimeError: CUDA error: uncorrectable ECC error encountered", Attribution.NODE),
        (LOST, Attribution.UNKNOWN),
        ("RuntimeError: no rule explains this", Attribution.UNKNOWN),
    ):
        facts = EndFacts(status=status, error=error)
        assert judge_end(facts, EndState.FAILED) == (EndState.FAILED, attribution)


def test_an_exit_code_that_names_no_cause_leaves_what_is_known_otherwise() -> None:
    for status in (1, 2, 255):
        assert judge_end(EndFacts(status=status), EndState.MOVED) == (EndState.MOVED, Attribution.UNKNOWN)


def test_a_job_that_vanished_without_being_asked_to_has_failed() -> None:
    assert judge_end(EndFacts(), EndState.FAILED) == (EndState.FAILED, Attribution.UNKNOWN)
    assert judge_end(EndFacts(terminated_at=1.0), EndState.FAILED).state is EndState.CANCELLED


EVENTS = "low 0\nhigh 0\nmax 812\noom 2\noom_kill 1\noom_group_kill 0\n"
"""memory.events of version 2 (Linux, Documentation/admin-guide/cgroup-v2.rst)."""
CONTROL = "oom_kill_disable 0\nunder_oom 0\noom_kill 1\n"
"""memory.oom_control of version 1 (Linux 6.18)."""


@pytest.mark.parametrize(
    ("line", "files"),
    [
        ("0::/job.slice/1\n", {"job.slice/1/memory.events": EVENTS}),
        (
            "0::/job_17/step_0/task_0\n",
            {
                "job_17/step_0/task_0/memory.events": EVENTS.replace("oom 2", "oom 0"),
                "job_17/step_0/memory.events.local": EVENTS.replace("oom 2", "oom 0"),
                "job_17/memory.events.local": EVENTS,
                "job_17/memory.events": EVENTS.replace("oom 2", "oom 9"),  # counts the other steps as well
            },
        ),
        ("0::/../..\n", {"memory.events": EVENTS}),
        (
            "5:cpu:/x\n4:memory:/job\n0::/\n",
            {"memory/job/memory.oom_control": CONTROL, "memory/job/memory.failcnt": "2\n"},
        ),
        (
            "4:memory:/slurm/job_17/step_0\n",
            {
                "memory/slurm/job_17/step_0/memory.oom_control": CONTROL,
                "memory/slurm/job_17/step_0/memory.failcnt": "0\n",
                "memory/slurm/job_17/memory.failcnt": "2\n",
                "memory/memory.failcnt": "0\n",
            },
        ),
        (
            "4:memory:/docker/0a1b\n",
            {"memory/memory.oom_control": CONTROL, "memory/memory.failcnt": "2\n"},
        ),
    ],
    ids=[
        "version 2",
        "version 2, a limit above",
        "version 2, in a container",
        "version 1",
        "version 1, a limit above",
        "version 1, in a container",
    ],
)
def test_kills_are_read_from_the_control_group_of_the_process(tmp_path: Path, line: str, files: dict[str, str]) -> None:
    proc, cgroups = tmp_path / "proc", tmp_path / "cgroup"
    (proc / "self").mkdir(parents=True)
    (proc / "self" / "cgroup").write_text(line)
    (proc / "vmstat").write_text("nr_free_pages 1\noom_kill 7\n")
    for file, text in files.items():
        (cgroups / file).parent.mkdir(parents=True, exist_ok=True)
        (cgroups / file).write_text(text)
    assert memory_kills(proc, cgroups) == MemoryKills(own=1, at_own_limit=2, host=7)


def test_a_machine_that_counts_no_kills_has_none(tmp_path: Path) -> None:
    assert memory_kills(tmp_path, tmp_path) == MemoryKills(0, 0, 0)
