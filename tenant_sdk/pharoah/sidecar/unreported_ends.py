"""Ends of runs that the provider has not acknowledged: kept on this machine until a later run of this user sends them.

Without them the provider would have to take such a run for lost, and would leave its host alone until an agent has seen
it empty, because a run that is silent may go on (docs/adr/0022).
"""

from __future__ import annotations

import contextlib
import logging
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from google.protobuf.message import DecodeError

from pharoah._settings import Settings
from pharoah.sidecar.bounded_folder import Bound, keep_file
from pharoah.sidecar.evidence import exchange_folder
from pharoah.sidecar.file_work import FileWork
from pharoah_protocol.v1 import EndRunRequest
from pharoah_system.files import write_atomically
from pharoah_system.trusted_paths import find_folder, is_own_file, make_folder

log = logging.getLogger("pharoah.sidecar")
T = TypeVar("T")

KEPT_ENDS = Bound(most_files=2048, most_bytes=256 << 10)
"""One end has less than 100 bytes, and a job has one for each of its nodes, which may share this home."""
MAX_AT_ONCE = 64
"""Files that are read in one go: each may take a millisecond on a server of files."""
KEPT_SECONDS = 86400.0
"""A day. The provider takes a pseudonym for a week after its period."""
SUFFIX = ".end"
ANSWER_SECONDS = 0.5
"""How long the file system of a home may take before the run goes on without it."""


class UnreportedEnds:
    """Files of one folder, for this user's eyes. Machines that share a home share it: an end may be sent twice."""

    def __init__(self, settings: Settings, now: Callable[[], float] = time.time) -> None:
        """`now` gives unix seconds.

        Also for users who keep no records of their runs: this is a message that waits, and is deleted when it is sent.
        """
        folder = exchange_folder(settings)
        self._folder = folder / "ends" if folder else None
        self._now, self._files = now, FileWork(ANSWER_SECONDS)

    async def keep(self, end: EndRunRequest) -> None:
        """Before the end is sent, so that it is not forgotten when this process is killed meanwhile."""
        await self._answer(lambda: self._write(end), None)

    async def forget(self, end: EndRunRequest) -> None:
        """The provider has answered."""
        await self._answer(lambda: self._delete(end), None)

    async def waits(self, end: EndRunRequest) -> bool:
        """Whether nobody has sent it meanwhile: all nodes of a job may share this folder."""
        return await self._answer(lambda: self._is_kept(end), False)

    async def all(self) -> list[EndRunRequest]:
        """Ends of the last day, at most MAX_AT_ONCE in a drawn order: all nodes of a job may ask at once. What is
        older, or cannot be read as an end, is deleted."""
        return await self._answer(self._read_all, [])

    async def _answer(self, work: Callable[[], T], otherwise: T) -> T:
        """The result of work on files; `otherwise` when the file system does not answer in time."""
        try:
            return await self._files.result(work)
        except TimeoutError:
            log.info("the folder of ends that wait does not answer within %g s", ANSWER_SECONDS)
            return otherwise

    def _write(self, end: EndRunRequest) -> None:
        if self._folder is None:
            return
        path, content = self._folder / f"{end.run_id.hex()}{SUFFIX}", end.SerializeToString()
        try:
            make_folder(self._folder)
            if len(_ends_in(self._folder)) >= KEPT_ENDS.most_files:
                keep_file(path, content, KEPT_ENDS)  # looks at each file, which takes long on a server of files
            else:
                write_atomically(path, content)
        except OSError as error:
            log.info("the end of the run is not kept: %s", error)

    def _is_kept(self, end: EndRunRequest) -> bool:
        try:
            return self._folder is not None and (self._folder / f"{end.run_id.hex()}{SUFFIX}").exists()
        except OSError as error:
            log.info("the end of an earlier run cannot be looked for: %s", error)
            return False

    def _delete(self, end: EndRunRequest) -> None:
        if self._folder is None:
            return
        try:
            (self._folder / f"{end.run_id.hex()}{SUFFIX}").unlink(missing_ok=True)
        except OSError as error:
            log.info("the end of a run that was reported stays on this machine: %s", error)

    def _read_all(self) -> list[EndRunRequest]:
        if self._folder is None:
            return []
        try:
            paths = _ends_in(find_folder(self._folder))
        except FileNotFoundError:
            return []
        except OSError as error:
            log.info("the ends of earlier runs cannot be looked for: %s", error)
            return []
        drawn = random.sample(paths, min(len(paths), MAX_AT_ONCE))
        return [end for path in drawn if (end := self._read(path)) is not None]

    def _read(self, path: Path) -> EndRunRequest | None:
        try:
            if path.stat().st_mtime >= self._now() - KEPT_SECONDS and is_own_file(path):
                with contextlib.suppress(DecodeError):
                    return EndRunRequest.FromString(path.read_bytes())
            path.unlink(missing_ok=True)
        except OSError as error:
            log.info("the end of an earlier run is left where it is: %s", error)
        return None


def _ends_in(folder: Path) -> list[Path]:
    """Raises OSError."""
    return [path for path in folder.iterdir() if path.suffix == SUFFIX]
