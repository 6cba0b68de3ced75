"""The end of a job as its sidecar sees it: what its ranks and its launcher report, and what the machine shows."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Mapping

from pharoah.end_causes import EndFacts, JudgedEnd, judged, memory_kills
from pharoah_protocol import rank_messages as messages
from pharoah_protocol.vocabulary import EndState

JUDGING_SECONDS = 1.0
"""How long the rules may take together: an end must be reported within the shutdown time, which is 2 s."""


class JobEnd:
    """Collects facts from the start of a sidecar on, and judges them once."""

    def __init__(self, environ: Mapping[str, str] | None = None) -> None:
        self._environ = dict(os.environ if environ is None else environ)
        self._kills = memory_kills()
        self._last: messages.End | None = None
        self._error = ""
        self._terminated_at: float | None = None

    def reported(self, message: messages.End) -> None:
        """A rank, or the command that launched the job, has reported an end. What is reported last stands, but what a
        script states stands over what is read off the end of a process, and the rank that fails first knows why."""
        if self._last is None or message.stated or not self._last.stated:
            self._last = message
        self._error = self._error or message.error
        if message.asked_at is not None:
            self._asked(message.asked_at)

    def terminated(self) -> None:
        """This process was asked to end, as every process of the job is by a scheduler."""
        self._asked(time.time())

    def _asked(self, at: float) -> None:
        """The job was asked to end at this time; the first time counts."""
        self._terminated_at = at if self._terminated_at is None else min(at, self._terminated_at)

    async def judged(self) -> JudgedEnd:
        """How the job ended, and who caused it. Without a word of it, it has failed unless a rule knows better."""
        last = self._last or messages.End(EndState.FAILED)
        if last.state is EndState.OK or last.stated:
            return JudgedEnd(last.state)
        facts = EndFacts(
            status=last.status,
            error=self._error,
            terminated_at=self._terminated_at,
            ended_at=time.time(),
            environ=self._environ,
            kills=memory_kills().since(self._kills),
        )
        try:
            async with asyncio.timeout(JUDGING_SECONDS):
                return await asyncio.to_thread(judged, facts, last.state)
        except TimeoutError:
            return JudgedEnd(last.state)
