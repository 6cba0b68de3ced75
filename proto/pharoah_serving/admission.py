"""Admission of calls: how many calls of one caller may be inside at once, and how many of them are worked on.

A job of many nodes sends its calls at the same moment, so short calls of one caller wait for a slot, up to a number and
within their deadlines. Streams live for hours and never wait.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import grpc

from pharoah_protocol.vocabulary import Role
from pharoah_serving.principals import Principal

CONCURRENT_CALLS = {Role.TENANT: 16, Role.AGENT: 8, Role.OPERATOR: 32}
"""Short calls of one caller that are worked on at once; others wait."""
MOST_WAITING_CALLS = 1024
"""Short calls of one caller that are inside, those that wait included."""
CONCURRENT_STREAMS = {Role.TENANT: 2048, Role.AGENT: 2, Role.OPERATOR: 8}


class RejectedCall(Exception):
    """A call that is not admitted; carries the status it is answered with."""

    def __init__(self, code: grpc.StatusCode, message: str) -> None:
        super().__init__(message)
        self.code = code


@dataclass
class Admission:
    """Counts calls per caller; tenants count by organisation. Single-threaded: belongs to the event loop."""

    _inside: Counter[tuple[Principal, bool]] = field(default_factory=Counter)
    """By caller, and whether the call is a stream."""
    _slots: dict[Principal, asyncio.Semaphore] = field(default_factory=dict)

    @contextmanager
    def counted(self, who: Principal, *, streaming: bool) -> Iterator[None]:
        """Count a call as inside. Raises RejectedCall when the caller has too many."""
        most = CONCURRENT_STREAMS[who.role] if streaming else MOST_WAITING_CALLS
        key = (who.counted_as, streaming)
        if self._inside[key] >= most:
            raise RejectedCall(grpc.StatusCode.RESOURCE_EXHAUSTED, f"more than {most} calls at once")
        self._inside[key] += 1
        try:
            yield
        finally:
            self._inside[key] -= 1
            if not self._inside[key]:
                del self._inside[key]
                if not streaming:
                    self._slots.pop(who.counted_as, None)

    def slot(self, who: Principal) -> asyncio.Semaphore:
        """Enter it to work on a short call: waits until one of the caller's slots is free."""
        return self._slots.setdefault(who.counted_as, asyncio.Semaphore(CONCURRENT_CALLS[who.role]))
