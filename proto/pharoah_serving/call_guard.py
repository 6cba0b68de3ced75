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
from contextlib import asynccontextmanager, contextmanager, nullcontext, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

import grpc
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message import DecodeError

from pharoah_protocol.rpc import request_type
from pharoah_serving import Context
from pharoah_serving.audit_log import AuditLog
from pharoah_serving.errors import Exhausted, Invalid, NotReady, ProviderError, Refused, StoreError, Unknown
from pharoah_serving.identity import Identities
from pharoah_serving.metrics import Metrics
from pharoah_serving.principals import Principal

log = logging.getLogger("pharoah.provider.services")

RULES = {"Exchange": "tenant", "Runs": "tenant", "Pseudonyms": "tenant", "Agent": "agent", "Operator": "operator"}
"""Service to the role that may call it. A service without a rule is not served to anybody."""
STREAMING_METHODS = {"Connect", "WatchAlerts", "RunCampaign", "Learn"}
"""Streams that live as long as what they are about; everything else must bring a deadline."""
LONGEST_SECONDS = 30.0
QUOTA_METHODS = {"GetOffer", "Evaluate", "Lookup", "EvaluatePseudonym"}
"""Quotas of these are counted from the audit log: without a line there is no answer."""
FIRST_SECONDS, REFUSED_SECONDS = 10.0, 1.0
"""How long a call that is let in, or refused, may take to say what it wants."""
NOT_LOGGED = {("Report", "OK")}
"""One a second of every run: that they came stands in the database."""
CONCURRENT_CALLS = {"tenant": 16, "agent": 8, "operator": 32}
"""Short calls of one caller that are worked on; others wait."""
MOST_WAITING = 1024
CONCURRENT_STREAMS = {"tenant": 2048, "agent": 2, "operator": 8}
"""Of one organisation; so are short calls that wait."""

STATUS: dict[type[ProviderError], grpc.StatusCode] = {
    Invalid: grpc.StatusCode.INVALID_ARGUMENT,
    Unknown: grpc.StatusCode.NOT_FOUND,
    NotReady: grpc.StatusCode.FAILED_PRECONDITION,
    Exhausted: grpc.StatusCode.RESOURCE_EXHAUSTED,
    Refused: grpc.StatusCode.PERMISSION_DENIED,
}

_caller: ContextVar[Principal] = ContextVar("caller")


def caller() -> Principal:
    """Who makes the call that is being served."""
    return _caller.get()


class RejectedCall(Exception):
    """A call that does not get in; carries what it is answered."""

    def __init__(self, code: grpc.StatusCode, message: str) -> None:
        super().__init__(message)
        self.code = code


