"""Trace files as streams: compressed or in an archive, and JSON read piece by piece, never as a whole."""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, NamedTuple

from pharoah_system.bounded_reading import (
    JsonLimits,
    UnreadableInput,
    check_json,
    members_of_tar,
    open_regular,
    unpack,
)

_CHUNK_BYTES = 1 << 18
MAX_ENTRY = 1 << 22
"""Characters one entry of a list may have: a longer one is no operator."""
_ENTRY_LIMITS = JsonLimits(max_memory_bytes=24 << 20, max_depth=200)
"""An entry that is longer than a piece of the file may have as much. One of a few tensors has some kilobytes."""
MAX_KEYS = 10_000
"""Keys of a document: tools write some tens."""
MAX_BLANKS = 1 << 20
"""Blanks in a row: nobody indents by a megabyte."""
TRACE_ENDINGS = (".json", ".json.gz", ".et", ".et.gz")
ARCHIVE_ENDINGS = (".tar.gz", ".tgz", ".tar")
_NO_BLANK = re.compile(r"\S")


class TraceError(ValueError):
    """A trace that cannot be read; the message names the file and the byte offset (of the uncompressed content)."""

    def __init__(self, source: str, offset: int, problem: str) -> None:
        super().__init__(f"{source}: at byte {offset:,}: {problem}")


class TraceStream(NamedTuple):
    """One file of a trace."""

    source: str
    """Its name, for messages."""
    stream: IO[bytes]
    """Its content, unpacked."""


class DocumentEntry(NamedTuple):
    """A key of a JSON document, and its value or one entry of its list."""

    key: str
    value: Any


def members(path: Path) -> Iterator[TraceStream]:
    """Every trace of a file: the file itself, unpacked, or what an archive holds under the names of traces. Raises
    TraceError for a damaged archive, and for one without a trace."""
    found = False
    try:
        if not path.name.endswith(ARCHIVE_ENDINGS):
            with open_regular(path) as raw:
                yield TraceStream(source=path.name, stream=unpack(raw, path.name))
            return
        for member in members_of_tar(path):
            name = Path(member.name).name
            if name.endswith(TRACE_ENDINGS) and not name.startswith("."):
                found = True
                source = f"{path.name}:{name}"
                yield TraceStream(source=source, stream=unpack(member.content, source))
    except UnreadableInput as fault:
        raise TraceError(path.name, 0, fault.reason) from None
    if not found:
        raise TraceError(path.name, 0, f"the archive holds no file that ends in {', '.join(TRACE_ENDINGS)}")


class Reader:
    """Bytes of one file; a fault of its compression is raised as a TraceError."""

    def __init__(self, source: str, stream: IO[bytes]) -> None:
        self.source = source
        self.offset = 0
        self._stream = stream
        self._ahead = b""

    def peek(self, count: int) -> bytes:
        self._ahead += self._more(count - len(self._ahead)) if len(self._ahead) < count else b""
        return self._ahead[:count]

    def read(self, count: int) -> bytes:
        """Up to `count` bytes; fewer only at the end."""
        content, self._ahead = self._ahead[:count], self._ahead[count:]
        content += self._more(count - len(content)) if len(content) < count else b""
        self.offset += len(content)
        return content

    def fault(self, problem: str, offset: int | None = None) -> TraceError:
        return TraceError(self.source, self.offset if offset is None else offset, problem)

    def _more(self, count: int) -> bytes:
        try:
            return self._stream.read(count)
        except UnreadableInput as fault:
            raise self.fault(fault.reason) from None
        except (OSError, EOFError, ValueError) as fault:  # of the archive around it
            raise self.fault(f"damaged or cut short: {fault}") from None


