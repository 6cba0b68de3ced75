"""Files that appear under their name when they are whole."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import stat
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

from pharoah_system.files._places import Place, find_place, name_errors, refuse

_MAX_NAME_LENGTH = 50
"""Characters of the name that are repeated in the scratch name: a name may have 255 bytes, and a letter four."""
_RANDOM_BYTES = 8


def write_atomically(
    path: Path,
    content: bytes | str | Callable[[Path], str],
    *,
    mode: int = 0o600,
    durable: bool = False,
    owner_of: Path | None = None,
) -> None:
    """Create or replace `path`; a reader sees the old content or the new one, never a part. Raises OSError.

    A symbolic link with this name is replaced, not followed.
    A function as `content` gets the new file before it has its name, for content that depends on the file itself.
    `durable` also waits until the content and its name are on the disk, so that they survive a power cut.
    The file gets the owner and the group of `owner_of`, where that is permitted: what root writes for a server must be
    readable for that server.
    """
    with AtomicFile(path, mode=mode, durable=durable) as new:
        if owner_of is not None:
            _give(new.file.fileno(), owner_of.stat())
        made = content(new.scratch) if callable(content) else content
        new.file.write(made.encode() if isinstance(made, str) else made)


class AtomicFile:
    """A file that is written piece by piece, and gets its name with `keep`; `discard` leaves nothing of it.

    As a context manager it is kept unless an exception ends the context. Until then it has a name that nobody can know
    before, so that nobody can have left a link or a file there. Raises OSError.
    """

    def __init__(self, path: Path, *, mode: int = 0o600, durable: bool = False, delete_abandoned: bool = False) -> None:
        """`mode` is what others may do with it, as far as the mask of this process permits. `delete_abandoned`: what
        processes that were killed have left of this file goes first; it takes a look at all names of the folder."""
        with name_errors(path):
            self._begin(find_place(path), mode, durable)
            if delete_abandoned:
                self._delete_abandoned()

    @classmethod
    def from_place(cls, place: Place, mode: int) -> AtomicFile:
        """For a place that is open; the file has a descriptor of its own of the folder. Raises OSError."""
        made = cls.__new__(cls)
        made._begin(place._replace(folder=os.dup(place.folder)), mode, durable=False)
        return made

    def _begin(self, place: Place, mode: int, durable: bool) -> None:
        self._place, self._durable, self._owner = place, durable, os.getpid()
        try:
            self._name, descriptor = _new_file(place, mode)
        except BaseException:
            os.close(place.folder)
            raise
        self._made = os.fstat(descriptor)
        self.file = os.fdopen(descriptor, "wb")
        """The new file, open for writing."""
        self.scratch = place.path.with_name(self._name)
        """Its name so far."""
        self._ended = False

    def keep(self) -> None:
        """It is whole: from now on it has its name. Raises OSError, and leaves nothing of it then."""
        try:
            with name_errors(self._place.path):
                self.file.flush()
                if self._durable:
                    os.fsync(self.file.fileno())
                locked = os.dup(self.file.fileno())  # the lock holds until the file has its name
                try:
                    self.file.close()  # a server of files may say only now that it has no room
                    self._rename()
                finally:
                    os.close(locked)
        except BaseException:
            self.discard()
            raise
        self._end()

    def _rename(self) -> None:
        folder = self._place.folder
        # Where everybody may rename everything, somebody else's file could get our name.
        if not _is_at(self._made, self._name, folder):
            raise refuse("others have replaced the new file; choose a folder that they cannot write to")
        os.rename(self._name, self._place.name, src_dir_fd=folder, dst_dir_fd=folder)
        if self._durable:
            _sync(folder)

    def discard(self) -> None:
        """Nothing stays of it. In a forked child nothing happens to it: the file belongs to the parent."""
        if self._ended:
            return
        if os.getpid() == self._owner:
            with contextlib.suppress(OSError):
                if _is_at(self._made, self._name, self._place.folder):
                    os.unlink(self._name, dir_fd=self._place.folder)
        elif not self.file.closed:
            nothing = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
            os.dup2(nothing, self.file.fileno(), inheritable=False)  # this takes what its buffer holds
            os.close(nothing)
        self._end()

    def _end(self) -> None:
        self._ended = True
        with contextlib.suppress(OSError):  # it writes what its buffer holds, also onto a full disk
            self.file.close()
        os.close(self._place.folder)

    def _delete_abandoned(self) -> None:
        """Delete what nobody holds a lock on, as whoever writes such a file does."""
        left = re.compile(re.escape(_beginning(self._place)) + f"[0-9a-f]{{{2 * _RANDOM_BYTES}}}")
        with contextlib.suppress(OSError):  # a remote disk without locks, or a folder whose names nobody may read
            fcntl.flock(self.file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            listed = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=self._place.folder)
            try:
                names = [name for name in os.listdir(listed) if left.fullmatch(name)]  # noqa: PTH208 - a descriptor
            finally:
                os.close(listed)
            for name in names:
                if name != self._name:
                    _delete_unlocked(name, self._place.folder)

    def __enter__(self) -> AtomicFile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.keep()
        else:
            self.discard()


def _new_file(place: Place, mode: int) -> tuple[str, int]:
    """The name and the descriptor of a new hidden file in the folder of a place."""
    while True:
        name = f"{_beginning(place)}{os.urandom(_RANDOM_BYTES).hex()}"
        with contextlib.suppress(FileExistsError):
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            return name, os.open(name, flags, mode, dir_fd=place.folder)


def _beginning(place: Place) -> str:
    return f".{place.name[:_MAX_NAME_LENGTH]}."


def _is_at(made: os.stat_result, name: str, folder: int) -> bool:
    """Whether a name in a folder leads to a file."""
    try:
        return os.path.samestat(made, os.stat(name, dir_fd=folder, follow_symlinks=False))
    except FileNotFoundError:
        return False


def _sync(folder: int) -> None:
    """A rename is durable only when the folder that holds the name is on the disk."""
    descriptor = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=folder)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _give(descriptor: int, like: os.stat_result) -> None:
    with contextlib.suppress(PermissionError):
        os.fchown(descriptor, like.st_uid, like.st_gid)


def _delete_unlocked(name: str, folder: int) -> None:
    """Delete a file of ours that nobody has locked."""
    with contextlib.suppress(OSError):
        flags = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
        descriptor = os.open(name, flags, dir_fd=folder)
        try:
            found = os.fstat(descriptor)
            if stat.S_ISREG(found.st_mode) and found.st_uid == os.geteuid():
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                os.unlink(name, dir_fd=folder)
        finally:
            os.close(descriptor)