@dataclass
class CallGuard:
    """Wraps the methods of servicers. Single-threaded: belongs to the event loop."""

    identities: Identities
    audit: AuditLog
    metrics: Metrics
    clock: Callable[[], float] = time.time
    _inside: Counter[tuple[Principal, bool]] = field(default_factory=Counter)
    _rooms: dict[Principal, asyncio.Semaphore] = field(default_factory=dict)

    def guard(self, descriptor: MethodDescriptor, method: Callable[..., Any]) -> Callable[..., Any]:
        """A method that only lets in whom it may, parses what they bring, and whose errors become statuses."""
        guard = self._stream if inspect.isasyncgenfunction(method) else self._unary
        return functools.partial(guard, descriptor, method)

    async def _unary(
        self, descriptor: MethodDescriptor, method: Any, requests: AsyncIterator[bytes], context: Context
    ) -> Any:
        began, name = time.perf_counter(), descriptor.name
        try:
            with self._recorded(name) as record:
                try:
                    seconds = self._let_in(descriptor, context, record)
                    async with (
                        asyncio.timeout(seconds),
                        self._room(record.caller, descriptor.name in STREAMING_METHODS),
                    ):
                        answer = await method(await record.parsed(descriptor, requests), context)
                    record.answered(answer)
                except Exception as error:  # noqa: BLE001 - whatever it is, the caller gets a status and nothing more
                    await self._abort(name, error, record, context, requests)
        except StoreError:
            await context.abort(grpc.StatusCode.UNAVAILABLE, "the provider cannot keep its records now")
        self.metrics.rpc_seconds.labels(name).observe(time.perf_counter() - began)
        return answer

    async def _stream(
        self, descriptor: MethodDescriptor, method: Any, requests: AsyncIterator[bytes], context: Context
    ) -> AsyncIterator[Any]:
        with self._recorded(descriptor.name) as record:
            try:
                seconds = self._let_in(descriptor, context, record)
                async with asyncio.timeout(seconds), self._room(record.caller, descriptor.name in STREAMING_METHODS):
                    async for answer in method(await record.parsed(descriptor, requests), context):
                        record.answered(answer)
                        yield answer
            except Exception as error:  # noqa: BLE001 - whatever it is, the caller gets a status and nothing more
                await self._abort(descriptor.name, error, record, context, requests)

    @contextmanager
    def _recorded(self, name: str) -> Iterator[_Record]:
        """A line in the audit log and in the metrics, however it ends. Raises StoreError where there must be one."""
        record = _Record(name)
        try:
            yield record
        except asyncio.CancelledError:
            record.status = "CANCELLED"
            raise
        finally:
            self.metrics.rpcs.labels(name, record.status).inc()
            if (name, record.status) not in NOT_LOGGED:
                self._record(record)

    def _record(self, record: _Record) -> None:
        try:
            self.audit.record(self.clock(), **record.fields())
        except StoreError:
            log.exception("a call is not in the audit log")
            if record.method in QUOTA_METHODS and record.status == "OK":
                raise

    def _let_in(self, descriptor: MethodDescriptor, context: Context, record: _Record) -> float | None:
        """How long a caller may stay; None for as long as it likes. Raises Denied."""
        who = self.identities.of(context)
        if who is None:
            raise RejectedCall(grpc.StatusCode.UNAUTHENTICATED, "unknown caller")
        record.who = who
        if (role := RULES.get(descriptor.containing_service.name)) != who.role:
            told = f"not allowed: this is for {role}s, and the certificate or token is of the {who.role} {who.name}"
            raise RejectedCall(grpc.StatusCode.PERMISSION_DENIED, told)
        if descriptor.name in STREAMING_METHODS:
            return None
        if (remaining := context.time_remaining()) is None:
            raise RejectedCall(grpc.StatusCode.INVALID_ARGUMENT, "deadline: every call needs one")
        return min(remaining, LONGEST_SECONDS)

    @asynccontextmanager
    async def _room(self, who: Principal, lasting: bool) -> AsyncIterator[None]:
        """While a caller is inside. A job of many nodes asks all at once: short calls wait for their turn, within their
        deadline and up to a number; streams do not. Raises Denied."""
        counted = Principal(who.role, who.organisation if who.role == "tenant" else who.name)
        key, most = (counted, lasting), CONCURRENT_STREAMS[who.role] if lasting else MOST_WAITING
        if self._inside[key] >= most:
            raise RejectedCall(grpc.StatusCode.RESOURCE_EXHAUSTED, f"more than {most} calls at once")
        self._inside[key] += 1
        room = (
            nullcontext() if lasting else self._rooms.setdefault(counted, asyncio.Semaphore(CONCURRENT_CALLS[who.role]))
        )
        token = None
        try:
            async with room:
                token = _caller.set(who)
                yield
        finally:
            self._inside[key] -= 1
            if not self._inside[key]:
                del self._inside[key]
                if not lasting:
                    self._rooms.pop(counted, None)
            try:
                if token is not None:
                    _caller.reset(token)
            except ValueError:
                pass  # a stream that was given up is closed from another context

    async def _abort(
        self, name: str, error: Exception, record: _Record, context: Context, requests: AsyncIterator[bytes]
    ) -> None:
        if isinstance(error, RejectedCall):
            code, message = error.code, str(error)
            # A refusal that crosses the client's first message reaches it as INTERNAL now and then.
            with suppress(Exception):
                await asyncio.wait_for(anext(aiter(requests), b""), REFUSED_SECONDS)
        elif isinstance(error, TimeoutError):
            code, message = grpc.StatusCode.DEADLINE_EXCEEDED, "out of time"
        elif isinstance(error, StoreError):
            log.error("%s: %s", name, error)
            code, message = grpc.StatusCode.UNAVAILABLE, "the provider's database does not answer; its log says more"
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

    @property
    def caller(self) -> Principal:
        """Of a call that was let in."""
        assert self.who is not None
        return self.who

    async def parsed(self, descriptor: MethodDescriptor, requests: AsyncIterator[bytes]) -> Any:
        """The request as a message, or as messages when they come as a stream. Raises Invalid, TimeoutError."""
        kind = request_type(descriptor)
        if descriptor.client_streaming:
            return self._each(kind, requests)
        async with asyncio.timeout(FIRST_SECONDS):
            message = self._one(kind, await anext(aiter(requests), b""))
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
