"""The end of a job as its sidecar sees it: what its ranks and its launcher report, and what the machine shows."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Mapping
from pathlib import Path

from pharoah.end_causes import EndFacts, JudgedEnd, judge_end, memory_kills
from pharoah_protocol import rank_messages as messages
from pharoah_protocol.vocabulary import EndState

log = logging.getLogger("pharoah.sidecar")

JUDGING_SECONDS = 1.0
"""How long the rules may take together: an end must be reported within the shutdown time, which is 2 s."""
_START_FIELD = 19
"""The place of `starttime` after the name of the program, from 0 on (proc_pid_stat(5), field 22)."""


class JobEnd:
    """Collects facts from the start of a sidecar on, and judges them once."""

    def __init__(self, environ: Mapping[str, str] | None = None) -> None:
        self._environ = dict(os.environ if environ is None else environ)
        self._kills = memory_kills()
        self._last: messages.End | None = None
        self._error = ""
        self._early_error = ""
        """The error of a process that has never trained; empty once one trains after it."""
        self._error_ticks = 0
        """When the error was reported, in ticks since this machine was started."""
        self._terminated_at: float | None = None

    def launch(self) -> None:
        """The job starts: the kernel may have killed its dry run before, which is no sign of how the job ends."""
        self._kills = memory_kills()

    def take_report(self, message: messages.End) -> None:
        """A rank, or the command that launched the job, has reported an end. What is reported last stands, but what a
        script states stands over what is read off the end of a process, and the rank that fails first knows why. A
        process that has never trained knows it only where nobody trains any more and no rank has said why."""
        if message.early:
            self._early_error = self._early_error or message.error
            return
        if self._last is None or message.stated or not self._last.stated:
            self._last = message
        if message.error and not self._error:
            self._error, self._error_ticks = message.error, _ticks_now()
        if message.asked_at is not None:
            self._ask(message.asked_at)

    def note_step(self, process: int) -> None:
        """A process of the job trains. When it was started after an error had been reported, the job has gone on: a
        launcher has started the ranks again, or a script runs its next program. Neither then ends by that error.

        A rank that is as old as the one that failed may go on for a moment, and the message of its steps may come late.
        """
        self._early_error = ""
        if self._error and _start_ticks(process) >= self._error_ticks:
            self._error = ""

    def terminate(self) -> None:
        """This process was asked to end, as every process of the job is by a scheduler."""
        self._ask(time.time())

    def _ask(self, at: float) -> None:
        """The job was asked to end at this time; the first time counts."""
        self._terminated_at = at if self._terminated_at is None else min(at, self._terminated_at)

    async def judge(self) -> JudgedEnd:
        """How the job ended, and who caused it. Without a word of it, it has failed unless a rule knows better."""
        last = self._last or messages.End(EndState.FAILED)
        if last.state is EndState.OK or last.stated:
            return JudgedEnd(last.state)
        facts = EndFacts(
            status=last.status,
            error=self._error or self._early_error,
            terminated_at=self._terminated_at,
            ended_at=time.time(),
            environ=self._environ,
            kills=memory_kills().since(self._kills),
        )
        try:
            async with asyncio.timeout(JUDGING_SECONDS):
                return await asyncio.to_thread(judge_end, facts, last.state)
        except TimeoutError:
            return JudgedEnd(last.state)
        except Exception as error:  # noqa: BLE001 - whatever the rules do, the end itself must be reported
            log.warning("the end of the run was not judged: %s: %s", type(error).__name__, error)
            return JudgedEnd(last.state)


def _ticks_now() -> int:
    """The time since this machine was started, in the unit and by the clock of `starttime`."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) * os.sysconf("SC_CLK_TCK") // 10**9


def _start_ticks(process: int) -> int:
    """When a process was started, in ticks since this machine was; -1 where that is not known."""
    try:
        stat = Path(f"/proc/{process}/stat").read_text()
        return int(stat.rpartition(")")[2].split()[_START_FIELD])
    except (OSError, ValueError, IndexError):
        return -1
