"""Files that are written where they are: new ones, logs that grow, and locks."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from pathlib import Path

from pharoah_system.files._places import Place, open_place, refuse
from pharoah_system.trusted_paths import OTHERS_MAY_WRITE, user_name

_NEVER_WAIT = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
"""Opening a pipe that somebody has put there must not wait for its other end."""


def create_exclusively(path: Path, content: bytes | str, *, mode: int = 0o600) -> None:
    """Write a file that must not exist yet. What cannot be written whole is removed.

    Raises OSError: FileExistsError for whatever has the name, also a symbolic link.
    """
    with open_place(path) as place:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(place.name, flags, mode, dir_fd=place.folder)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(content.encode() if isinstance(content, str) else content)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(place.name, dir_fd=place.folder)
            raise


def open_append(path: Path) -> int:
    """The descriptor of a file that grows, made where it is missing (mode 0600). Whoever has it closes it.

    Raises OSError: PermissionError for a file that others own or may write to, or that has a second name.
    """
    with open_place(path) as place:
        descriptor = _open(place, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        found = os.fstat(descriptor)
        if found.st_nlink > 1:
            why = "it has a second name (a hard link): copy it and put the copy in its place"
        elif found.st_mode & OTHERS_MAY_WRITE:
            why = f"others may write to it (mode {stat.S_IMODE(found.st_mode):04o}): chmod go-w {path}"
        else:
            return descriptor
        os.close(descriptor)
        raise refuse(why)


def open_lock(path: Path, *, create: bool = True) -> int:
    """The descriptor of a file for locks, made where it is missing (mode 0600) unless `create` is false.

    Whoever has it closes it, which ends the lock. Raises OSError: PermissionError for a file that others own, since
    they could keep the lock for ever.
    """
    with open_place(path) as place:
        return _open(place, os.O_RDWR | (os.O_CREAT if create else 0))


def _open(place: Place, flags: int) -> int:
    """A regular file of ours or of root. Raises OSError."""
    try:
        descriptor = os.open(place.name, flags | _NEVER_WAIT, 0o600, dir_fd=place.folder)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise refuse("it is a symbolic link: remove it, or name the file that it leads to") from None
        if error.errno == errno.ENXIO:
            raise refuse("it is not a regular file: remove it") from None
        raise
    found = os.fstat(descriptor)
    if not stat.S_ISREG(found.st_mode):
        why = "it is not a regular file: remove it"
    elif found.st_uid not in (0, os.geteuid()):
        why = f"it belongs to {user_name(found.st_uid)}: remove it, or choose another folder"
    else:
        return descriptor
    os.close(descriptor)
    raise refuse(why)
