"""Admission of calls: how many calls of one caller may be inside at once, and how much of them is kept in memory.

A job of many nodes sends its calls at the same moment, so short calls of one caller wait for their turn (`turns`), up
to a number and within their deadlines. Streams live for hours and wait only until they have begun.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import grpc

from pharoah_protocol.vocabulary import Role
from pharoah_serving.principals import Principal

MAX_WAITING_CALLS = 1024
"""Short calls of one caller that are inside, those that wait included: one of every node of a large job."""
MAX_WAITING_BYTES = 1 << 24
"""The size of their requests together: sixteen of the largest, or a report of half an hour from every such node."""
CONCURRENT_STREAMS = {Role.TENANT: 2048, Role.AGENT: 2, Role.OPERATOR: 8}


class RejectedCall(Exception):
    """A call that is not admitted; carries the status it is answered with."""

    def __init__(self, code: grpc.StatusCode, message: str) -> None:
        super().__init__(message)
        self.code = code


class CrowdedCall(RejectedCall):
    """One call too many of a caller that has very many inside. It is answered late, so that asking again at once does
    not pay."""

    def __init__(self, message: str) -> None:
        super().__init__(grpc.StatusCode.RESOURCE_EXHAUSTED, message)


@dataclass
class Admission:
    """Counts calls per caller; tenants count by organisation. Single-threaded: belongs to the event loop."""

    _inside: Counter[tuple[Principal, bool]] = field(default_factory=Counter)
    """By caller, and whether the call is a stream."""
    _bytes: Counter[Principal] = field(default_factory=Counter)
    """Size of the requests that are inside, by caller."""

    @contextmanager
    def count(self, who: Principal, *, streaming: bool) -> Iterator[None]:
        """Count a call as inside. Raises CrowdedCall when the caller has too many."""
        most = CONCURRENT_STREAMS[who.role] if streaming else MAX_WAITING_CALLS
        key = (who.counted_as, streaming)
        if self._inside[key] >= most:
            raise CrowdedCall(f"more than {most} calls at once")
        self._inside[key] += 1
        try:
            yield
        finally:
            self._inside[key] -= 1
            if not self._inside[key]:
                del self._inside[key]

    @contextmanager
    def keep(self, who: Principal, size_bytes: int) -> Iterator[None]:
        """Count a request that is kept until its call has been worked on. Raises CrowdedCall when that is too much."""
        key = who.counted_as
        if self._bytes[key] + size_bytes > MAX_WAITING_BYTES:
            raise CrowdedCall(f"requests of more than {MAX_WAITING_BYTES} bytes at once")
        self._bytes[key] += size_bytes
        try:
            yield
        finally:
            self._bytes[key] -= size_bytes
            if not self._bytes[key]:
                del self._bytes[key]
