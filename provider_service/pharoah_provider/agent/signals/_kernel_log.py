"""New lines of the kernel's log, from the moment at which it is opened (dev-kmsg, docs.kernel.org)."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

KMSG = Path("/dev/kmsg")
MOST_LINES = 1000
"""Lines that are read at once; the rest comes with the next reading."""
_LONGEST_LINE_BYTES = 8192
"""The kernel gives no longer record (CONFIG of printk: LOG_LINE_MAX is shorter)."""


class KernelLog:
    """The log of this machine; empty where this process may not read it."""

    def __init__(self, path: Path = KMSG) -> None:
        self._path = path
        self._file: int | None = None
        self._tried = False

    def lines(self) -> Iterator[str]:
        """The texts of what was logged since the last call; of what came before the first one, nothing."""
        if not self._tried:
            self._tried = True
            self._open()
        if self._file is None:
            return
        for _ in range(MOST_LINES):
            try:
                record = os.read(self._file, _LONGEST_LINE_BYTES)
            except BlockingIOError:
                return
            except BrokenPipeError:  # the kernel has overwritten lines that were not read: go on with those there are
                continue
            except OSError:
                return
            if not record:
                return
            yield record.partition(b";")[2].partition(b"\n")[0].decode(errors="replace")

    def _open(self) -> None:
        try:
            self._file = os.open(self._path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            os.lseek(self._file, 0, os.SEEK_END)
        except OSError:
            self._file = None
