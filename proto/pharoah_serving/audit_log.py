"""The audit log: who called what, when, with which result; hash-chained, so that a line cannot go unnoticed.

One file of JSON lines per UTC day. A line holds time, role, name, method, offer, sizes and status, and never what was
asked or answered. The hash of a day's last line goes into the transparency log when the day is over. Keep the files as
long as your own rules say; nothing here deletes them.
"""

from __future__ import annotations

import calendar
import errno
import hashlib
import json
import os
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pharoah_serving.errors import StoreError
from pharoah_serving.quotas import DAY_SECONDS

_NAME = re.compile(r"audit-(\d{4}-\d\d-\d\d)\.jsonl")
START = "0" * 64
LONGEST_LINE = 1 << 16


class AuditLog:
    """Appends to the file of the day. A clock that is set back goes on in the newest file."""

    def __init__(self, folder: Path) -> None:
        """Raises StoreError when the folder cannot be written, or its newest file is not a chain."""
        self._folder = folder
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise StoreError(f"{folder}: {error.strerror}") from None
        self._day = max(_days(folder), default=0)
        self._file: int | None = None
        self._closed = False
        self._last = START
        if self._day:
            self._last = _repaired(self._path(self._day))

    def record(self, now: float, **fields: Any) -> None:
        """Add a line; none after `close`. Raises StoreError."""
        if self._closed:
            return  # a call that was cut off while the provider ended
        try:
            if (day := int(now // DAY_SECONDS)) > self._day or self._file is None:
                self._open(max(day, self._day))
            text = json.dumps({"time": round(now, 3), **fields, "previous": self._last})
            self._append(text.encode() + b"\n")
        except OSError as error:
            raise StoreError(f"{self._folder}: {error.strerror}") from None
        self._last = hashlib.sha256(text.encode()).hexdigest()

    def _append(self, line: bytes) -> None:
        """The whole line or nothing of it. Raises OSError."""
        assert self._file is not None
        before = os.fstat(self._file).st_size
        try:
            if os.write(self._file, line) != len(line):
                raise OSError(errno.ENOSPC, "no space left")
        except OSError:
            os.ftruncate(self._file, before)
            raise

    def finished(self, after: int, now: float) -> Iterator[tuple[int, bytes]]:
        """(day, hash of its last line) of days that are over and come after this one."""
        today = int(now // DAY_SECONDS)
        for day in sorted(_days(self._folder)):
            if after < day < min(today, self._day + 1):
                yield day, bytes.fromhex(verify(self._path(day)))

    def today(self, now: float) -> Iterator[dict[str, Any]]:
        """Lines of this day, as far as they were written before."""
        path = self._path(int(now // DAY_SECONDS))
        if path.exists():
            with path.open() as lines:
                yield from map(json.loads, lines)

    def close(self) -> None:
        self._closed = True
        if self._file is not None:
            os.close(self._file)

    def _open(self, day: int) -> None:
        if self._file is not None:
            os.close(self._file)
        if day > self._day:
            self._last = START
        self._day = day
        self._file = os.open(self._path(day), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def _path(self, day: int) -> Path:
        return self._folder / f"audit-{time.strftime('%Y-%m-%d', time.gmtime(day * DAY_SECONDS))}.jsonl"


def verify(path: Path) -> str:
    """The hash of the last line. Raises StoreError naming the line at which the chain breaks."""
    last = START
    with path.open("rb") as lines:
        for number, line in enumerate(lines, 1):
            text = line.removesuffix(b"\n")
            try:
                previous = json.loads(text)["previous"]
            except (ValueError, KeyError, TypeError):
                previous = None
            if previous != last:
                raise StoreError(f"{path}:{number}: does not follow the line before it")
            last = hashlib.sha256(text).hexdigest()
    return last


def _repaired(path: Path) -> str:
    """The hash of the last line; what a crash left half written is cut off."""
    with path.open("rb+") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - LONGEST_LINE))
        tail = file.read()
        if not tail.endswith(b"\n"):
            file.truncate(size - len(tail) + tail.rfind(b"\n") + 1)
    return verify(path)


def _days(folder: Path) -> list[int]:
    found = (_NAME.fullmatch(path.name) for path in folder.iterdir())
    stamps = [time.strptime(match[1], "%Y-%m-%d") for match in found if match]
    return [calendar.timegm(stamp) // DAY_SECONDS for stamp in stamps]
