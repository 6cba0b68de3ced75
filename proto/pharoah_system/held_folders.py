"""Temporary folders that are deleted although their owner was killed: the next owner of such a folder does it."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

_NEW = "new-"
"""Begins the name of a folder that nobody holds yet."""


class HeldFolder(NamedTuple):
    """A folder and the lock on it."""

    path: Path
    lock: int
    """A descriptor: as long as some process has it open, the folder is in use. A forked child closes it."""


@contextlib.contextmanager
def hold_folder(prefix: str) -> Iterator[HeldFolder]:
    """A new folder below that for temporary files. Those with the same prefix that nobody holds are deleted first.

    Raises OSError when none can be made, and on a file system without locks.
    """
    _delete_abandoned(prefix)
    new = Path(tempfile.mkdtemp(prefix=f"{_NEW}{prefix}"))
    lock = os.open(new, os.O_RDONLY | os.O_DIRECTORY)
    folder = new
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        # Held before it has the name by which others look for abandoned ones.
        folder = new.rename(new.with_name(new.name.removeprefix(_NEW)))
        yield HeldFolder(folder, lock)
    finally:
        try:
            shutil.rmtree(folder, ignore_errors=True)
        finally:
            os.close(lock)


def _delete_abandoned(prefix: str) -> None:
    for folder in Path(tempfile.gettempdir()).glob(f"{prefix}*"):
        with contextlib.suppress(OSError, RecursionError):  # folders within folders may be too deep to be deleted
            lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                if os.fstat(lock).st_uid != os.geteuid():
                    continue
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # raises BlockingIOError for one that is held
                shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(lock)
