"""The audit log: who called what, when, with which result. Lines form a hash chain, so that a change is noticed.

One file of JSON lines per UTC day. A line holds time, role, name, method, offer, sizes and status, and never the
content of a request or an answer; a line may stand for several calls (`recorder`). When a day is over, the hash of its
last line goes into the transparency log, and no line is added to its file any more. Keep the files as long as your own
rules require; nothing here deletes them.
"""

from __future__ import annotations

import calendar
import errno
import hashlib
import json
import logging
import os
import re
import time
from collections import Counter
from collections.abc import Callable, Container, Iterator
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from pharoah_serving.errors import StoreError
from pharoah_system.bounded_reading import parse_json
from pharoah_system.files import create_exclusively, open_append
from pharoah_system.trusted_paths import UntrustedPathError, make_folder, open_unshared

log = logging.getLogger("pharoah.provider.audit")

DAY_SECONDS = 86_400
_NAME = re.compile(r"audit-(\d{4}-\d\d-\d\d)\.jsonl")
START_HASH = "0" * 64
"""The hash before the first line of a day."""
MAX_LINE_BYTES = 1 << 16


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
    calls: int = 1
    """How many calls this line stands for."""
    peers: int = 0
    """From how many addresses they came, where their callers are not known; 0 for a known caller."""
    quota: bool | None = None
    """Whether the call used a quota; None in a line of a release that did not note it."""

    def line(self) -> dict[str, Any]:
        """The fields as they are written: those of one ordinary call leave `calls` and `peers` out."""
        return {name: value for name, value in asdict(self).items() if name not in _RARE or value != _RARE[name]}


_FIELDS = tuple(field.name for field in fields(AuditRecord))
_RARE = {"calls": 1, "peers": 0, "quota": None}


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
    """Appends to the file of the day, or to that of the next day that is not finished: the clock may be set back.

    One process at a time (`folder_lock`).
    """

    def __init__(self, folder: Path, reduced: Callable[[AuditRecord], AuditRecord | None] = lambda one: one) -> None:
        """Raises StoreError when the folder cannot be written, or its newest file is not a chain.

        That file is read once, here; `today` returns its records as `reduced` leaves them, without those for which it
        gives None. Records that are then equal are counted while they are read, and do not take memory each.
        """
        self._folder, self._reduced = folder, reduced
        self._kept: Counter[_KeptRecord] = Counter()
        """How many calls there were of each kind."""
        try:
            make_folder(folder)
        except OSError as error:
            raise StoreError(f"{folder}: {error.strerror}") from None
        self._newest = max(_days(folder), default=0)
        self._ends: dict[int, str] = {}
        """Hash of the last line of each file that was opened, by day."""
        if self._newest:
            self._ends[self._newest] = _repair(self._path(self._newest), self._keep_line)
        self._verified = dict(self._ends)
        """By day: the hash of the last line of a file that was verified and has not changed since."""
        self._damaged = dict[int, _Stamp]()
        """By day: a file that is no chain. It is read again when it has changed."""
        self._day, self._asked_day = 0, 0
        """The day of the open file, and the day for which it was opened."""
        self._finished: Container[int] = ()
        self._finishing: set[int] = set()
        """Days whose hash is published, and days whose hash was asked for since the start."""
        self._file: int | None = None
        self._closed = False

    def skip(self, days: Container[int]) -> None:
        """No line goes to the files of these days: their hashes are in the transparency log."""
        self._finished = days

    def record(self, now: float, record: AuditRecord) -> None:
        """Add a line; after `close` nothing happens. Raises StoreError."""
        if self._closed:
            return  # a call that was cut off while the server ended
        try:
            if (day := utc_day(now)) != self._asked_day or self._file is None or self._is_over(self._day):
                self._open(day)
            text = json.dumps({"time": round(now, 3), **record.line(), "previous": self._ends[self._day]})
            self._append(text.encode() + b"\n")
        except OSError as error:
            raise StoreError(f"{self._folder}: {error.strerror}") from None
        self._ends[self._day] = hashlib.sha256(text.encode()).hexdigest()

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

    def list_finished(self, published: Container[int], now: float) -> Iterator[FinishedDay]:
        """Each day that is over and not among the published ones. Its file does not change any more.

        A day whose file is damaged is logged and left out, until its file is another one.
        """
        today = utc_day(now)
        for day in sorted(_days(self._folder)):
            if day < today and day not in published:
                self._finishing.add(day)
                if last := self._verified.get(day) or self._verify(day):
                    yield FinishedDay(day=day, last_hash=bytes.fromhex(last))

    def today(self, now: float) -> list[AuditRecord]:
        """Records of this day that were written before the log was opened, in whichever file. Equal ones are one record
        that stands for all their calls. Call it once."""
        today, newest = utc_day(now), self._kept
        self._kept = Counter()
        for day in sorted(day for day in _days(self._folder) if today <= day < self._newest):
            _repair(self._path(day), self._keep_line)
        kept, self._kept = self._kept + newest, Counter()
        return [replace(one.record, calls=calls) for one, calls in kept.items() if one.day == today]

    def close(self) -> None:
        self._closed = True
        if self._file is not None:
            os.close(self._file)

    def _is_over(self, day: int) -> bool:
        return day in self._finished or day in self._finishing

    def _verify(self, day: int) -> str | None:
        """The hash of the last line of a file; None for one that is damaged or cannot be read now.

        A file that this process has not opened may end with half a line: another process wrote it last, when the clock
        was set back.
        """
        path = self._path(day)
        try:
            stamp = _stamp(path)
            if self._damaged.get(day) == stamp:
                return None
            last = (verify if day in self._ends else _repair)(path)
            if self._ends.get(day, last) != last:
                raise StoreError(f"{path}: does not end with the line that was written last")
        except OSError as error:
            log.error("%s: %s; the hash of this day is not published yet", path, error.strerror)
            return None
        except StoreError as error:
            log.error("%s; the hash of this day is not published until the file is restored", error)
            self._damaged[day] = stamp
            return None
        self._verified[day] = last
        return last

    def _open(self, asked_day: int) -> None:
        day = asked_day
        while self._is_over(day):
            day += 1
        if self._file is not None:
            os.close(self._file)
            self._file = None
        path = self._path(day)
        if day not in self._ends:
            self._ends[day] = _repair(path) if path.exists() else START_HASH
        self._verified.pop(day, None)
        self._file = open_append(path)
        self._day, self._asked_day = day, asked_day

    def _keep_line(self, line: dict[str, Any]) -> None:
        record = AuditRecord(**{name: line[name] for name in _FIELDS if name in line})
        if (kept := self._reduced(record)) is not None:
            self._kept[_KeptRecord(utc_day(line["time"]), replace(kept, calls=1))] += record.calls

    def _path(self, day: int) -> Path:
        return self._folder / f"audit-{time.strftime('%Y-%m-%d', time.gmtime(day * DAY_SECONDS))}.jsonl"


