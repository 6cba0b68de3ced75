"""The kernel's log: all records of /dev/kmsg that are left, without waiting for any.

Each record has a sequence number (Documentation/ABI/testing/dev-kmsg). The kernel overwrites old ones; a reader that
was too slow learns of it by the error EPIPE, or by a gap in the numbers.
"""

from __future__ import annotations

import logging
import os
import re
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

log = logging.getLogger("pharoah.agent")

KERNEL_LOG = Path("/dev/kmsg")
MAX_RECORD_BYTES = 8192
"""The kernel gives no larger record (PRINTK_MESSAGE_MAX of printk)."""
MAX_RECORDS = 1000
"""Records of one reading; what is left comes with the next one."""
_KERNEL_FACILITY = 0
"""Programs can write into this log as well, but never as the kernel (syslog(3): LOG_KERN)."""
_FACILITY_SHIFT = 3
_MICROSECONDS = 1e6


class KernelRecord(NamedTuple):
    """One message of the kernel."""

    number: int
    """Its place in the log since the boot."""
    at_seconds: float
    """On the steady clock of the system (CLOCK_MONOTONIC), within what the processors' clocks differ."""
    text: str


def driver_message(record: KernelRecord, beginning: re.Pattern[str]) -> re.Match[str] | None:
    """What a driver reports, if the record begins as its messages do; for every reader of records.

    Any user can make the kernel print a text: the source of a mount that fails, the name of a program that crashes. It
    then stands in the middle, or has the 15 characters of a process's name (TASK_COMM_LEN) at the beginning. So
    `beginning` must be longer than that up to where it may vary.
    """
    return beginning.match(record.text)


class KernelLog:
    """Reads the messages of an open log, which its scope closes."""

    def __init__(self, descriptor: int) -> None:
        """`descriptor` gives one record per read, and never waits."""
        self._descriptor = descriptor
        self._next: int | None = None
        self.lost = 0
        """Messages that were overwritten before they were read."""

    @classmethod
    def from_path(cls, path: Path = KERNEL_LOG) -> KernelLog:
        """The log, with the messages that are left in it.

        Raises OSError where it cannot be read: without the right CAP_SYSLOG, or in a container.
        """
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        return cls(descriptor)

    def __enter__(self) -> KernelLog:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._descriptor)

    def records(self) -> list[KernelRecord]:
        """The messages of the kernel since the last call, at most MAX_RECORDS."""
        found = []
        for _ in range(MAX_RECORDS):
            try:
                raw = os.read(self._descriptor, MAX_RECORD_BYTES)
            except BlockingIOError:
                break
            except BrokenPipeError:  # overwritten: the next read goes on with the oldest record that is left
                continue
            if not raw:
                break
            if record := self._record(raw.decode(errors="replace")):
                found.append(record)
        return found

    def _record(self, raw: str) -> KernelRecord | None:
        """The record, if it is whole and the kernel's own. Counts those that are missing before it."""
        prefix, found, text = raw.partition(";")
        fields = prefix.split(",")
        if not found or len(fields) < 3 or not all(field.isdecimal() for field in fields[:3]):
            return None
        number = int(fields[1])
        if self._next is not None and number > self._next:
            if not self.lost:
                log.warning("the kernel's log was overwritten faster than it was read; later losses are only counted")
            self.lost += number - self._next
        self._next = number + 1
        if int(fields[0]) >> _FACILITY_SHIFT != _KERNEL_FACILITY:
            return None
        return KernelRecord(number, int(fields[2]) / _MICROSECONDS, text.partition("\n")[0])
