"""Keeps a run's record on this machine while the run goes on, for `pharoah compare`."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import median

from pharoah._settings import Settings
from pharoah.comparison.history import History, Run
from pharoah.comparison.record import Record, record_of_seen
from pharoah_archetypes import Fingerprint
from pharoah_protocol.vocabulary import EndState

log = logging.getLogger("pharoah.sidecar")


class RunRecorder:
    """One run's entry, written once its structure is known and once it has ended, without waiting for a slow disk."""

    def __init__(self, run_id: bytes, settings: Settings) -> None:
        self._history = History(settings)
        self._patience = 0.9 * settings.shutdown_timeout_seconds
        self._run = Run(run_id.hex(), began=time.time())
        self._begun = False
        self._newest: deque[int] = deque(maxlen=1000)
        """Nanoseconds of steps."""
        self._rank: int | None = None
        self._writing: asyncio.Task[None] | None = None

    def note_start(self, command: str, groups: Mapping[str, dict[str, str]]) -> None:
        """The run has started; without groups its structure is not known yet."""
        self._begun = True
        self._run.command, self._run.record = command, Record(dict(groups))
        self._write()

    def capture(self, seen: Fingerprint) -> None:
        """A real step, for a job that could not be dry-run."""
        if self._begun and not self._run.record.groups:
            self._run.record = record_of_seen(seen)
            self._write()

    def note_step(self, rank: int, nanoseconds: Sequence[int]) -> None:
        """Steps of a rank; the first rank that steps counts."""
        if self._rank is None:
            self._rank = rank
        if rank == self._rank and nanoseconds:
            self._run.steps += len(nanoseconds)
            self._newest.extend(nanoseconds)

    async def end(self, state: EndState) -> None:
        """Nothing is kept of a job that was only checked."""
        self._run.state = state
        self._run.step_seconds = median(self._newest) / 1e9 if self._newest else 0.0
        if self._begun:
            await asyncio.wait([self._write()], timeout=self._patience)

    def _write(self) -> asyncio.Task[None]:
        """In a thread, after what is being written already."""
        self._writing = asyncio.create_task(self._write_out(replace(self._run), self._writing))
        return self._writing

    async def _write_out(self, run: Run, before: asyncio.Task[None] | None) -> None:
        if before:
            await before
        try:
            await asyncio.to_thread(self._history.write, run)
        except OSError as error:
            log.warning("the run's record is not kept: %s", error)
