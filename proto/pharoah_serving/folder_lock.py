"""One process per folder: keys and audit logs that two processes write contradict themselves."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from types import TracebackType

from pharoah_serving.errors import StoreError
from pharoah_system.trusted_paths import make_folder

_LOCKS = Path("/proc/locks")


class FolderLock:
    """Holds a folder for one process until `close`, or until the process ends, however it ends."""

    def __init__(self, folder: Path, what: str) -> None:
        """`what` names the kind of process in the message. Raises StoreError when another process holds the folder, and
        when others can change it."""
        self.folder = folder
        try:
            make_folder(folder)
            self._descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            raise StoreError(f"{folder}: {error.strerror}") from None
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = _holder(self._descriptor)
            os.close(self._descriptor)
            raise StoreError(
                f"{folder}: another {what} uses this folder ({holder}); each needs a folder of its own"
            ) from None
        except OSError as error:  # a remote disk without locks
            os.close(self._descriptor)
            raise StoreError(f"{folder}: cannot be locked ({error.strerror}); use a folder on a local disk") from None

    def close(self) -> None:
        """Let others use the folder. A second call does nothing."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
        self._descriptor = -1

    def __enter__(self) -> FolderLock:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _holder(descriptor: int) -> str:
    """The process that holds the lock. The kernel lists it as `1: FLOCK ADVISORY WRITE PID MAJOR:MINOR:INODE 0 EOF`."""
    inode = str(os.fstat(descriptor).st_ino)
    try:
        for line in _LOCKS.read_text().splitlines():
            fields = line.split()
            if len(fields) >= 6 and fields[1] == "FLOCK" and fields[5].rpartition(":")[2] == inode:
                return f"pid {fields[4]}"
    except OSError:
        pass
    return "its pid is not known"
