"""Files and folders that no other user of this machine can change.

A token or a key is a secret only in a file that nobody else can read. A socket belongs to its server only in a folder
in which nobody else can put another socket in its place. Root and we ourselves are always trusted; settings may name
further users. An access control list needs no look of its own: its mask appears in the bits of the group (acl(5)).
"""

from __future__ import annotations

import os
import pwd
import stat
from pathlib import Path

MOST_LINKS = 40
"""Symbolic links in one path; Linux follows no more than that (path_resolution(7))."""
OTHERS_MAY_ACCESS = stat.S_IRWXG | stat.S_IRWXO
OTHERS_MAY_WRITE = stat.S_IWGRP | stat.S_IWOTH


class UntrustedPathError(ValueError):
    """A path that others can read or change; the message names it and says what to do."""


def trusted_users(names: str = "") -> frozenset[int]:
    """User ids of root, of us, and of `names` (names or numbers, separated by commas).

    Raises UntrustedPathError for a user that this machine does not have.
    """
    further = [name.strip() for name in names.split(",")]
    return frozenset({0, os.geteuid(), *(_user_id(name) for name in further if name)})


def private_content(path: Path) -> bytes:
    """The content of a regular file that belongs to us or to root and that others can neither read nor write.

    Raises UntrustedPathError for any other file, OSError for one that cannot be read.
    """
    # O_NONBLOCK: opening a pipe that somebody has put there must not wait for its other end.
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
    try:
        _check_private(path, os.fstat(descriptor))
    except UntrustedPathError:
        os.close(descriptor)
        raise
    with os.fdopen(descriptor, "rb") as file:
        return file.read()


def trusted_folder(folder: Path, users: frozenset[int]) -> Path:
    """The real path of a folder in which only `users` can add, rename or remove anything.

    Every folder above it and every symbolic link on the way is checked as well. A folder that does not exist is trusted
    when only `users` can make it. Raises UntrustedPathError, OSError.
    """
    root = Path("/")
    _check_on_the_way(root, root.lstat(), users)
    return _followed(root, folder.absolute().parts[1:], users, MOST_LINKS)


def check_owner(path: Path, found: os.stat_result, users: frozenset[int]) -> None:
    """Raises UntrustedPathError unless one of `users` owns what was found at `path`."""
    if found.st_uid not in users:
        raise UntrustedPathError(f"{path} belongs to {user_name(found.st_uid)}, who is not trusted here")


def user_name(user: int) -> str:
    """How messages name a user: with the number where the machine knows no name."""
    try:
        return f"user {pwd.getpwuid(user).pw_name} ({user})"
    except KeyError:
        return f"user {user}"


def _followed(here: Path, ahead: tuple[str, ...], users: frozenset[int], links_left: int) -> Path:
    """`here` is real and checked; `ahead` are the parts of the path that are left."""
    if not ahead:
        _check_closed(here)
        return here
    first, rest = ahead[0], ahead[1:]
    if first == "..":
        return _followed(here.parent, rest, users, links_left)
    step = here / first
    try:
        found = step.lstat()
    except FileNotFoundError:
        _check_closed(here)  # whoever may write here could make what is missing
        return step.joinpath(*rest)
    check_owner(step, found, users)
    if stat.S_ISLNK(found.st_mode):
        if not links_left:
            raise UntrustedPathError(f"{step}: more than {MOST_LINKS} symbolic links")
        target = step.readlink()
        start, parts = (Path("/"), target.parts[1:]) if target.is_absolute() else (here, target.parts)
        return _followed(start, (*parts, *rest), users, links_left - 1)
    _check_on_the_way(step, found, users)
    return _followed(step, rest, users, links_left)


def _check_on_the_way(folder: Path, found: os.stat_result, users: frozenset[int]) -> None:
    """A folder like /tmp may lie on the way: where the sticky bit is set, only its owner can rename an entry."""
    check_owner(folder, found, users)
    if not stat.S_ISDIR(found.st_mode):
        raise UntrustedPathError(f"{folder} is not a folder")
    if found.st_mode & OTHERS_MAY_WRITE and not found.st_mode & stat.S_ISVTX:
        raise _writable(folder, found)


def _check_closed(folder: Path) -> None:
    """Only its owner may add anything to this folder."""
    found = folder.lstat()
    if found.st_mode & OTHERS_MAY_WRITE:
        raise _writable(folder, found)


def _check_private(path: Path, found: os.stat_result) -> None:
    if not stat.S_ISREG(found.st_mode):
        raise UntrustedPathError(f"{path} is not a regular file")
    if found.st_uid not in (0, os.geteuid()):
        owner = user_name(found.st_uid)
        raise UntrustedPathError(f"{path} belongs to {owner}: only its owner and root may use it (chown it)")
    if found.st_mode & OTHERS_MAY_ACCESS:
        mode = stat.S_IMODE(found.st_mode)
        raise UntrustedPathError(f"{path} can be read or written by others (mode {mode:04o}): chmod 600 {path}")


def _writable(folder: Path, found: os.stat_result) -> UntrustedPathError:
    mode = stat.S_IMODE(found.st_mode)
    return UntrustedPathError(
        f"{folder} can be written by others (mode {mode:04o}): chmod go-w {folder}, or use another folder"
    )


def _user_id(name: str) -> int:
    if name.isdecimal():
        return int(name)
    try:
        return pwd.getpwnam(name).pw_uid
    except KeyError:
        raise UntrustedPathError(f"{name!r} is not a user of this machine") from None