class _Stamp(NamedTuple):
    """What changes when a file is written, replaced or made readable."""

    changed_ns: int
    size_bytes: int
    inode: int


class _KeptRecord(NamedTuple):
    """A kind of records, and the day on which they were written."""

    day: int
    record: AuditRecord


def verify(path: Path, each: Callable[[dict[str, Any]], None] = lambda _: None) -> str:
    """The hash of the last line; `each` gets every line.

    Raises StoreError naming the line at which the chain breaks.
    """
    last, number = START_HASH, 0
    with _open_file(path) as file:
        while line := file.readline(MAX_LINE_BYTES + 1):
            number += 1
            text = line.removesuffix(b"\n")
            try:
                fields_of_line = parse_json(text, path)
                previous = fields_of_line["previous"]
            except (ValueError, KeyError, TypeError):
                previous = None
            if previous != last:
                raise StoreError(f"{path}:{number}: does not follow the line before it")
            each(fields_of_line)
            last = hashlib.sha256(text).hexdigest()
    return last


def _repair(path: Path, each: Callable[[dict[str, Any]], None] = lambda _: None) -> str:
    """The hash of the last line; `each` gets every line.

    A line that a crash left half written is moved to a file of its own, and logged.
    """
    with _open_file(path) as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - MAX_LINE_BYTES))
        tail = file.read()
    if tail and not tail.endswith(b"\n"):
        whole = tail.rfind(b"\n") + 1
        kept = _cut_file(path)
        create_exclusively(kept, tail[whole:])
        _shorten(path, size - len(tail) + whole)
        log.warning("%s: its last line was half written; the %d bytes are now in %s", path, len(tail) - whole, kept)
    return verify(path, each)


def _shorten(path: Path, size_bytes: int) -> None:
    descriptor = open_append(path)
    try:
        os.ftruncate(descriptor, size_bytes)
    finally:
        os.close(descriptor)


def _open_file(path: Path) -> BinaryIO:
    """Raises StoreError for a file of others, OSError."""
    try:
        return open_unshared(path)
    except UntrustedPathError as error:
        raise StoreError(f"{error}: an audit log is written by its server alone; restore it, or move it away") from None


def _stamp(path: Path) -> _Stamp:
    """Raises OSError."""
    status = path.stat()
    return _Stamp(changed_ns=status.st_ctime_ns, size_bytes=status.st_size, inode=status.st_ino)


def _cut_file(path: Path) -> Path:
    """The first free name `NAME.cut-N`."""
    number = 1
    while (kept := path.with_name(f"{path.name}.cut-{number}")).exists():
        number += 1
    return kept


def _days(folder: Path) -> list[int]:
    found = (_NAME.fullmatch(path.name) for path in folder.iterdir())
    stamps = [time.strptime(match[1], "%Y-%m-%d") for match in found if match]
    return [calendar.timegm(stamp) // DAY_SECONDS for stamp in stamps]
