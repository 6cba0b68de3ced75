"""Files that a person has named: a file, a link of his own to one, a pipe, `/dev/stdout`."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from pharoah_system.files._atomic import AtomicFile
from pharoah_system.files._places import Place, open_place, refuse
from pharoah_system.trusted_paths import user_name

_LIKE_ANY_PROGRAM = 0o666
"""The mode with which programs make files (open(2)); the mask of the process takes from it."""


def write_output(path: Path, content: bytes | str, *, mode: int = _LIKE_ANY_PROGRAM, only_file: bool = False) -> None:
    """Create or replace what a person has named, as `open_output` does. Raises OSError."""
    with open_output(path, mode=mode, only_file=only_file) as file:
        file.write(content.encode() if isinstance(content, str) else content)


@contextlib.contextmanager
def open_output(path: Path, *, mode: int = _LIKE_ANY_PROGRAM, only_file: bool = False) -> Iterator[BinaryIO]:
    """A file that a person has named, open for writing while inside. An exception leaves nothing of it.

    A file is replaced as a whole and belongs to us then, whoever owned the one before; one of ours does not become
    readable for more users than before. A symbolic link of ours or of root is followed, and stays. Devices, pipes and
    descriptors of this process (`/dev/stdout`) are written straight, unless `only_file`.

    Raises OSError: PermissionError for a link or a pipe of another user.
    """
    with open_place(path, follow=True) as place:
        if (own := place.own_descriptor) is not None and not only_file:
            with os.fdopen(os.dup(own), "wb") as file:
                yield file
            return
        found = place.look()
        if found is None or stat.S_ISREG(found.st_mode):
            ours = found is not None and found.st_uid == os.geteuid()
            with AtomicFile.from_place(place, mode & found.st_mode if found is not None and ours else mode) as new:
                yield new.file
        elif only_file or not (stat.S_ISCHR(found.st_mode) or stat.S_ISFIFO(found.st_mode)):
            what = errno.EISDIR if stat.S_ISDIR(found.st_mode) else errno.EINVAL
            raise OSError(what, "it is not a file")
        else:
            _check_pipe(found)  # before it is opened as well: that waits for whoever reads
            with _device(place) as file:
                yield file


def make_output_folder(folder: Path) -> None:
    """Make a folder that a person has named, with those above it, unless it is there. Raises OSError."""
    for step in reversed([folder, *folder.parents]):
        # `.` and `/` have no name; a folder may have been made by another process meanwhile
        with contextlib.suppress(IsADirectoryError, FileExistsError), open_place(step, follow=True) as place:
            if (found := place.look()) is None:
                os.mkdir(place.name, dir_fd=place.folder)
            elif not stat.S_ISDIR(found.st_mode):
                raise NotADirectoryError(errno.ENOTDIR, "it is not a folder")


@contextlib.contextmanager
def _device(place: Place) -> Iterator[BinaryIO]:
    descriptor = os.open(place.name, os.O_WRONLY | os.O_NOFOLLOW | os.O_NOCTTY | os.O_CLOEXEC, dir_fd=place.folder)
    with os.fdopen(descriptor, "wb") as file:
        found = os.fstat(descriptor)
        if stat.S_ISREG(found.st_mode):
            raise refuse("others have replaced it; choose a folder that they cannot write to")
        _check_pipe(found)
        yield file


def _check_pipe(found: os.stat_result) -> None:
    """Raises PermissionError for a pipe of another user, who would read everything."""
    if stat.S_ISFIFO(found.st_mode) and found.st_uid not in (0, os.geteuid()):
        raise refuse(f"it is a pipe of {user_name(found.st_uid)}: choose another name")
