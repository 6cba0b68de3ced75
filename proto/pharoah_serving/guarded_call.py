"""One call on its way through the call guard: who makes it, what came and what went, and how it ended."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import grpc
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message import DecodeError

from pharoah_protocol.rpc import request_type
from pharoah_serving.audit_log import AuditRecord
from pharoah_serving.costs import Cost
from pharoah_serving.errors import Exhausted, Invalid
from pharoah_serving.long_steps import MAX_STEP_SECONDS, StepWatch
from pharoah_serving.principals import Principal
from pharoah_serving.quotas import QuotaUse
from pharoah_serving.turns import Turns

FIRST_MESSAGE_SECONDS = 2.0
"""How long an admitted call may take to send its request: as long as a tenant waits for the answer."""
MAX_MESSAGE_BYTES = 1 << 16
"""Bytes of a request, unless its method accepts more: parsing them takes the event loop a millisecond at the most. A
longer message of a stream is not parsed there."""
RECEIVED_BYTE_SECONDS = 5e-9
"""CPU seconds that gRPC takes for a byte of a request, before anybody can look at it: the same as for an answer."""
SENT_BYTE_SECONDS = 5e-9
"""CPU seconds that gRPC takes for a byte of an answer: the whole table of 16,384 rows (1 MiB) takes about 5 ms."""


@dataclass
class GuardedCall:
    """Filled while the call goes on; `record` is its line in the audit log."""

    method: str
    peer: str
    """The connection, as gRPC names it."""
    largest_bytes: int = MAX_MESSAGE_BYTES
    """The longest request that is taken."""
    who: Principal | None = None
    status: str = grpc.StatusCode.OK.name
    offer: bytes = b""
    received_bytes: int = 0
    sent_bytes: int = 0
    cost: Cost = field(default_factory=Cost)
    use: QuotaUse = field(default_factory=QuotaUse)
    watch: StepWatch | None = None
    """How much processor time its steps take."""

    async def first_message(self, requests: AsyncIterator[bytes]) -> bytes:
        """The request of a call that sends one; empty when it sends none. Raises TimeoutError, and Exhausted for one
        that is too long."""
        async with asyncio.timeout(FIRST_MESSAGE_SECONDS):
            request = await anext(aiter(requests), b"")
        self._receive(request)
        return request

    def parse(self, descriptor: MethodDescriptor, request: bytes) -> Any:
        """The request as a message. Raises Invalid."""
        message = self._one(request_type(descriptor), request)
        self.offer = getattr(message, "offer_id", b"")
        return message

    async def each_parsed(
        self, descriptor: MethodDescriptor, requests: AsyncIterator[bytes], turns: Turns
    ) -> AsyncGenerator[Any, None]:
        """The requests of a stream as messages; those of more than MAX_MESSAGE_BYTES as they came. While one is
        worked on, the call has its turn: until the next one is asked for, or the generator is closed. Raises Invalid,
        and Exhausted for one that is too long, and after one that took the event loop for too long."""
        kind = request_type(descriptor)
        assert self.who is not None
        async for request in requests:
            self._receive(request)
            async with turns.turn(self.who, self.cost):
                yield self._one(kind, request) if len(request) <= MAX_MESSAGE_BYTES else request
            self._check_steps()

    def _receive(self, request: bytes) -> None:
        """Count a request. Raises Exhausted for one that is too long."""
        self.received_bytes += len(request)
        self.cost.add(len(request) * RECEIVED_BYTE_SECONDS)
        if len(request) > self.largest_bytes:
            raise Exhausted(f"request: {len(request)} bytes, at most {self.largest_bytes}")

    def _check_steps(self) -> None:
        """Raises Exhausted for a stream that has taken the event loop from all others for too long."""
        if self.watch is not None and (seconds := self.watch.longest_seconds) > MAX_STEP_SECONDS:
            raise Exhausted(
                f"a step of this stream took {seconds:.1f} s of the event loop, at most {MAX_STEP_SECONDS:g}"
            )

    def _one(self, kind: Any, request: bytes) -> Any:
        try:
            return kind.FromString(request)
        except DecodeError:
            raise Invalid("request: not a message of this kind") from None

    def count_answer(self, answer: Any) -> None:
        """An answer goes out. Raises Exhausted like `each_parsed`."""
        self._check_steps()
        size = answer.ByteSize()
        self.sent_bytes += size
        self.cost.add(size * SENT_BYTE_SECONDS)

    def record(self) -> AuditRecord:
        """The line of this call in the audit log."""
        return AuditRecord(
            role=self.who.role if self.who else "",
            name=self.who.name if self.who else "",
            method=self.method,
            offer=self.offer.hex()[:64],
            received_bytes=self.received_bytes,
            sent_bytes=self.sent_bytes,
            status=self.status,
            quota=self.use.taken,
        )
