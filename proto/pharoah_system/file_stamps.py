"""Whether a file is another one than before: certificates and tokens are read again only then."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple


class FileStamp(NamedTuple):
    """What changes when a file is written or replaced."""

    modified_ns: int
    size_bytes: int
    inode: int


def stamp_of(file: Path) -> FileStamp | None:
    """The stamp of a file; None for one that cannot be found."""
    try:
        status = file.stat()
    except OSError:
        return None
    return FileStamp(modified_ns=status.st_mtime_ns, size_bytes=status.st_size, inode=status.st_ino)
