"""The bytes of an input: of a regular file, up to a bound."""

from __future__ import annotations

import errno
import io
import os
import stat
from pathlib import Path

MAX_FILE_BYTES = 4 << 20
"""The size of a file with a document. The largest that Pharoah writes for others, a portable table, has 1 MB."""
MAX_TABLE_BYTES = 1 << 30
"""The size of a table of past runs, which is read line by line: accounting of some millions of jobs."""
_MAX_PROBLEM = 400
"""Characters of a problem: a parser repeats what it did not expect, and that may be the whole input."""


class UnreadableInput(ValueError):
    """An input that is damaged, foreign or too expensive to read; the message names it, the place and what to do."""

    def __init__(self, source: object, problem: str, place: str = "") -> None:
        """`source`: the file, or the field of a message; `place`: where in it, such as `line 3`."""
        # Not `pharoah_system.text.sanitize_text`: whoever prints a message does that, and a path must stay a path.
        problem = problem if len(problem) <= _MAX_PROBLEM else problem[: _MAX_PROBLEM - 1] + "…"
        super().__init__(": ".join(part for part in (str(source), place, problem) if part))
        self.reason = problem
        self.problem = ": ".join(part for part in (place, problem) if part)
        """The message without the source, for a caller who names the input in other words."""


def open_regular(path: Path, source: object = "") -> io.BufferedReader:
    """A regular file, opened to be read. Raises UnreadableInput for anything else, and OSError.

    A pipe or a device may never end, and opening one may wait for ever.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
    try:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise UnreadableInput(source or path, "not a regular file: write its content into one, and name that")
        return os.fdopen(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


def read_content(path: Path, max_bytes: int = MAX_FILE_BYTES) -> bytes:
    """All bytes of a regular file. Raises UnreadableInput for one with more than `max_bytes`, and OSError."""
    with open_regular(path) as file:
        content = file.read(max_bytes + 1) if os.fstat(file.fileno()).st_size <= max_bytes else None
    if content is None or len(content) > max_bytes:
        raise UnreadableInput(path, f"larger than {max_bytes:,} bytes, which no file of this kind is")
    return content


def read_text(path: Path, max_bytes: int = MAX_FILE_BYTES) -> str:
    """The text of a regular file in UTF-8. Raises UnreadableInput and OSError."""
    return decode(read_content(path, max_bytes), path)


def encode(content: bytes | str, source: object, max_bytes: int) -> bytes:
    """The bytes of a content. Raises UnreadableInput for more than `max_bytes`, and for lone surrogates."""
    if len(content) <= max_bytes:
        try:
            content = content.encode() if isinstance(content, str) else content
        except UnicodeEncodeError as error:
            raise UnreadableInput(source, "not a text in UTF-8", f"character {error.start + 1:,}") from None
    if len(content) > max_bytes:
        raise UnreadableInput(source, f"larger than {max_bytes:,} bytes, which nothing of this kind is")
    return content  # type: ignore[return-value]


def decode(content: bytes, source: object) -> str:
    """The text of some bytes in UTF-8. Raises UnreadableInput that names the byte."""
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise UnreadableInput(source, "not a text in UTF-8: save it as one", f"byte {error.start + 1:,}") from None


def width_of(content: bytes) -> int:
    """Bytes of memory that each character of a text in UTF-8 takes, by its widest one (PEP 393)."""
    if content.isascii():
        return 1
    if content.translate(None, _BELOW_FOUR_BYTES):
        return 4
    return 2 if content.translate(None, _LATIN) else 1


_BELOW_FOUR_BYTES = bytes(range(0xF0))
"""Bytes of UTF-8 that begin no character beyond U+FFFF."""
_LATIN = bytes(range(0xC4))
"""Bytes that begin none beyond U+00FF."""
