"""Xid errors of this node that its log still has: which GPU, which number, what usually causes it.

The driver writes them into the kernel's log. A node whose log cannot be read has no such signal; the agent says so once
and goes on.
"""

from __future__ import annotations

import re
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from pharoah_provider.agent.kernel_log import KernelLog, driver_message
from pharoah_provider.agent.xid_catalogue import Xid, XidCatalogue, XidCause

ADDRESS_PREFIX = "pci-"
"""Begins the name of a GPU of which only the address is known."""
KEPT_EVENTS = 256
TROUBLE_SECONDS = 3600.0
"""A GPU is in trouble for so long after an error of its hardware. The log says when one comes and never that it is
over; within an hour a node that is drained was reset, or the error comes again."""
_BEGINNING = re.compile(
    r"NVRM: Xid \((?:PCI:)?([0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}(?:\.[0-9a-fA-F])?)"
    r"(?: GPU-C?I:[0-9a-fA-F]{1,4})*\): (\d{1,5})\b"
)
"""Behind the address stands the part of a partitioned GPU, where the driver knows it: `PCI:0000:3b:00 GPU-I:05`."""


class XidEvent(NamedTuple):
    """One error."""

    seen_at: float
    """Seconds of the steady clock at which the kernel wrote it."""
    device: str
    xid: Xid


class _Counted(NamedTuple):
    device: str
    cause: XidCause


@dataclass
class XidEvents:
    """The errors of one node. All methods may be called in any thread."""

    log: KernelLog
    catalogue: XidCatalogue
    names: Callable[[], Mapping[str, str]]
    """The PCI address of each GPU, as `0000:3b:00`, to its name; asked for again only when an unknown one comes."""
    clock: Callable[[], float] = time.monotonic
    _counts: Counter[_Counted] = field(default_factory=Counter, init=False)
    _recent: deque[XidEvent] = field(default_factory=lambda: deque(maxlen=KEPT_EVENTS), init=False)
    _trouble_until: dict[str, float] = field(default_factory=dict, init=False)
    _known: dict[str, str] = field(default_factory=dict, init=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False)

    def read(self) -> int:
        """Take what the log has got since the last call. Returns how many messages these were."""
        with self._lock:
            if not self._known:
                self._known |= self.names()  # before a GPU is lost, whose address nobody knows any more
            records = self.log.records()
            for record in records:
                if found := driver_message(record, _BEGINNING):
                    self._take(found[1], int(found[2]), record.at_seconds)
            return len(records)

    def recent(self) -> list[XidEvent]:
        """The newest events, at most KEPT_EVENTS, the oldest first."""
        with self._lock:
            return list(self._recent)

    def count(self, device: str, *causes: XidCause) -> int:
        """How many errors with one of these causes a device has had."""
        with self._lock:
            return sum(self._counts[_Counted(device, cause)] for cause in causes)

    def in_trouble(self, device: str) -> bool:
        """Whether the hardware of a device has reported an error that is not to be ignored, within the last hour."""
        with self._lock:
            return self.clock() < self._trouble_until.get(device, float("-inf"))

    def devices(self) -> set[str]:
        """Devices that have had an error."""
        with self._lock:
            return {event.device for event in self._counts}

    def _take(self, address: str, code: int, at_seconds: float) -> None:
        event = XidEvent(at_seconds, self._name(address), self.catalogue.find(code))
        self._recent.append(event)
        self._counts[_Counted(event.device, event.xid.cause)] += 1
        if event.xid.hardware_trouble:
            self._trouble_until[event.device] = at_seconds + TROUBLE_SECONDS

    def _name(self, address: str) -> str:
        """The name of a GPU; its address where the driver no longer has it, as after it has left the bus."""
        short = address.lower().partition(".")[0]
        if short not in self._known:
            self._known |= self.names()
        return self._known.get(short, f"{ADDRESS_PREFIX}{short.replace(':', '-')}")
