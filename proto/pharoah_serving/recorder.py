"""What of the calls goes into the audit log: a line for each, except where lines would let callers fill the disk.

Refused calls of strangers, and calls of one caller beyond a number per minute, are counted and become one line a
minute. Calls that have used a quota always have a line of their own: their number is bounded by the quotas. The quotas
themselves say which calls these are: it does not follow from method and status.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import grpc

from pharoah_serving.audit_log import AuditLog, AuditRecord
from pharoah_serving.errors import StoreError
from pharoah_serving.peers import address_of
from pharoah_serving.principals import Principal

log = logging.getLogger("pharoah.provider.services")

UNLOGGED_CALLS = {("Report", grpc.StatusCode.OK.name)}
"""Every run sends one a second; the database holds them."""
MINUTE_SECONDS = 60.0
LINES_OF_A_CALLER = 1000
"""Lines per minute of one organisation, agent or operator, of about 250 bytes: at most 360 MB a day each."""
COUNTED_ADDRESSES = 4096
"""Addresses of strangers that are counted within a minute, for each kind of call."""


@dataclass
class _Counted:
    """Calls of one kind that have no line of their own."""

    calls: int = 0
    addresses: set[str] = field(default_factory=set)


class CallRecorder:
    """Single-threaded: belongs to the event loop."""

    def __init__(self, audit: AuditLog, clock: Callable[[], float] = time.time) -> None:
        """`clock` gives unix seconds."""
        self._audit, self._clock = audit, clock
        self._counted: dict[AuditRecord, _Counted] = {}
        self._lines: Counter[Principal] = Counter()

    def record(self, record: AuditRecord, who: Principal | None, peer: str) -> None:
        """A call has ended. Raises StoreError when it succeeded and used a quota, and its line cannot be written."""
        if (record.method, record.status) in UNLOGGED_CALLS:
            return
        if who is None or (not record.quota and self._lines[who.counted_as] >= LINES_OF_A_CALLER):
            self._count(record, peer)
            return
        self._lines[who.counted_as] += 1
        try:
            self._audit.record(self._clock(), record)
        except StoreError:
            log.exception("a call is not in the audit log")
            if record.quota:
                self._count(record, peer)  # the use must be in the log once it can be written again
                if record.status == grpc.StatusCode.OK.name:
                    raise

    def flush(self) -> None:
        """Write the lines of what was counted since the last time. Used quotas that cannot be written wait."""
        counted, self._counted = self._counted, {}
        self._lines.clear()
        for kind, found in counted.items():
            peers = len(found.addresses) if not kind.role else 0
            try:
                self._audit.record(self._clock(), replace(kind, calls=found.calls, peers=peers))
            except StoreError:
                log.exception("%d calls of %s are not in the audit log", found.calls, kind.method)
                if kind.quota:
                    self._counted[kind] = found

    async def run(self) -> None:
        """`flush` once a minute, until cancelled."""
        while True:
            await asyncio.sleep(MINUTE_SECONDS)
            self.flush()

    def _count(self, record: AuditRecord, peer: str) -> None:
        kind = AuditRecord(record.role, record.name, record.method, status=record.status, quota=record.quota)
        counted = self._counted.setdefault(kind, _Counted())
        counted.calls += 1
        if len(counted.addresses) < COUNTED_ADDRESSES:
            counted.addresses.add(address_of(peer))
