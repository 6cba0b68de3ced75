"""Files and folders that no other user of this machine can change.

A token or a key is a secret only in a file that nobody else can read. A socket belongs to its server only in a folder
in which nobody else can put another socket in its place. Root and we ourselves are always trusted; settings may name
further users. An access control list shows in the bits of the group, which hold its mask (acl(5)).
"""

from __future__ import annotations

import contextlib
import errno
import grp
import os
import pwd
import stat
from collections.abc import Callable
from enum import Enum, auto
from pathlib import Path
from typing import BinaryIO

MAX_LINKS = 40
"""Symbolic links in one path; Linux follows no more than that (path_resolution(7))."""
MAX_PRIVATE_BYTES = 16 << 20
"""The size of a file with secrets: a list of 100,000 tokens has about as much."""
OTHERS_MAY_ACCESS = stat.S_IRWXG | stat.S_IRWXO
OTHERS_MAY_WRITE = stat.S_IWGRP | stat.S_IWOTH


class UntrustedPathError(ValueError):
    """A path that others can read or change; the message names it and says what to do."""


class UntrustedFolderError(PermissionError):
    """The same of a folder of state, for those who handle whatever is wrong with files as an OSError."""


def list_trusted_users(names: str = "") -> frozenset[int]:
    """User ids of root, of us, and of `names` (names or numbers, separated by commas).

    Raises UntrustedPathError for a user that this machine does not have.
    """
    further = [name.strip() for name in names.split(",")]
    return frozenset({0, os.geteuid(), *(_user_id(name) for name in further if name)})


def private_content(path: Path) -> bytes:
    """The content of a regular file that belongs to us or to root and that others can neither read nor write.

    Raises UntrustedPathError for any other file, OSError for one that cannot be read.
    """
    with _open(path, _check_private) as file:
        content = file.read(MAX_PRIVATE_BYTES + 1)
    if len(content) > MAX_PRIVATE_BYTES:
        raise UntrustedPathError(f"{path} has more than {MAX_PRIVATE_BYTES:,} bytes: no list of secrets is as long")
    return content


def open_unshared(path: Path) -> BinaryIO:
    """A regular file for reading that belongs to us or to root and that others cannot write.

    Raises UntrustedPathError for any other file, OSError for one that cannot be opened.
    """
    return _open(path, _check_unshared)


def check_trusted_folder(folder: Path, users: frozenset[int]) -> Path:
    """The real path of a folder in which only `users` can add, rename or remove anything.

    Every folder above it and every symbolic link on the way is checked as well. A folder that does not exist is trusted
    when only `users` can make it. Raises UntrustedPathError, OSError.
    """
    return _Way(users, users, _Missing.COUNTS_AS_ITS_FOLDER).follow(folder)


def make_folder(folder: Path) -> Path:
    """The real path of a folder of state, made where it is missing, as all above it (mode 0700).

    It is ours or root's, and only we and root can add, rename or remove anything in it. What is on the way is checked
    before anything is made. Raises UntrustedFolderError, OSError.
    """
    return _state_folder(folder, _Missing.IS_MADE)


def find_folder(folder: Path) -> Path:
    """The same for a folder that must be there. Raises UntrustedFolderError, FileNotFoundError, OSError."""
    return _state_folder(folder, _Missing.IS_AN_ERROR)


def is_own_file(path: Path) -> bool:
    """Whether a file in a folder of state is one of ours: what others have put there once stays when they no longer
    can. False for what is no regular file, and for none."""
    try:
        found = path.lstat()
    except OSError:
        return False
    return stat.S_ISREG(found.st_mode) and found.st_uid in list_trusted_users() and not _others_may_write(path, found)


def own_content(path: Path) -> bytes:
    """The content of such a file. Raises OSError: PermissionError for one of others."""
    try:
        with open_unshared(path) as file:
            content = file.read(MAX_PRIVATE_BYTES + 1)
    except UntrustedPathError as error:
        raise PermissionError(errno.EPERM, f"{error}: remove it, or restore your own", str(path)) from None
    if len(content) > MAX_PRIVATE_BYTES:
        raise OSError(errno.EFBIG, f"more than {MAX_PRIVATE_BYTES:,} bytes", str(path))
    return content


def check_shared_folder(folder: Path) -> Path:
    """The real path of a folder in which nobody else can rename or replace what we make: ours, or one like /tmp.

    Raises UntrustedPathError, OSError.
    """
    way = _Way(users_on_the_way(), users_on_the_way(), _Missing.IS_AN_ERROR, may_be_shared=True)
    return way.follow(folder)


def _state_folder(folder: Path, missing: _Missing) -> Path:
    try:
        advice = "; use another folder, or work as that user"
        return _Way(list_trusted_users(), users_on_the_way(), missing, advice).follow(folder)
    except UntrustedPathError as error:
        raise UntrustedFolderError(errno.EPERM, str(error), str(folder)) from None


def users_on_the_way() -> frozenset[int]:
    """User ids of root, of us, and of whoever owns the root of all folders here: in a container without root's user id
    that is another number (user_namespaces(7)), and its owner can replace every program that we start."""
    return frozenset({0, os.geteuid(), Path("/").stat().st_uid})


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


class _Missing(Enum):
    """What becomes of a folder on the way that does not exist."""

    COUNTS_AS_ITS_FOLDER = auto()
    """It could be made by everybody who may write to the folder above."""
    IS_MADE = auto()
    IS_AN_ERROR = auto()


