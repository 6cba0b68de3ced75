"""Packed inputs of others: what they unpack to is bounded by what they are."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, BinaryIO, NamedTuple

from pharoah_system.bounded_reading._content import UnreadableInput, open_regular

if TYPE_CHECKING:
    import tarfile
    import zipfile

MAX_RATIO = 200
"""Unpacked over packed bytes. Traces of profilers have 10 to 60, and gzip can have 1,032."""
_WINDOW_BYTES = 2 << 20
"""Unpacked bytes over which the ratio is taken: an archive may hold a bomb behind much that is none."""
MAX_UNPACKED_BYTES = 64 << 30
MAX_DIRECTORY_BYTES = 2 << 20
"""The list of what an archive holds: 40,000 short names."""
MAX_HEADER_BYTES = 64 << 10
"""The size of one description of a member of a tar archive: a path has at most 4,096 bytes (PATH_MAX of Linux)."""
_CHUNK_BYTES = 1 << 20
_RECENT_BYTES = 1 << 10
"""Two blocks of a tar archive."""
_GZIP = b"\x1f\x8b"
"""How a file of gzip begins (RFC 1952)."""


class BoundedStream(io.RawIOBase):
    """Unpacked bytes of gzip, or of what `unpacker` unpacks from the same file. `read` raises UnreadableInput for
    damage, and when they grow out of all proportion."""

    def __init__(self, packed: IO[bytes], source: object, unpacker: IO[bytes] | None = None) -> None:
        import gzip  # here: ranks import this package, and unpack nothing

        super().__init__()
        self._packed, self._source = packed, source
        self._stream = unpacker or gzip.GzipFile(fileobj=packed)
        self._total = self._window = self._packed_before = self._at = 0
        self._recent = b""
        """The last bytes, for who goes back by some."""

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Go on to a later byte, or a little back, as `tarfile` does between two members. Raises UnreadableInput."""
        offset += self._at if whence == os.SEEK_CUR else 0
        if whence == os.SEEK_END or offset < self._total - len(self._recent):
            raise UnreadableInput(self._source, "it cannot be read backwards", self._place)
        self._at = min(offset, self._total)
        while self._at < offset and self.read(min(_CHUNK_BYTES, offset - self._at)):
            pass
        return self._at

    def close(self) -> None:
        super().close()
        self._stream.close()
        self._packed.close()

    def read(self, size: int = -1) -> bytes:
        """Up to `size` bytes; fewer only at the end."""
        again = self._recent[len(self._recent) - (self._total - self._at) :] if self._at < self._total else b""
        found = bytearray(again if size < 0 else again[:size])
        while size < 0 or len(found) < size:
            wanted = _CHUNK_BYTES if size < 0 else min(_CHUNK_BYTES, size - len(found))
            if not (content := self._unpack(wanted)):
                break
            found += content
        self._at += len(found)
        return bytes(found)

    def _unpack(self, size: int) -> bytes:
        import zlib

        try:
            content = self._stream.read(size)
        except (OSError, EOFError, zlib.error) as fault:
            raise UnreadableInput(self._source, f"damaged or cut short: {fault}", self._place) from None
        self._total += len(content)
        self._recent = (self._recent + content)[-_RECENT_BYTES:]
        self._window += len(content)
        if self._window >= _WINDOW_BYTES:
            packed = self._packed.seek(0, os.SEEK_CUR)
            if self._window > MAX_RATIO * (packed - self._packed_before) or self._total > MAX_UNPACKED_BYTES:
                raise UnreadableInput(
                    self._source, f"it unpacks to more than {MAX_RATIO} times its size: unpack and look at it yourself",
                    self._place,
                )  # fmt: skip
            self._window, self._packed_before = 0, packed
        return content

    @property
    def _place(self) -> str:
        return f"byte {self._total:,}"


def unpack(content: io.BufferedReader, source: object) -> IO[bytes]:
    """The content of a stream, which may be gzip whatever its name is."""
    is_packed = content.peek(len(_GZIP)).startswith(_GZIP)
    return BoundedStream(content, source) if is_packed else content  # type: ignore[return-value]


class TarMember(NamedTuple):
    """A file in a tar archive. Its content can be read until the next member is asked for."""

    name: str
    content: io.BufferedReader


