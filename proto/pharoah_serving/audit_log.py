"""The audit log: who called what, when, with which result. Lines form a hash chain, so that a change is noticed.

One file of JSON lines per UTC day. A line holds time, role, name, method, offer, sizes and status, and never the
content of a request or an answer. The hash of a day's last line goes into the transparency log when the day is over.
Keep the files as long as your own rules require; nothing here deletes them.
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
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import NamedTuple

from pharoah_serving.errors import StoreError

DAY_SECONDS = 86_400
_NAME = re.compile(r"audit-(\d{4}-\d\d-\d\d)\.jsonl")
START_HASH = "0" * 64
"""The hash before the first line of a day."""
LONGEST_LINE_BYTES = 1 << 16


@dataclass(frozen=True)
class AuditRecord:
    """One call, as a line of the log holds it."""

    role: str = ""
    """Empty for a caller that is not known; so is `name`."""
    name: str = ""
    method: str = ""
    offer: str = ""
    """The id of the offer in hexadecimal digits, where the request has one."""
    received_bytes: int = 0
    sent_bytes: int = 0
    status: str = ""
    """Name of the gRPC status."""


_FIELDS = tuple(field.name for field in fields(AuditRecord))


def utc_day(now: float) -> int:
    """Days since 1970."""
    return int(now // DAY_SECONDS)


class FinishedDay(NamedTuple):
    """A day of the audit log that is over."""

    day: int
    """Days since 1970, UTC."""
    last_hash: bytes
    """Hash of its last line."""


class AuditLog:
    """Appends to the file of the day. When the clock is set back, lines go on in the newest file."""

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
        self._last = START_HASH
        if self._day:
            self._last = _repaired(self._path(self._day))

    def record(self, now: float, record: AuditRecord) -> None:
        """Add a line; after `close` nothing happens. Raises StoreError."""
        if self._closed:
            return  # a call that was cut off while the server ended
        try:
            if (day := utc_day(now)) > self._day or self._file is None:
                self._open(max(day, self._day))
            text = json.dumps({"time": round(now, 3), **asdict(record), "previous": self._last})
            self._append(text.encode() + b"\n")
        except OSError as error:
            raise StoreError(f"{self._folder}: {error.strerror}") from None
        self._last = hashlib.sha256(text.encode()).hexdigest()

    def _append(self, line: bytes) -> None:
        """Write the whole line or nothing. Raises OSError."""
        assert self._file is not None
        before = os.fstat(self._file).st_size
        try:
            if os.write(self._file, line) != len(line):
                raise OSError(errno.ENOSPC, "no space left")
        except OSError:
            os.ftruncate(self._file, before)
            raise

    def finished(self, after: int, now: float) -> Iterator[FinishedDay]:
        """Each day after `after` that is over."""
        today = utc_day(now)
        for day in sorted(_days(self._folder)):
            if after < day < min(today, self._day + 1):
                yield FinishedDay(day=day, last_hash=bytes.fromhex(verify(self._path(day))))

    def today(self, now: float) -> Iterator[AuditRecord]:
        """Records of this day that were written before."""
        path = self._path(utc_day(now))
        if path.exists():
            with path.open() as lines:
                for line in map(json.loads, lines):
                    yield AuditRecord(**{name: line[name] for name in _FIELDS})

    def close(self) -> None:
        self._closed = True
        if self._file is not None:
            os.close(self._file)

    def _open(self, day: int) -> None:
        if self._file is not None:
            os.close(self._file)
        if day > self._day:
            self._last = START_HASH
        self._day = day
        self._file = os.open(self._path(day), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def _path(self, day: int) -> Path:
        return self._folder / f"audit-{time.strftime('%Y-%m-%d', time.gmtime(day * DAY_SECONDS))}.jsonl"


def verify(path: Path) -> str:
    """The hash of the last line. Raises StoreError naming the line at which the chain breaks."""
    last = START_HASH
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
    """The hash of the last line; a line that a crash left half written is cut off."""
    with path.open("rb+") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - LONGEST_LINE_BYTES))
        tail = file.read()
        if not tail.endswith(b"\n"):
            file.truncate(size - len(tail) + tail.rfind(b"\n") + 1)
    return verify(path)


def _days(folder: Path) -> list[int]:
    found = (_NAME.fullmatch(path.name) for path in folder.iterdir())
    stamps = [time.strptime(match[1], "%Y-%m-%d") for match in found if match]
    return [calendar.timegm(stamp) // DAY_SECONDS for stamp in stamps]
