"""Slurm ends a job: its time is over, another job takes its nodes, or an operator drains them."""

from __future__ import annotations

import re
import shutil
import subprocess

from pharoah.end_causes._cause import EndCause, EndFacts, JudgedEnd
from pharoah_protocol.vocabulary import Attribution, EndState

ANSWER_SECONDS = 0.5
"""How long Slurm may take to answer: the end of a job must not wait for a busy controller."""
LATE_SECONDS, EARLY_SECONDS = 300.0, 5.0
"""Slurm looks at time limits every 30 s, and may be set to let jobs overrun (slurm.conf, OverTimeLimit); clocks of a
cluster differ by less than seconds. A job that is asked to end in this time around its limit has reached it."""
_STATE = re.compile(r"\bJobState=([A-Z_]+)")
_STATES = {
    "TIMEOUT": JudgedEnd(EndState.TIME_LIMIT),
    "DEADLINE": JudgedEnd(EndState.TIME_LIMIT),
    "PREEMPTED": JudgedEnd(EndState.PREEMPTED),
    "SUSPENDED": JudgedEnd(EndState.PREEMPTED),
    "REQUEUED": JudgedEnd(EndState.MOVED),
    "REQUEUE_FED": JudgedEnd(EndState.MOVED),
    "CANCELLED": JudgedEnd(EndState.CANCELLED),
    "NODE_FAIL": JudgedEnd(EndState.FAILED, Attribution.NODE),
    "BOOT_FAIL": JudgedEnd(EndState.FAILED, Attribution.PLATFORM),
    "LAUNCH_FAILED": JudgedEnd(EndState.FAILED, Attribution.PLATFORM),
    "OUT_OF_MEMORY": JudgedEnd(EndState.FAILED, Attribution.USER),
}
"""States of a job (squeue(1)) that name a cause; `FAILED` and `COMPLETING` name none. A job out of memory has used more
than it had asked for."""


def _judge(facts: EndFacts) -> JudgedEnd | None:
    job = facts.environ.get("SLURM_JOB_ID", "")
    if not job.isdecimal():
        return None
    if facts.terminated_at is not None and _at_its_limit(facts):
        return JudgedEnd(EndState.TIME_LIMIT)
    return _STATES.get(_state_of(job))


def _at_its_limit(facts: EndFacts) -> bool:
    """Whether the job was asked to end when its time was over (sbatch(1), SLURM_JOB_END_TIME)."""
    end = facts.environ.get("SLURM_JOB_END_TIME", "")
    if not end.isdecimal() or facts.terminated_at is None:
        return False
    return -EARLY_SECONDS <= facts.terminated_at - int(end) <= LATE_SECONDS


def _state_of(job: str) -> str:
    """What Slurm says of a job; empty where it says nothing."""
    program = shutil.which("scontrol")
    if program is None:
        return ""
    command = [program, "--oneliner", "show", "job", job]
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=ANSWER_SECONDS, errors="replace"
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    # Of an array or a job with several parts, there is a line for each job.
    lines = (line for line in done.stdout.splitlines() if line.startswith(f"JobId={job} "))
    found = _STATE.search(next(lines, ""))
    return found[1] if found else ""


SLURM = EndCause(
    "slurm",
    "time limit, preemption and failed nodes, by the end time of the job and the state Slurm gives it",
    10,
    _judge,
)
