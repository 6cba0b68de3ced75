"""Files on a disk: written and made durable, and read past the cache of the kernel."""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
import random
import tempfile
from pathlib import Path

from pharoah_benchmarks.micro import Check, CheckedKernel, NotPossible

CHUNK_BYTES = 4 << 20
"""One call of the system; a multiple of every block size, which direct access needs (open(2), O_DIRECT)."""
_STAMP_BYTES = 8
_FREE_SHARE = 4
"""The folder must have free so many times the size of the file: a measurement must not fill a disk."""


def nameless_file(folder: Path, size_bytes: int) -> int:
    """A file that the kernel deletes when its descriptor is closed, also when the process is killed.

    Raises NotPossible for a folder that cannot be written or has too little space.
    """
    try:
        free = os.statvfs(folder)
        if free.f_bavail * free.f_frsize < _FREE_SHARE * size_bytes:
            raise NotPossible(f"{folder}: less than {_FREE_SHARE * size_bytes >> 20} MiB are free")
        try:
            return os.open(folder, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o600)
        except OSError as error:
            # Some file systems have no O_TMPFILE (open(2)).
            if error.errno not in (errno.EOPNOTSUPP, errno.EISDIR, errno.ENOENT, errno.EINVAL):
                raise
        number, name = tempfile.mkstemp(prefix=".pharoah-", dir=folder)
        Path(name).unlink()
        return number
    except OSError as error:
        raise NotPossible(f"{folder}: {error.strerror}; name another folder") from None


class _File(CheckedKernel):
    """A file of some chunks, each of which is the same random bytes with its number."""

    def __init__(self, folder: Path, size_bytes: int) -> None:
        self._chunks = size_bytes // CHUNK_BYTES
        self._content = random.Random(1).randbytes(CHUNK_BYTES)
        self._buffer = mmap.mmap(-1, CHUNK_BYTES)  # memory that begins at a page, as direct access needs it
        self._repeat, self._wrong = 0, 0
        self._file = nameless_file(folder, size_bytes)
        self._set_direct(True)

    def _set_direct(self, direct: bool) -> None:
        """Past the cache of the kernel where the file system can do it."""
        flags = fcntl.fcntl(self._file, fcntl.F_GETFL)
        try:
            fcntl.fcntl(self._file, fcntl.F_SETFL, flags | os.O_DIRECT if direct else flags & ~os.O_DIRECT)
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise

    def _stamp(self, chunk: int) -> bytes:
        return (self._repeat * self._chunks + chunk).to_bytes(_STAMP_BYTES, "little")

    def _write(self) -> None:
        """Write the file and wait until it is durable."""
        self._buffer[:] = self._content
        for chunk in range(self._chunks):
            self._buffer[:_STAMP_BYTES] = self._stamp(chunk)
            self._all_of(chunk, write=True)
        os.fsync(self._file)

    def _read(self) -> None:
        """Read the file from the disk, and count the chunks that differ."""
        os.posix_fadvise(self._file, 0, 0, os.POSIX_FADV_DONTNEED)
        for chunk in range(self._chunks):
            self._all_of(chunk, write=False)
            self._wrong += self._buffer[:] != self._stamp(chunk) + self._content[_STAMP_BYTES:]

    def _all_of(self, chunk: int, *, write: bool) -> None:
        """Write or read one chunk. Where direct access fails with the first call, the cache of the kernel is used."""
        for _ in range(2):
            try:
                move = os.pwritev if write else os.preadv
                moved = move(self._file, [self._buffer], chunk * CHUNK_BYTES)
                if moved != CHUNK_BYTES:
                    raise OSError(errno.EIO, f"{moved} of {CHUNK_BYTES} bytes were moved")
                return
            except OSError as error:
                if error.errno != errno.EINVAL:
                    raise
                self._set_direct(False)
        raise NotPossible("the file system takes neither direct nor cached access; name another folder")

    def check(self) -> Check:
        """Everything that was read was what had been written."""
        return Check(self._wrong == 0)

    def close(self) -> None:
        os.close(self._file)
        self._buffer.close()


class FileWritten(_File):
    """Write a file and make it durable (fsync). The last one is read once, for the check."""

    def __call__(self) -> None:
        self._repeat += 1
        self._write()

    def check(self) -> Check:
        self._read()
        return super().check()


class FileRead(_File):
    """Read a file that was written before."""

    def __init__(self, folder: Path, size_bytes: int) -> None:
        super().__init__(folder, size_bytes)
        try:
            self._write()
        except BaseException:
            self.close()
            raise

    def __call__(self) -> None:
        self._read()


class FileWrittenAndRead(_File):
    """Write a file, make it durable, and read it back."""

    def __call__(self) -> None:
        self._repeat += 1
        self._write()
        self._read()
