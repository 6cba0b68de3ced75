"""Finds out which ranks others wait for: when no rank steps any more, all are asked for their flight record."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from pharoah._settings import Settings
from pharoah._verdict import Finding
from pharoah.sidecar.hang_detector import HangDetector
from pharoah_protocol.rank_messages import CollectiveCall

ANSWER_SECONDS = 3.0
"""How long answers are awaited. A rank that waits in a collective has released the interpreter, so it answers at
once."""


class HangWatch:
    """Owns one task between the first `watch` and `stop`."""

    def __init__(
        self, settings: Settings, request_records: Callable[[], None], found: Callable[[Sequence[Finding]], None]
    ) -> None:
        """`request_records` asks all ranks, whose answers come to `add`; `found` gets what the answers show."""
        self._hang_after = settings.hang_after_seconds
        self._request_records = request_records
        self._found = found
        self._detector = HangDetector()
        self._task: asyncio.Task[None] | None = None
        self._stepped = False
        """Whether a rank has stepped since the last look."""

    def watch(self) -> None:
        """Begin, if it has not begun: a rank can answer."""
        self._task = self._task or asyncio.create_task(self._run())

    def note_step(self) -> None:
        """A rank has stepped."""
        self._stepped = True

    def add(self, rank: int, calls: Sequence[CollectiveCall]) -> None:
        """The flight record of a rank."""
        self._detector.add(rank, calls)

    async def stop(self) -> None:
        if self._task:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        while True:
            # Half the time each: two rounds that are the same then show a hang of this length.
            await asyncio.sleep(self._hang_after / 2)
            if self._stepped:
                self._stepped = False
                self._detector.forget()
                continue
            self._detector.begin()
            self._request_records()
            await asyncio.sleep(min(ANSWER_SECONDS, self._hang_after / 4))
            self._found(self._detector.findings())
