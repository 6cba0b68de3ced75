"""Folders for sockets: of this user alone, whoever else may write beside them.

`$XDG_RUNTIME_DIR` is used where it is private. Elsewhere a folder is made where programs keep temporary files, and one
that somebody else has prepared, or that is a symbolic link, is never entered.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from pharoah_system.files import open_lock
from pharoah_system.trusted_paths import UntrustedPathError, check_shared_folder

MAX_SOCKET_PATH_LENGTH = 107
"""Bytes of the path of a Unix socket on Linux (unix(7)); schedulers like to set a long TMPDIR."""
PREFIX = "pharoah-"
_NAME_BYTES = len(f"/{PREFIX}0123456789abcdef/sidecar.sock")
_LOCK = "lock"
"""File that a process locks while it starts a sidecar in the folder, and a sidecar while it removes the folder."""
_RUNTIME = "XDG_RUNTIME_DIR"
"""Where programs of a user keep sockets, by the XDG base directory specification: mode 0700, on this machine."""
_TEMPORARY = (Path("/tmp"), Path("/var/tmp"))
"""Folders for temporary files that every system has (FHS 3.0). Python's own choice may be the current folder."""
_POLL_SECONDS = 0.01
_OTHERS = stat.S_IRWXG | stat.S_IRWXO


def socket_bases() -> list[Path]:
    """Folders in which folders for sockets may be made, the best first. Raises FileNotFoundError when there is none."""
    runtime, temporary = os.environ.get(_RUNTIME, ""), os.environ.get("TMPDIR", "")
    private = runtime and _is_private(Path(runtime)) and _keeps_others_out(Path(runtime))
    candidates = [Path(runtime)] if private else []
    candidates += [folder for folder in (Path(temporary), *_TEMPORARY) if _keeps_others_out(folder)]
    found = [folder for folder in dict.fromkeys(candidates) if folder.is_absolute() and _is_short_enough(folder)]
    if not found:
        raise FileNotFoundError(
            f"no folder for sockets: {_RUNTIME} is not set or not private, and in TMPDIR, /tmp and /var/tmp others may "
            "change what is made there, or their paths are too long"
        )
    return found


def private_folder() -> Path:
    """A new folder for sockets that only this user may enter. Raises OSError."""
    refused: OSError | None = None
    for base in socket_bases():
        try:
            folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=base))
        except OSError as error:  # full, or not ours to write to
            refused = error
            continue
        os.close(_open_lock(folder))
        return folder
    raise refused or FileNotFoundError("no folder for sockets")


def own_folder(path: Path) -> None:
    """Make a folder that only this user may enter, unless there is one. Raises PermissionError when something else
    has its name, and OSError."""
    with contextlib.suppress(FileExistsError):
        path.mkdir(mode=0o700)
    if not _is_private(path):
        raise PermissionError(errno.EPERM, "is not a folder of this user alone", str(path))


@contextlib.contextmanager
def lock(folder: Path, seconds: float) -> Iterator[None]:
    """Inside, no other process of this user holds the folder's lock. The folder is made if need be.

    Raises TimeoutError when another process keeps it for longer than that, and OSError.
    """
    descriptor = _lock(folder, time.monotonic() + seconds)
    try:
        yield
    finally:
        os.close(descriptor)


def _lock(folder: Path, deadline: float) -> int:
    """The open lock. Raises TimeoutError and OSError."""
    while True:
        own_folder(folder)
        # A sidecar that ends removes folder and lock; then the lock that was waited for locks nothing any more.
        with contextlib.suppress(FileNotFoundError):
            descriptor = _open_lock(folder)
            try:
                _wait_for_lock(descriptor, folder, deadline)
                if _is_at(descriptor, folder / _LOCK):
                    return descriptor
            except BaseException:
                os.close(descriptor)
                raise
            os.close(descriptor)


def remove_folder(socket_path: Path) -> None:
    """At the end of the sidecar of a path: remove its folder. One in which another process starts a sidecar stays."""
    folder = socket_path.parent
    with contextlib.suppress(OSError):
        descriptor = _open_lock(folder, create=False)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if not socket_path.exists():
                (folder / _LOCK).unlink()
                folder.rmdir()
        finally:
            os.close(descriptor)


def sockets_of_this_user(name: str) -> Iterator[Path]:
    """Sockets of a name in all folders that are this user's."""
    with contextlib.suppress(OSError):
        for base in socket_bases():
            for path in sorted(base.glob(f"{PREFIX}*/{name}")):
                if _is_private(path.parent):
                    yield path


def _open_lock(folder: Path, *, create: bool = True) -> int:
    return open_lock(folder / _LOCK, create=create)


def _wait_for_lock(descriptor: int, folder: Path, deadline: float) -> None:
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{folder}: another process has been starting a sidecar for too long") from None
            time.sleep(_POLL_SECONDS)


def _is_at(descriptor: int, path: Path) -> bool:
    """Whether a path still leads to an open file."""
    try:
        return os.path.samestat(os.fstat(descriptor), path.lstat())
    except FileNotFoundError:
        return False


def _is_private(folder: Path) -> bool:
    """Whether it is a real folder of this user that nobody else may enter."""
    try:
        found = folder.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & _OTHERS


def _keeps_others_out(folder: Path) -> bool:
    """Whether nobody else can rename or replace what this user makes in a folder, nor the way to it."""
    try:
        check_shared_folder(folder)
    except (OSError, UntrustedPathError):
        return False
    return True


def _is_short_enough(folder: Path) -> bool:
    return len(os.fsencode(folder)) + _NAME_BYTES <= MAX_SOCKET_PATH_LENGTH
