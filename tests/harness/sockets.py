"""Folders for Unix sockets: private, and with a short path wherever the files of the test are."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def socket_folder() -> Iterator[Path]:
    """A folder that only this user can enter, and that is removed at the end.

    It is directly in /tmp: a path of a socket has 107 bytes at most (unix(7)).
    """
    with tempfile.TemporaryDirectory(prefix="pharoah-", dir="/tmp") as folder:
        yield Path(folder)
