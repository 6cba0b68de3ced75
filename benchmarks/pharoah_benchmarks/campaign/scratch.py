"""The scratch folder of a cell: its current folder and its folder for temporary files, gone when the cell has ended."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

_PREFIX, _NEW_PREFIX = "pharoah-cell-", "pharoah-new-cell-"


class HeldFolder(NamedTuple):
    """A scratch folder and the lock on it."""

    path: Path
    lock: int
    """A descriptor: as long as somebody has it open, the folder is in use. A cell closes it at once."""


@contextlib.contextmanager
def held_folder() -> Iterator[HeldFolder]:
    """A new scratch folder. Folders that nobody holds, because the owner was killed, are deleted first."""
    _delete_abandoned()
    new = Path(tempfile.mkdtemp(prefix=_NEW_PREFIX))
    lock = os.open(new, os.O_RDONLY | os.O_DIRECTORY)
    fcntl.flock(lock, fcntl.LOCK_EX)
    # Held before it has the name by which others look for abandoned ones.
    folder = new.rename(new.with_name(new.name.replace(_NEW_PREFIX, _PREFIX)))
    try:
        yield HeldFolder(folder, lock)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)


def beyond_bounds(folder: Path, most_bytes: int, most_files: int) -> str:
    """What a folder holds too much of, in words; empty when it does not."""
    size = count = 0
    for path, _, files in os.walk(folder):
        count += 1 + len(files)
        if count > most_files:
            return f"its scratch folder holds more than {most_files} files"
        for name in files:
            with contextlib.suppress(OSError):
                size += (Path(path) / name).lstat().st_blocks * 512  # stat(2): blocks of 512 bytes
    return f"its scratch folder holds more than {most_bytes} bytes" if size > most_bytes else ""


def _delete_abandoned() -> None:
    for folder in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError):
            if folder.lstat().st_uid != os.getuid():
                continue
            lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # raises BlockingIOError for one that is held
                shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(lock)
