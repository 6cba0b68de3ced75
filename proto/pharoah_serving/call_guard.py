"""The call guard stands between gRPC and every servicer: it authenticates, authorises, limits and records each call.

A call that no rule allows is refused. One map turns the errors of servicers into gRPC statuses.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import logging
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, nullcontext, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

import grpc
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message import DecodeError

from pharoah_protocol.rpc import request_type
from pharoah_protocol.vocabulary import Role
from pharoah_serving import Context
from pharoah_serving.admission import Admission, RejectedCall
from pharoah_serving.audit_log import AuditLog, AuditRecord
from pharoah_serving.errors import Exhausted, Invalid, NotReady, ProviderError, Refused, StoreError, Unknown
from pharoah_serving.identity import Identities
from pharoah_serving.metrics import Metrics
from pharoah_serving.principals import Principal

log = logging.getLogger("pharoah.provider.services")

RULES = {
    "Exchange": Role.TENANT,
    "Runs": Role.TENANT,
    "Pseudonyms": Role.TENANT,
    "Agent": Role.AGENT,
    "Operator": Role.OPERATOR,
}
"""The role that may call a service. A service without a rule is served to nobody."""
STREAMING_METHODS = {"Connect", "WatchAlerts", "RunCampaign", "Learn"}
"""Streams that live as long as their subject. Every other call needs a deadline."""
LONGEST_CALL_SECONDS = 30.0
QUOTA_METHODS = {"GetOffer", "Evaluate", "Lookup", "EvaluatePseudonym"}
"""Their quotas are counted from the audit log, so a call that cannot be recorded is not answered."""
FIRST_MESSAGE_SECONDS = 10.0
"""How long an admitted call may take to send its request."""
REFUSED_SECONDS = 1.0
"""How long a refused call is read from before it is answered."""
UNLOGGED_CALLS = {("Report", grpc.StatusCode.OK.name)}
"""Every run sends one a second; the database holds them."""

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


@dataclass
class CallGuard:
    """Wraps the methods of servicers. Single-threaded: belongs to the event loop."""

    identities: Identities
    audit: AuditLog
    metrics: Metrics
    clock: Callable[[], float] = time.time
    admission: Admission = field(default_factory=Admission)

    def guard(self, descriptor: MethodDescriptor, method: Callable[..., Any]) -> Callable[..., Any]:
        """`method` behind the guard: it is called with a parsed request, and its errors become statuses."""
        guard = self._stream if inspect.isasyncgenfunction(method) else self._unary
        return functools.partial(guard, descriptor, method)

    async def _unary(
        self, descriptor: MethodDescriptor, method: Any, requests: AsyncIterator[bytes], context: Context
    ) -> Any:
        began, name = time.perf_counter(), descriptor.name
        try:
            with self._recorded(name) as call:
                try:
                    async with self._admitted(descriptor, context, call):
                        answer = await method(await call.parsed(descriptor, requests), context)
                    call.answered(answer)
                except Exception as error:  # noqa: BLE001 - whatever it is, the caller gets a status and nothing more
                    await self._abort(error, call, context, requests)
        except StoreError:
            await context.abort(grpc.StatusCode.UNAVAILABLE, "the provider cannot keep its records now")
        self.metrics.rpc_seconds.labels(name).observe(time.perf_counter() - began)
        return answer

    async def _stream(
        self, descriptor: MethodDescriptor, method: Any, requests: AsyncIterator[bytes], context: Context
    ) -> AsyncIterator[Any]:
        with self._recorded(descriptor.name) as call:
            try:
                async with self._admitted(descriptor, context, call):
                    async for answer in method(await call.parsed(descriptor, requests), context):
                        call.answered(answer)
                        yield answer
            except Exception as error:  # noqa: BLE001 - whatever it is, the caller gets a status and nothing more
                await self._abort(error, call, context, requests)

    @contextmanager
    def _recorded(self, method: str) -> Iterator[_Call]:
        """A line in the audit log and in the metrics, however the call ends.

        Raises StoreError when the line cannot be written and the call takes a quota.
        """
        call = _Call(method)
        try:
            yield call
        except asyncio.CancelledError:
            call.status = grpc.StatusCode.CANCELLED.name
            raise
        finally:
            self.metrics.rpcs.labels(method, call.status).inc()
            if (method, call.status) not in UNLOGGED_CALLS:
                self._record(call)

    def _record(self, call: _Call) -> None:
        try:
            self.audit.record(self.clock(), call.record())
        except StoreError:
            log.exception("a call is not in the audit log")
            if call.method in QUOTA_METHODS and call.status == grpc.StatusCode.OK.name:
                raise

    @asynccontextmanager
    async def _admitted(self, descriptor: MethodDescriptor, context: Context, call: _Call) -> AsyncIterator[None]:
        """A call while it is worked on. Raises RejectedCall, TimeoutError."""
        streaming = descriptor.name in STREAMING_METHODS
        who = call.who = self._authorised(descriptor, context, call)
        async with asyncio.timeout(None if streaming else _seconds_left(context)):
            with self.admission.counted(who, streaming=streaming):
                async with nullcontext() if streaming else self.admission.slot(who):
                    with _calling(who):
                        yield

    def _authorised(self, descriptor: MethodDescriptor, context: Context, call: _Call) -> Principal:
        """The caller, once a rule allows the call. Raises RejectedCall."""
        who = call.who = self.identities.of(context)
        if who is None:
            raise RejectedCall(grpc.StatusCode.UNAUTHENTICATED, "unknown caller")
        if (role := RULES.get(descriptor.containing_service.name)) != who.role:
            message = f"not allowed: this is for {role}s, and the certificate or token is of the {who.role} {who.name}"
            raise RejectedCall(grpc.StatusCode.PERMISSION_DENIED, message)
        return who

    async def _abort(self, error: Exception, call: _Call, context: Context, requests: AsyncIterator[bytes]) -> None:
        if isinstance(error, RejectedCall):
            code, message = error.code, str(error)
            # When a refusal crosses the client's first message, gRPC's client sometimes reports INTERNAL instead.
            with suppress(Exception):
                await asyncio.wait_for(anext(aiter(requests), b""), REFUSED_SECONDS)
        elif isinstance(error, TimeoutError):
            code, message = grpc.StatusCode.DEADLINE_EXCEEDED, "out of time"
        elif isinstance(error, StoreError):
            log.error("%s: %s", call.method, error)
            code, message = grpc.StatusCode.UNAVAILABLE, "the provider's database does not answer; its log says more"
        elif isinstance(error, ProviderError):
            code, message = STATUS.get(type(error), grpc.StatusCode.INTERNAL), str(error)
        else:
            log.error("%s failed", call.method, exc_info=error)
            code, message = grpc.StatusCode.INTERNAL, "internal error"
        call.status = code.name
        await context.abort(code, message)


@contextmanager
def _calling(who: Principal) -> Iterator[None]:
    """While `caller` returns `who`."""
    token = _caller.set(who)
    try:
        yield
    finally:
        with suppress(ValueError):  # gRPC closes a stream that was cancelled from another context
            _caller.reset(token)


def _seconds_left(context: Context) -> float:
    """How long a call may take. Raises RejectedCall for a call without a deadline."""
    if (remaining := context.time_remaining()) is None:
        raise RejectedCall(grpc.StatusCode.INVALID_ARGUMENT, "deadline: every call needs one")
    return min(remaining, LONGEST_CALL_SECONDS)


@dataclass
class _Call:
    """One call on its way through the guard."""

    method: str
    who: Principal | None = None
    status: str = grpc.StatusCode.OK.name
    offer: bytes = b""
    received_bytes: int = 0
    sent_bytes: int = 0

    async def parsed(self, descriptor: MethodDescriptor, requests: AsyncIterator[bytes]) -> Any:
        """The request as a message, or as messages when they come as a stream. Raises Invalid, TimeoutError."""
        kind = request_type(descriptor)
        if descriptor.client_streaming:
            return self._each(kind, requests)
        async with asyncio.timeout(FIRST_MESSAGE_SECONDS):
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
        )
