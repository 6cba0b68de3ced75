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
from pharoah_serving.errors import Invalid
from pharoah_serving.principals import Principal
from pharoah_serving.quotas import QuotaUse
from pharoah_serving.turns import Turns

FIRST_MESSAGE_SECONDS = 2.0
"""How long an admitted call may take to send its request: as long as a tenant waits for the answer."""
SENT_BYTE_SECONDS = 5e-9
"""CPU seconds that gRPC takes for a byte of an answer: the whole table of 16,384 rows (1 MiB) takes about 5 ms."""


@dataclass
class GuardedCall:
    """Filled while the call goes on; `record` is its line in the audit log."""

    method: str
    peer: str
    """The connection, as gRPC names it."""
    who: Principal | None = None
    status: str = grpc.StatusCode.OK.name
    offer: bytes = b""
    received_bytes: int = 0
    sent_bytes: int = 0
    cost: Cost = field(default_factory=Cost)
    use: QuotaUse = field(default_factory=QuotaUse)

    async def first_message(self, requests: AsyncIterator[bytes]) -> bytes:
        """The request of a call that sends one; empty when it sends none. Raises TimeoutError."""
        async with asyncio.timeout(FIRST_MESSAGE_SECONDS):
            return await anext(aiter(requests), b"")

    def parsed(self, descriptor: MethodDescriptor, request: bytes) -> Any:
        """The request as a message. Raises Invalid."""
        message = self._one(request_type(descriptor), request)
        self.offer = getattr(message, "offer_id", b"")
        return message

    async def each_parsed(
        self, descriptor: MethodDescriptor, requests: AsyncIterator[bytes], turns: Turns
    ) -> AsyncGenerator[Any, None]:
        """The requests of a stream as messages. While one is worked on, the call has its turn: until the next one is
        asked for, or the generator is closed. Raises Invalid."""
        kind = request_type(descriptor)
        assert self.who is not None
        async for request in requests:
            async with turns.turn(self.who, self.cost):
                yield self._one(kind, request)

    def _one(self, kind: Any, request: bytes) -> Any:
        self.received_bytes += len(request)
        try:
            return kind.FromString(request)
        except DecodeError:
            raise Invalid("request: not a message of this kind") from None

    def answered(self, answer: Any) -> None:
        """An answer goes out."""
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
