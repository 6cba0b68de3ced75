"""The audit log: who called what, when, with which result; hash-chained, so that a line cannot go unnoticed.

One file of JSON lines per UTC day. A line holds time, role, name, method, offer, sizes and status, and never what was
asked or answered. The hash of a day's last line goes into the transparency log when the day is over. Keep the files as
long as your own rules say; nothing here deletes them.
"""

from __future__ import annotations

import calendar
import hashlib
import json
import os
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pharoah_provider.errors import StoreError
from pharoah_provider.quotas import DAY_SECONDS

_NAME = re.compile(r"audit-(\d{4}-\d\d-\d\d)\.jsonl")
START = "0" * 64


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
        self._file: Any = None
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
            line = {"time": round(now, 3), **fields, "previous": self._last}
            text = json.dumps(line)
            self._file.write(text + "\n")
            self._file.flush()
        except OSError as error:
            raise StoreError(f"{self._folder}: {error.strerror}") from None
        self._last = hashlib.sha256(text.encode()).hexdigest()

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
            yield from map(json.loads, path.read_text().splitlines())

    def close(self) -> None:
        self._closed = True
        if self._file is not None:
            self._file.close()

    def _open(self, day: int) -> None:
        if self._file is not None:
            self._file.close()
        if day > self._day:
            self._last = START
        self._day = day
        descriptor = os.open(self._path(day), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._file = os.fdopen(descriptor, "w")

    def _path(self, day: int) -> Path:
        return self._folder / f"audit-{time.strftime('%Y-%m-%d', time.gmtime(day * DAY_SECONDS))}.jsonl"


def verify(path: Path) -> str:
    """The hash of the last line. Raises StoreError naming the line at which the chain breaks."""
    last = START
    for number, text in enumerate(path.read_text().splitlines(), 1):
        try:
            previous = json.loads(text)["previous"]
        except (ValueError, KeyError, TypeError):
            previous = None
        if previous != last:
            raise StoreError(f"{path}:{number}: does not follow the line before it")
        last = hashlib.sha256(text.encode()).hexdigest()
    return last


def _repaired(path: Path) -> str:
    """The hash of the last line; what a crash left half written is cut off."""
    content = path.read_bytes()
    if (whole := content.rfind(b"\n") + 1) != len(content):
        os.truncate(path, whole)
    return verify(path)


def _days(folder: Path) -> list[int]:
    found = (_NAME.fullmatch(path.name) for path in folder.iterdir())
    stamps = [time.strptime(match[1], "%Y-%m-%d") for match in found if match]
    return [calendar.timegm(stamp) // DAY_SECONDS for stamp in stamps]
