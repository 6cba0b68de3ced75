"""The one way to write a file that another process may read at the same time.

Imported by the training process, so it needs the standard library only.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

_LONGEST_NAME = 50
"""Characters of the name that are repeated in the scratch name: a name may have 255 bytes, and a letter four."""


def write_atomically(
    path: Path,
    content: bytes | str | Callable[[Path], str],
    *,
    mode: int = 0o600,
    durable: bool = False,
    owner_of: Path | None = None,
) -> None:
    """Create or replace `path`; a reader sees the old content or the new one, never a part. Raises OSError.

    A function as `content` gets the new file before it has its name, for content that depends on the file itself.
    `durable` also waits until the content and its name are on the disk, so that they survive a power cut.
    The file gets the owner and the group of `owner_of`, where that is permitted: what root writes for a server must be
    readable for that server.
    """
    descriptor, scratch = _open_scratch(path, mode)
    try:
        with os.fdopen(descriptor, "wb") as file:
            if owner_of is not None:
                _give(descriptor, owner_of.stat())
            made = content(scratch) if callable(content) else content
            file.write(made.encode() if isinstance(made, str) else made)
            if durable:
                file.flush()
                os.fsync(file.fileno())
        scratch.replace(path)
    except OSError:
        scratch.unlink(missing_ok=True)
        raise
    if durable:
        _sync_folder(path.parent)


class _Scratch(NamedTuple):
    descriptor: int
    path: Path


def _open_scratch(path: Path, mode: int) -> _Scratch:
    """A new hidden file beside `path`. Nobody can know its name before, so nobody can have left a link there."""
    while True:
        scratch = path.with_name(f".{path.name[:_LONGEST_NAME]}.{os.urandom(8).hex()}")
        with contextlib.suppress(FileExistsError):
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            return _Scratch(os.open(scratch, flags, mode), scratch)


def _give(descriptor: int, like: os.stat_result) -> None:
    with contextlib.suppress(PermissionError):
        os.fchown(descriptor, like.st_uid, like.st_gid)


def _sync_folder(folder: Path) -> None:
    """A rename is durable only when the folder that holds the name is on the disk."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