def entries(reader: Reader) -> Iterator[DocumentEntry]:
    """The document's keys and values, with lists opened: one pair for each of their entries.

    A document that is a list has the key "". Memory is bounded by the largest single entry.
    """
    text = _Text(reader)
    if text.next() == "[":
        yield from (DocumentEntry(key="", value=entry) for entry in text.read_list())
    elif text.next() == "{":
        text.skip()
        keys = 0
        while text.next() != "}":
            key, keys = text.value(), keys + 1
            if keys > MAX_KEYS:
                raise reader.fault(f"an object of more than {MAX_KEYS:,} keys: no trace")
            text.expect(":")
            if text.next() == "[":
                yield from (DocumentEntry(key=str(key), value=entry) for entry in text.read_list())
            else:
                yield DocumentEntry(key=str(key), value=text.value())
            if text.next() != "}":
                text.expect(",")
    else:
        raise reader.fault("neither a JSON object nor a list", 0)


class _Text:
    """A window that moves over a JSON document."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._utf8 = codecs.getincrementaldecoder("utf-8")()
        self._json = json.JSONDecoder(strict=False)
        self._window = ""
        self._at = 0
        self._before = 0
        """Bytes that have left the window."""
        self._over = False

    def next(self) -> str:
        """The next character that is no blank, without taking it."""
        blanks = 0
        while True:
            if found := _NO_BLANK.search(self._window, self._at):
                self._at = found.start()
                return found[0]
            blanks += len(self._window) - self._at
            self._at = len(self._window)
            if blanks > MAX_BLANKS:
                raise self._fault(f"more than {MAX_BLANKS:,} blanks in a row")
            if not self._slide():
                raise self._fault("the document ends here, unfinished")

    def skip(self) -> None:
        self._at += 1

    def expect(self, character: str) -> None:
        if self.next() != character:
            raise self._fault(f"expected {character!r}, found {self.next()!r}")
        self.skip()

    def read_list(self) -> Iterator[Any]:
        """The entries of the list that begins here."""
        self.skip()
        while self.next() != "]":
            yield self.value()
            if self.next() != "]":
                self.expect(",")
        self.skip()

    def value(self) -> Any:
        """The value that begins here."""
        self.next()
        while True:
            try:
                value, end = self._json.raw_decode(self._window, self._at)
                if end < len(self._window) or not self._slide():  # a number may go on behind the window
                    self._at = end
                    return value
            except json.JSONDecodeError as fault:
                if not self._goes_on(fault) or not self._slide():
                    raise self._fault(fault.msg, fault.pos) from None
            except RecursionError:
                raise self._fault("nested too deeply") from None
            except ValueError:
                raise self._fault("a number with too many digits") from None

    def _goes_on(self, fault: json.JSONDecodeError) -> bool:
        """Whether more text can heal the fault."""
        return fault.msg.startswith(("Unterminated", "Invalid \\u")) or fault.pos > len(self._window) - 16

    def _slide(self) -> bool:
        """Let go of what was read and read on; False at the end."""
        if self._over:
            return False
        if len(self._window) - self._at > MAX_ENTRY:
            raise self._fault(f"one entry is longer than {MAX_ENTRY:,} characters")
        if len(self._window) - self._at >= _CHUNK_BYTES:
            try:
                check_json(self._window[self._at :].encode("utf-8", "surrogatepass"), "", _ENTRY_LIMITS)
            except UnreadableInput as fault:
                raise self._fault(fault.problem) from None
        self._before += len(self._window[: self._at].encode("utf-8", "surrogatepass"))
        size = max(_CHUNK_BYTES, len(self._window) - self._at)
        content = self._reader.read(size)
        self._over = len(content) < size
        try:
            self._window = self._window[self._at :] + self._utf8.decode(content, final=self._over)
        except UnicodeDecodeError as fault:
            raise self._reader.fault(f"no UTF-8 text: {fault.reason}") from None
        self._at = 0
        return bool(content)

    def _fault(self, problem: str, at: int | None = None) -> TraceError:
        at = self._at if at is None else at
        return self._reader.fault(problem, self._before + len(self._window[:at].encode("utf-8", "surrogatepass")))
