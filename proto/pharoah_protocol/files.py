"""The one way to write a file that another process may read at the same time.

Imported by the training process, so it needs the standard library only.
"""

from __future__ import annotations

import os
from pathlib import Path


def write_atomically(path: Path, content: bytes | str, *, mode: int = 0o600, durable: bool = False) -> None:
    """Create or replace `path`; a reader sees the old content or the new one, never a part. Raises OSError.

    `durable` also waits until the content and its name are on the disk, so that they survive a power cut.
    """
    scratch = scratch_path(path)
    data = content.encode() if isinstance(content, str) else content
    try:
        scratch.unlink(missing_ok=True)  # left by a process that had our number and was killed
        with os.fdopen(os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
            file.write(data)
            if durable:
                file.flush()
                os.fsync(file.fileno())
        scratch.replace(path)
    except OSError:
        scratch.unlink(missing_ok=True)
        raise
    if durable:
        _sync_folder(path.parent)


def scratch_path(path: Path) -> Path:
    """Where this process writes the content before it replaces `path`: a hidden file that ends with our process id."""
    return path.with_name(f".{path.name}.{os.getpid()}")


def _sync_folder(folder: Path) -> None:
    """A rename is durable only when the folder that holds the name is on the disk."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