def members_of_tar(path: Path) -> Iterator[TarMember]:
    """The regular files of a tar archive, which may be gzip; links, devices and sparse files are left out.

    Nothing is extracted. Raises UnreadableInput and OSError.
    """
    import tarfile

    with open_regular(path) as raw:
        stream = unpack(raw, path)
        try:
            with tarfile.open(fileobj=stream, mode="r:", tarinfo=_bound_headers()) as archive:
                for member in archive:
                    content = archive.extractfile(member) if member.isreg() and not member.issparse() else None
                    if isinstance(content, io.BufferedReader):
                        yield TarMember(member.name, content)
                    archive.members = []  # type: ignore[attr-defined] # it keeps them all
        except (tarfile.TarError, EOFError, ValueError, RecursionError, OverflowError) as fault:
            if isinstance(fault, UnreadableInput):
                raise
            raise UnreadableInput(path, f"a damaged archive: {fault or type(fault).__name__}") from None


def _bound_headers() -> type[tarfile.TarInfo]:
    import tarfile

    long_names = {tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK}
    described = {tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.SOLARIS_XHDTYPE, *long_names}

    class BoundedInfo(tarfile.TarInfo):
        """A member whose descriptions, which `tarfile` reads into memory and searches, are short."""

        @classmethod
        def frombuf(cls, *arguments: Any, **named: Any) -> Any:
            found = super().frombuf(*arguments, **named)
            if found.size < 0 or (found.type in described and found.size > MAX_HEADER_BYTES):
                raise tarfile.ReadError(f"a header of {found.size:,} bytes")
            return found

    return BoundedInfo


class _ShortReads(io.BufferedReader):
    """A file that is never asked for more than a list of entries has: `zipfile` takes the size from the file itself."""

    source: object = ""

    def read(self, size: int | None = -1) -> bytes:
        is_short = size is not None and 0 <= size <= MAX_DIRECTORY_BYTES
        content = super().read(size if is_short else MAX_DIRECTORY_BYTES + 1)
        if len(content) > MAX_DIRECTORY_BYTES:
            raise UnreadableInput(self.source, f"its list of entries has more than {MAX_DIRECTORY_BYTES:,} bytes")
        return content


class ZipReader:
    """A ZIP archive that holds its entries as they are, so that none is larger than the file. Raises UnreadableInput
    and OSError, also while it reads."""

    def __init__(self, path: Path, file: BinaryIO | None = None) -> None:
        """`file`: the open file, where the caller has looked at it; it is closed here."""
        import zipfile

        self._path = path
        self._file: IO[bytes] = io.BytesIO()  # there is one to close, also where the other cannot be opened
        with file or open_regular(path) as found:
            self._file = own = _ShortReads(io.FileIO(os.dup(found.fileno())))
        own.source = path
        try:
            size = os.fstat(self._file.fileno()).st_size
            self._archive = zipfile.ZipFile(own)
            self._entries = {info.filename: info for info in self._archive.infolist()}
            self._check(size)
        except Exception as fault:  # noqa: BLE001 - `zipfile` has half a dozen errors for damage
            self._file.close()
            raise self._unreadable(fault) from None

    def _check(self, size: int) -> None:
        for info in self._entries.values():
            if info.compress_type or info.file_size != info.compress_size or info.flag_bits & 1:
                raise UnreadableInput(self._path, "packed or encrypted, which no file of this kind is", info.filename)
        if sum(info.file_size for info in self._archive.infolist()) > size:
            raise UnreadableInput(self._path, "its entries overlap: they are larger than the file")

    def __contains__(self, entry: object) -> bool:
        return entry in self._entries

    def size(self, entry: str) -> int:
        """The bytes of an entry. Raises UnreadableInput."""
        return self._info(entry).file_size

    def read(self, entry: str, max_bytes: int | None = None) -> bytearray:
        """The bytes of an entry. Raises UnreadableInput for more than `max_bytes`, and for damage."""
        info = self._info(entry)
        if max_bytes is not None and info.file_size > max_bytes:
            raise UnreadableInput(self._path, f"larger than {max_bytes:,} bytes, which no file of this kind has", entry)
        content, end = bytearray(info.file_size), 0
        try:
            with self._archive.open(info) as file:
                while piece := file.read(_CHUNK_BYTES):
                    content[end : end + len(piece)] = piece
                    end += len(piece)
        except Exception as fault:  # noqa: BLE001 - as above
            raise self._unreadable(fault, entry) from None
        if end != len(content):
            raise UnreadableInput(self._path, "cut short: copy the file again", entry)
        return content

    def close(self) -> None:
        """Close the file; it is closed as well when nobody refers to this object any more."""
        self._file.close()

    __del__ = close

    def _info(self, entry: str) -> zipfile.ZipInfo:
        if entry not in self._entries:
            raise UnreadableInput(self._path, "there is no such entry", entry)
        return self._entries[entry]

    def _unreadable(self, fault: Exception, entry: str = "") -> Exception:
        if isinstance(fault, (UnreadableInput, OSError)):
            return fault
        return UnreadableInput(self._path, f"no ZIP archive, or a damaged one ({fault}): copy the file again", entry)
