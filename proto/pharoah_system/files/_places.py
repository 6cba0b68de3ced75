"""Where a path leads: every step is taken from the folder before it, so that nobody can change the way meanwhile."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import stat
from collections import deque
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from pharoah_system.trusted_paths import MAX_LINKS, user_name, users_on_the_way

_STEP = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
_DESCRIPTOR = re.compile(r"/proc/(\d+)/fd/(\d+)")
"""What `/dev/stdout` and `/dev/fd/N` lead to (proc_pid_fd(5))."""


class Place(NamedTuple):
    """A name in an open folder."""

    folder: int
    """A descriptor that was opened with O_PATH; whoever has the place closes it."""
    name: str
    path: Path
    """For messages: where it is, without symbolic links that were followed."""

    def look(self) -> os.stat_result | None:
        """What has the name now, without following it; None for nothing. Raises OSError."""
        with contextlib.suppress(FileNotFoundError):
            return os.stat(self.name, dir_fd=self.folder, follow_symlinks=False)
        return None

    @property
    def own_descriptor(self) -> int | None:
        """The number of an open file of this process, where the place is its entry in /proc."""
        found = _DESCRIPTOR.fullmatch(str(self.path))
        return int(found[2]) if found and int(found[1]) == os.getpid() else None


@contextlib.contextmanager
def open_place(path: Path, *, follow: bool = False) -> Iterator[Place]:
    """The place that a path leads to, open while inside. `follow`: also where its last part is a symbolic link.

    Raises OSError that names the path: PermissionError for a symbolic link that belongs neither to us nor to root.
    """
    with name_errors(path):
        place = find_place(path, follow=follow)
        try:
            yield place
        finally:
            os.close(place.folder)


@contextlib.contextmanager
def name_errors(path: Path) -> Iterator[None]:
    """An OSError from inside names this path: names within an open folder say nothing to people."""
    try:
        yield
    except OSError as error:
        if error.errno is None or (error.filename == str(path) and error.filename2 is None):
            raise
        raise OSError(error.errno, error.strerror, str(path)) from None


def refuse(why: str) -> PermissionError:
    """The error for something that was found on the way; `why` says what to do."""
    return PermissionError(errno.EPERM, why)


def find_place(path: Path, *, follow: bool = False) -> Place:
    """The same, without an end: whoever asks closes the folder. Raises OSError."""
    if path.is_absolute():
        ahead, here, shown = deque(path.parts[1:]), _root(), PurePosixPath("/")
    else:  # the way to the current folder may be closed for us; its name is for messages
        current = PurePosixPath(os.getcwd())  # noqa: PTH109
        ahead, here, shown = deque(path.parts), os.open(".", _STEP | os.O_DIRECTORY), current
    links_left = MAX_LINKS
    try:
        while ahead:
            part = ahead.popleft()
            if part == "..":
                here, shown = _enter(here, os.open("..", _STEP | os.O_DIRECTORY, dir_fd=here)), shown.parent
                continue
            place = Place(here, part, Path(shown / part))
            if not ahead and (not follow or place.own_descriptor is not None or not _is_link(place)):
                return place
            try:
                # O_DIRECTORY: what is mounted on demand is mounted now (open(2), O_PATH).
                step = os.open(part, _STEP | os.O_DIRECTORY, dir_fd=here)
            except NotADirectoryError:
                if not (links_left := links_left - 1):
                    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP)) from None
                target = PurePosixPath(_target(place))
                if target.is_absolute():
                    here, shown = _enter(here, _root()), PurePosixPath("/")
                ahead.extendleft(reversed(target.parts[1:] if target.is_absolute() else target.parts))
                continue
            here, shown = _enter(here, step), shown / part
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    except BaseException:
        os.close(here)
        raise


def _is_link(place: Place) -> bool:
    found = place.look()
    return found is not None and stat.S_ISLNK(found.st_mode)


def _target(place: Place) -> str:
    """Where a symbolic link leads. Raises NotADirectoryError for anything else, and PermissionError."""
    link = os.open(place.name, _STEP, dir_fd=place.folder)
    try:
        found = os.fstat(link)
        if not stat.S_ISLNK(found.st_mode):
            raise NotADirectoryError(errno.ENOTDIR, f"{place.path} is not a folder")
        if found.st_uid not in users_on_the_way():
            raise refuse(f"{place.path} is a symbolic link of {user_name(found.st_uid)}: name the file itself")
        return os.readlink("", dir_fd=link)
    finally:
        os.close(link)


def _root() -> int:
    return os.open("/", _STEP | os.O_DIRECTORY)


def _enter(before: int, now: int) -> int:
    os.close(before)
    return now