class _Way:
    """The way to a folder, step by step. `users` may own it, and `passed` the folders and links on the way to it."""

    def __init__(
        self,
        users: frozenset[int],
        passed: frozenset[int],
        missing: _Missing,
        advice: str = "",
        *,
        may_be_shared: bool = False,
    ) -> None:
        self._users, self._passed, self._missing, self._advice = users, passed, missing, advice
        self._may_be_shared = may_be_shared

    def follow(self, folder: Path) -> Path:
        """Raises UntrustedPathError, OSError."""
        root = Path("/")
        _check_on_the_way(root, root.lstat(), self._passed)
        return self._follow(root, folder.absolute().parts[1:], MAX_LINKS)

    def _follow(self, here: Path, ahead: tuple[str, ...], links_left: int) -> Path:
        """`here` is real and checked; `ahead` are the parts of the path that are left."""
        if not ahead:
            self._check_owner(here, found := here.lstat(), self._users)
            if not self._may_be_shared:
                _check_closed(here, found)
            return here
        first, rest = ahead[0], ahead[1:]
        if first == "..":
            return self._follow(here.parent, rest, links_left)
        step = here / first
        try:
            found = self._look(step)
        except FileNotFoundError:
            if self._missing is not _Missing.COUNTS_AS_ITS_FOLDER:
                raise
            _check_closed(here, here.lstat())
            return step.joinpath(*rest)
        self._check_owner(step, found, self._passed)
        if stat.S_ISLNK(found.st_mode):
            if not links_left:
                raise UntrustedPathError(f"{step}: more than {MAX_LINKS} symbolic links")
            target = step.readlink()
            start, parts = (Path("/"), target.parts[1:]) if target.is_absolute() else (here, target.parts)
            return self._follow(start, (*parts, *rest), links_left - 1)
        _check_on_the_way(step, found, self._passed)
        return self._follow(step, rest, links_left)

    def _check_owner(self, path: Path, found: os.stat_result, users: frozenset[int]) -> None:
        try:
            check_owner(path, found, users)
        except UntrustedPathError as error:
            raise UntrustedPathError(f"{error}{self._advice}") from None

    def _look(self, step: Path) -> os.stat_result:
        """What is there, made before where that is asked for. Raises OSError."""
        with contextlib.suppress(FileNotFoundError):
            return step.lstat()
        if self._missing is _Missing.IS_MADE:
            with contextlib.suppress(FileExistsError):  # by another process of ours, or by somebody else
                step.mkdir(mode=0o700)
        return step.lstat()


def _check_on_the_way(folder: Path, found: os.stat_result, users: frozenset[int]) -> None:
    """A folder like /tmp may lie on the way: where the sticky bit is set, only its owner can rename an entry."""
    check_owner(folder, found, users)
    if not stat.S_ISDIR(found.st_mode):
        raise UntrustedPathError(f"{folder} is not a folder")
    if not found.st_mode & stat.S_ISVTX:
        _check_closed(folder, found)


def _check_closed(folder: Path, found: os.stat_result) -> None:
    """Only its owner may add anything to this folder."""
    if _others_may_write(folder, found):
        mode = stat.S_IMODE(found.st_mode)
        raise UntrustedPathError(
            f"{folder} can be written by others (mode {mode:04o}): chmod go-w {folder}, or use another folder"
        )


def _others_may_write(path: Path, found: os.stat_result) -> bool:
    if found.st_mode & stat.S_IWOTH:
        return True
    return bool(found.st_mode & stat.S_IWGRP) and not _is_own_group(path, found.st_gid)


def _is_own_group(path: Path, group: int) -> bool:
    """Whether nobody else is in a group of ours: that of a user with a group of the same name, for whom many systems
    make folders that the group may write to (umask 002, /etc/profile of RHEL), or a number that this machine has no
    name for (`fsGroup` of a pod). An access control list may name others: its mask is in the same bits."""
    if group == 0 or group not in (os.getegid(), *os.getgroups()) or _has_access_list(path):
        return False
    try:
        known = grp.getgrgid(group)
    except KeyError:
        return True
    try:
        own = pwd.getpwuid(os.geteuid())
    except KeyError:
        return False
    return known.gr_name == own.pw_name and own.pw_gid == group and set(known.gr_mem) <= {own.pw_name}


def _has_access_list(path: Path) -> bool:
    try:
        return "system.posix_acl_access" in os.listxattr(path)
    except OSError:  # a file system without lists
        return False


def _open(path: Path, check: Callable[[Path, os.stat_result], None]) -> BinaryIO:
    # O_NONBLOCK: opening a pipe that somebody has put there must not wait for its other end.
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise UntrustedPathError(f"{path} is not a regular file")
        check(path, found)
    except UntrustedPathError:
        os.close(descriptor)
        raise
    return os.fdopen(descriptor, "rb")


def _check_unshared(path: Path, found: os.stat_result) -> None:
    check_owner(path, found, list_trusted_users())
    if _others_may_write(path, found):
        raise UntrustedPathError(f"{path} can be written by others (mode {stat.S_IMODE(found.st_mode):04o})")


def _check_private(path: Path, found: os.stat_result) -> None:
    if found.st_uid not in (0, os.geteuid()):
        owner = user_name(found.st_uid)
        raise UntrustedPathError(f"{path} belongs to {owner}: only its owner and root may use it (chown it)")
    if found.st_mode & OTHERS_MAY_ACCESS:
        mode = stat.S_IMODE(found.st_mode)
        raise UntrustedPathError(f"{path} can be read or written by others (mode {mode:04o}): chmod 600 {path}")


def _user_id(name: str) -> int:
    if name.isdecimal():
        return int(name)
    try:
        return pwd.getpwnam(name).pw_uid
    except KeyError:
        raise UntrustedPathError(f"{name!r} is not a user of this machine") from None
