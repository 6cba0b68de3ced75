"""The one way into a servicer: who calls, may they, how much at once, how long; and the record of it.

Everything is refused that no rule allows. One map turns our errors into gRPC statuses.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import logging
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

import grpc
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message import DecodeError

from pharoah.rpc import request_type
from pharoah_provider.audit import AuditLog
from pharoah_provider.errors import Exhausted, Invalid, NotReady, ProviderError, Refused, StoreError, Unknown
from pharoah_provider.metrics import Metrics
from pharoah_provider.principals import Principal
from pharoah_provider.services import Context
from pharoah_provider.services.identity import Identities

log = logging.getLogger("pharoah.provider.services")

RULES = {"Exchange": "tenant", "Runs": "tenant", "Names": "tenant", "Agent": "agent", "Operator": "operator"}
"""Service to the role that may call it. A service without a rule is not served to anybody."""
LASTING = {"Connect", "WatchAlerts", "RunCampaign", "Learn"}
"""Streams that live as long as what they are about; everything else must bring a deadline."""
LONGEST_SECONDS = 30.0
AT_ONCE = {"tenant": 16, "agent": 8, "operator": 32}
LASTING_AT_ONCE = {"tenant": 256, "agent": 2, "operator": 8}

STATUS: dict[type[ProviderError], grpc.StatusCode] = {
    Invalid: grpc.StatusCode.INVALID_ARGUMENT,
    Unknown: grpc.StatusCode.NOT_FOUND,
    NotReady: grpc.StatusCode.FAILED_PRECONDITION,
    Exhausted: grpc.StatusCode.RESOURCE_EXHAUSTED,
    Refused: grpc.StatusCode.PERMISSION_DENIED,
    StoreError: grpc.StatusCode.UNAVAILABLE,
}
EXPECTED = (ProviderError, ArithmeticError, LookupError, TypeError, ValueError, OSError)

_caller: ContextVar[Principal] = ContextVar("caller")


def caller() -> Principal:
    """Who makes the call that is being served."""
    return _caller.get()


class Denied(Exception):
    """A call that does not get in; carries what it is answered."""

    def __init__(self, code: grpc.StatusCode, message: str) -> None:
        super().__init__(message)
        self.code = code


@dataclass
class Gate:
    """Wraps the methods of servicers. Single-threaded: belongs to the event loop."""

    identities: Identities
    audit: AuditLog
    metrics: Metrics
    clock: Callable[[], float] = time.time
    _inside: Counter[tuple[str, str, bool]] = field(default_factory=Counter)

    def guard(self, descriptor: MethodDescriptor, method: Callable[..., Any]) -> Callable[..., Any]:
        """A method that only lets in whom it may, parses what they bring, and whose errors become statuses."""
        guard = self._stream if inspect.isasyncgenfunction(method) else self._unary
        return functools.partial(guard, descriptor, method)

    async def _unary(self, descriptor: MethodDescriptor, method: Any, request: Any, context: Context) -> Any:
        began, name = time.perf_counter(), descriptor.name
        with self._recorded(name) as record:
            try:
                with self._inside_for(descriptor, context, record) as seconds:
                    async with asyncio.timeout(seconds):
                        answer = await method(record.parsed(descriptor, request), context)
                record.answered(answer)
            except (Denied, TimeoutError, *EXPECTED) as error:
                await self._abort(name, error, record, context)
        self.metrics.rpc_seconds.labels(name).observe(time.perf_counter() - began)
        return answer

    async def _stream(
        self, descriptor: MethodDescriptor, method: Any, request: Any, context: Context
    ) -> AsyncIterator[Any]:
        with self._recorded(descriptor.name) as record:
            try:
                with self._inside_for(descriptor, context, record) as seconds:
                    async with asyncio.timeout(seconds):
                        async for answer in method(record.parsed(descriptor, request), context):
                            record.answered(answer)
                            yield answer
            except (Denied, TimeoutError, *EXPECTED) as error:
                await self._abort(descriptor.name, error, record, context)

    @contextmanager
    def _recorded(self, name: str) -> Iterator[_Record]:
        """A line in the audit log and in the metrics, however the call ends."""
        record = _Record(name)
        try:
            yield record
        except asyncio.CancelledError:
            record.status = "CANCELLED"
            raise
        finally:
            self.metrics.rpcs.labels(name, record.status).inc()
            try:
                self.audit.record(self.clock(), **record.fields())
            except StoreError:
                log.exception("a call is not in the audit log")

    @contextmanager
    def _inside_for(self, descriptor: MethodDescriptor, context: Context, record: _Record) -> Iterator[float | None]:
        """While a caller is inside; how long it may stay. Raises Denied."""
        who = self.identities.of(context)
        if who is None:
            raise Denied(grpc.StatusCode.UNAUTHENTICATED, "unknown caller")
        record.who = who
        if RULES.get(descriptor.containing_service.name) != who.role:
            raise Denied(grpc.StatusCode.PERMISSION_DENIED, "not allowed")
        lasting = descriptor.name in LASTING
        remaining = context.time_remaining()
        if remaining is None and not lasting:
            raise Denied(grpc.StatusCode.INVALID_ARGUMENT, "deadline: every call needs one")
        key, most = (who.role, who.name, lasting), (LASTING_AT_ONCE if lasting else AT_ONCE)[who.role]
        if self._inside[key] >= most:
            raise Denied(grpc.StatusCode.RESOURCE_EXHAUSTED, f"more than {most} calls at once")
        self._inside[key] += 1
        token = _caller.set(who)
        try:
            yield None if lasting or remaining is None else min(remaining, LONGEST_SECONDS)
        finally:
            self._inside[key] -= 1
            try:
                _caller.reset(token)
            except ValueError:
                pass  # a stream that was given up is closed from another context

    async def _abort(self, name: str, error: Exception, record: _Record, context: Context) -> None:
        if isinstance(error, Denied):
            code, message = error.code, str(error)
        elif isinstance(error, TimeoutError):
            code, message = grpc.StatusCode.DEADLINE_EXCEEDED, "out of time"
        elif isinstance(error, ProviderError):
            code, message = STATUS.get(type(error), grpc.StatusCode.INTERNAL), str(error)
        else:
            log.error("%s failed", name, exc_info=error)
            code, message = grpc.StatusCode.INTERNAL, "internal error"
        record.status = code.name
        await context.abort(code, message)


@dataclass
class _Record:
    method: str
    who: Principal | None = None
    status: str = "OK"
    offer: bytes = b""
    received_bytes: int = 0
    sent_bytes: int = 0

    def parsed(self, descriptor: MethodDescriptor, request: Any) -> Any:
        """The request as a message, or as messages when they come as a stream. Raises Invalid."""
        kind = request_type(descriptor)
        if descriptor.client_streaming:
            return self._each(kind, request)
        message = self._one(kind, request)
        self.offer = getattr(message, "offer_id", b"")
        return message

    async def _each(self, kind: Any, requests: AsyncIterator[bytes]) -> AsyncIterator[Any]:
        async for request in requests:
            yield self._one(kind, request)

    def _one(self, kind: Any, request: bytes) -> Any:
        self.received_bytes += len(request)
        try:
            return kind.FromString(request)
        except DecodeError:
            raise Invalid("request: not a message of this kind") from None

    def answered(self, answer: Any) -> None:
        self.sent_bytes += answer.ByteSize()

    def fields(self) -> dict[str, Any]:
        return {
            "role": self.who.role if self.who else "",
            "name": self.who.name if self.who else "",
            "method": self.method,
            "offer": self.offer.hex()[:64],
            "received_bytes": self.received_bytes,
            "sent_bytes": self.sent_bytes,
            "status": self.status,
        }
