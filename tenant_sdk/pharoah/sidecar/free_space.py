"""The free space of the file systems that a job uses.

Each is read in a thread of its own: the server of one may be away, and then what reads it waits.
"""

from __future__ import annotations

import logging
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from pharoah.local_alerts._readings import Space, list_used_folders, mount_point_of, space_of

log = logging.getLogger("pharoah.sidecar")

FOLDERS_EVERY_LOOKS = 30
"""How often it is looked where the job writes: its files are many, and their file systems are few."""
MAX_FOLDERS = 32
SILENT_SECONDS = 5.0
"""A file system that has not answered for so long is silent: one that works answers within milliseconds."""


class FreeSpace(NamedTuple):
    """What is known of the file systems now."""

    free_bytes: Mapping[str, int]
    """Bytes that are free in each file system, under the first of its folders."""
    silent: frozenset[str]
    """Folders whose file systems do not answer."""


class FileSystems:
    """Owns a thread that looks where the job writes, and one for each file system, between `start` and `stop`."""

    def __init__(self, processes: Callable[[], Mapping[int, int]], look_seconds: float) -> None:
        """`processes` gives those of the job, by rank."""
        self._processes, self._look_seconds = processes, look_seconds
        self._known: dict[str, _FileSystem] = {}
        self._stopped = threading.Event()

    def start(self) -> None:
        threading.Thread(target=self._follow, name="pharoah-folders", daemon=True).start()

    def stop(self) -> None:
        """A thread that waits for a file system is left behind; it ends with this process."""
        self._stopped.set()

    def newest(self) -> FreeSpace:
        """What the threads have read last."""
        free, silent, seen = dict[str, int](), set[str](), set[int]()
        for folder, known in list(self._known.items()):
            space = known.space
            if known.is_silent:
                silent.add(folder)
            elif space is not None and space.device not in seen:
                seen.add(space.device)
                free[folder] = space.free_bytes
        return FreeSpace(free, frozenset(silent))

    def _follow(self) -> None:
        """Look for folders again and again, and begin to read those that are new."""
        try:
            while not self._stopped.is_set():
                for folder in _folders(self._processes(), list(self._known)):
                    if folder not in self._known:
                        self._known[folder] = _FileSystem(folder, self._stopped, self._look_seconds)
                self._stopped.wait(FOLDERS_EVERY_LOOKS * self._look_seconds)
        except Exception:
            log.exception("nobody looks any more where the job writes; no alerts of other file systems will come")


class _FileSystem:
    """Reads the free space of one file system again and again."""

    def __init__(self, folder: str, stopped: threading.Event, look_seconds: float) -> None:
        self.space: Space | None = None
        """What was read last; None where the folder is gone."""
        self._folder, self._stopped, self._look_seconds = folder, stopped, look_seconds
        self._asked_at: float | None = None
        """When the question was asked that has no answer yet; seconds of the monotonic clock."""
        threading.Thread(target=self._follow, name="pharoah-space", daemon=True).start()

    @property
    def is_silent(self) -> bool:
        asked_at = self._asked_at
        return asked_at is not None and time.monotonic() - asked_at > SILENT_SECONDS

    def _follow(self) -> None:
        try:
            while not self._stopped.is_set():
                self._asked_at = time.monotonic()
                self.space = space_of(self._folder)
                self._asked_at = None
                self._stopped.wait(self._look_seconds)
        except Exception:
            self.space, self._asked_at = None, None
            log.exception("the free space of %s cannot be read; no more alerts of it will come", self._folder)


def _folders(processes: Mapping[int, int], known: Sequence[str]) -> list[str]:
    """Where the job writes: the file systems that are known, and those in use now, each by its mount point: folders of
    checkpoints come and go."""
    used = [folder for process in processes.values() for folder in list_used_folders(process)]
    now = [mount_point_of(folder) for folder in (tempfile.gettempdir(), *used)]
    return list(dict.fromkeys([*known, *now]))[:MAX_FOLDERS]
