"""The call guard stands between gRPC and every servicer: it authenticates, authorises, limits and records each call.

A call that no rule allows is refused. One map turns the errors of servicers into gRPC statuses. Known callers are
worked for in turns (`turns`); calls of strangers, and connections that give most of their calls up, are answered
without any work, and kept for a while when they come in floods (`peers`).
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import logging
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from contextlib import aclosing, asynccontextmanager, contextmanager, nullcontext, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

import grpc
from google.protobuf.descriptor import MethodDescriptor

from pharoah_protocol.vocabulary import Role
from pharoah_serving.admission import Admission, CrowdedCall, RejectedCall
from pharoah_serving.audit_log import AuditLog
from pharoah_serving.context import Context
from pharoah_serving.costs import charging, meter
from pharoah_serving.errors import Exhausted, Invalid, NotReady, ProviderError, Refused, StoreError, Unknown
from pharoah_serving.guarded_call import MAX_MESSAGE_BYTES, GuardedCall
from pharoah_serving.identity import Identities
from pharoah_serving.long_steps import StepWatch, watch_work, watching
from pharoah_serving.metrics import Metrics
from pharoah_serving.peers import Peers, address_of
from pharoah_serving.principals import Principal
from pharoah_serving.quotas import noting
from pharoah_serving.recorder import CallRecorder
from pharoah_serving.turns import CALL_SECONDS, Turns

log = logging.getLogger("pharoah.provider.services")

RULES = {
    "Exchange": Role.TENANT,
    "Runs": Role.TENANT,
    "Pseudonyms": Role.TENANT,
    "Agent": Role.AGENT,
    "Operator": Role.OPERATOR,
}
"""The role that may call a service. A service without a rule is served to nobody."""
STREAMING_METHODS = {"Connect", "WatchAlerts", "WatchOrders", "RunCampaign", "Learn"}
"""Streams that live as long as their subject. Every other call needs a deadline."""
MAX_CALL_SECONDS = 30.0
RECHECK_SECONDS = 20.0
"""How often it is checked whether the caller of an open stream is still known."""
REFUSED_SECONDS = 0.1
"""How long a refused call is read from before it is answered: its request came with its headers, or does not matter."""
STREAM_SECONDS = 0.003
"""CPU seconds that a caller is charged for opening a stream: what gRPC, its first answer and its end take."""
YOUNG_SECONDS = 1.0
"""A stream that is cancelled later than this after its beginning was used; it does not count as given up."""
LATE_SECONDS = 0.05
"""A call that is cancelled with less time left has met its deadline; it was not given up."""

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
    """Unix seconds."""
    peers: Peers = field(default_factory=Peers)
    admission: Admission = field(default_factory=Admission)
    turns: Turns = field(default_factory=Turns)
    recorder: CallRecorder = field(init=False)

    def __post_init__(self) -> None:
        self.recorder = CallRecorder(self.audit, self.clock)

    def guard(
        self, descriptor: MethodDescriptor, method: Callable[..., Any], largest_bytes: int = MAX_MESSAGE_BYTES
    ) -> Callable[..., Any]:
        """`method` behind the guard: it is called with a parsed request, of at most so many bytes, and its errors
        become statuses. A stream of requests gives those that are longer than others as bytes."""
        guard = self._stream if inspect.isasyncgenfunction(method) else self._unary
        return functools.partial(guard, descriptor, method, largest_bytes)

    def _call(self, descriptor: MethodDescriptor, largest_bytes: int, context: Context) -> GuardedCall:
        call = GuardedCall(descriptor.name, context.peer(), largest_bytes)
        counted = self.metrics.long_steps.labels(call.method).inc
        call.watch = StepWatch(lambda: f"{call.method} of {call.who or 'a stranger'}", counted)
        return call

    async def _unary(
        self,
        descriptor: MethodDescriptor,
        method: Any,
        largest_bytes: int,
        requests: AsyncIterator[bytes],
        context: Context,
    ) -> Any:
        call = self._call(descriptor, largest_bytes, context)
        assert call.watch
        with watching(call.watch):
            return await watch_work(self._answer(descriptor, method, requests, context, call), call.watch)

    async def _answer(
        self,
        descriptor: MethodDescriptor,
        method: Any,
        requests: AsyncIterator[bytes],
        context: Context,
        call: GuardedCall,
    ) -> Any:
        began = time.perf_counter()
        try:
            async with self._watch(call, context):
                try:
                    async with self._admit(descriptor, context, call), self._request(call, requests) as request:
                        answer = await meter(method(call.parse(descriptor, request), context))
                        call.count_answer(answer)
                except Exception as error:  # noqa: BLE001 - whatever it is, the caller gets a status and nothing more
                    await self._abort(error, call, context, requests)
        except StoreError:
            await context.abort(grpc.StatusCode.UNAVAILABLE, "the provider cannot keep its records now")
        self.metrics.rpc_seconds.labels(call.method).observe(time.perf_counter() - began)
        return answer

    async def _stream(
        self,
        descriptor: MethodDescriptor,
        method: Any,
        largest_bytes: int,
        requests: AsyncIterator[bytes],
        context: Context,
    ) -> AsyncIterator[Any]:
        call = self._call(descriptor, largest_bytes, context)
        assert call.watch
        with watching(call.watch):
            async with aclosing(self._answers(descriptor, method, requests, context, call)) as answers:
                with suppress(StopAsyncIteration):
                    while True:
                        yield await watch_work(anext(answers), call.watch)

    async def _answers(
        self,
        descriptor: MethodDescriptor,
        method: Any,
        requests: AsyncIterator[bytes],
        context: Context,
        call: GuardedCall,
    ) -> AsyncGenerator[Any, None]:
        async with self._watch(call, context):
            try:
                async with self._admit(descriptor, context, call):
                    if descriptor.name in STREAMING_METHODS:
                        async with (
                            self._open(descriptor, method, requests, context, call) as answers,
                            aclosing(_each_metered(answers)) as each,
                        ):
                            async for answer in each:
                                call.count_answer(answer)
                                yield answer
                    else:
                        async with (
                            self._request(call, requests) as request,
                            aclosing(method(call.parse(descriptor, request), context)) as answers,
                            aclosing(_each_metered(answers)) as each,
                        ):
                            async for answer in each:
                                call.count_answer(answer)
                                yield answer
            except Exception as error:  # noqa: BLE001 - whatever it is, the caller gets a status and nothing more
                await self._abort(error, call, context, requests)

    @asynccontextmanager
    async def _watch(self, call: GuardedCall, context: Context) -> AsyncIterator[None]:
        """A line in the audit log and in the metrics, however the call ends; a call that is given up counts.

        Raises StoreError when the line cannot be written and the call takes a quota.
        """
        began = time.monotonic()
        try:
            with self._record(call):
                yield
        except asyncio.CancelledError:
            left = context.time_remaining()
            late = left is not None and left <= LATE_SECONDS
            if late or time.monotonic() - began < YOUNG_SECONDS:
                await self._give_up(call, late=late)
            raise

    async def _give_up(self, call: GuardedCall, *, late: bool) -> None:
        """Charge for a call that its client has cancelled; where that happens in floods, keep it for a while.

        A call that has met its deadline (`late`) does not count against its connection.
        """
        if not late:
            self.peers.gave_up(call.peer)
        if call.who is not None:
            self.turns.charge(call.who, CALL_SECONDS)
        if self.peers.too_often(f"cancelled {_source(call)}") or self.peers.is_refused(call.peer):
            await self.peers.keep(call.peer)

    @contextmanager
    def _record(self, call: GuardedCall) -> Iterator[None]:
        try:
            yield
        except asyncio.CancelledError:
            call.status = grpc.StatusCode.CANCELLED.name
            raise
        finally:
            self.metrics.rpcs.labels(call.method, call.status).inc()
            self.recorder.record(call.record(), call.who, call.peer)

    @asynccontextmanager
    async def _admit(self, descriptor: MethodDescriptor, context: Context, call: GuardedCall) -> AsyncIterator[None]:
        """A call while it is inside. Raises RejectedCall, TimeoutError."""
        refused = self.peers.count_call(call.peer)
        who = call.who = self.identities.identify(context)
        if who is None:
            raise RejectedCall(grpc.StatusCode.UNAUTHENTICATED, "unknown caller")
        self.peers.is_known(call.peer)
        if refused:
            raise CrowdedCall("most calls of this connection are cancelled; call again in a minute")
        streaming = descriptor.name in STREAMING_METHODS
        with self.admission.count(who, streaming=streaming), charging(call.cost), noting(call.use), _calling(who):
            try:
                async with asyncio.timeout(None if streaming else _seconds_inside(context)) as limit:
                    _check(descriptor, who, context)
                    with self._recheck(who, context, limit) if streaming else nullcontext():
                        yield
            except TimeoutError:
                if streaming and limit.expired():
                    raise RejectedCall(grpc.StatusCode.UNAUTHENTICATED, "the caller is not known any more") from None
                raise
            finally:
                self.turns.charge(who, call.cost.take())

    @contextmanager
    def _recheck(self, who: Principal, context: Context, limit: asyncio.Timeout) -> Iterator[None]:
        """A stream, which ends when its caller is not known any more: a token was deleted, a certificate was denied."""
        loop = asyncio.get_running_loop()
        planned: list[asyncio.TimerHandle] = []

        def plan() -> None:
            planned[:] = [loop.call_later(RECHECK_SECONDS, check)]

        def check() -> None:
            if self.identities.identify(context) == who:
                plan()
            else:
                limit.reschedule(loop.time())

        plan()
        try:
            yield
        finally:
            planned[0].cancel()

    @asynccontextmanager
    async def _request(self, call: GuardedCall, requests: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        """The request of a call, while it is the call's turn. Raises TimeoutError, CrowdedCall."""
        assert call.who is not None
        request = await call.first_message(requests)
        with self.admission.keep(call.who, len(request)):
            async with self.turns.turn(call.who, call.cost):
                yield request

    @asynccontextmanager
    async def _open(
        self,
        descriptor: MethodDescriptor,
        method: Any,
        requests: AsyncIterator[bytes],
        context: Context,
        call: GuardedCall,
    ) -> AsyncIterator[AsyncIterator[Any]]:
        """The answers of a stream. It has its turn while it is opened, and then for each message that comes in."""
        assert call.who is not None
        call.cost.add(STREAM_SECONDS)
        if descriptor.client_streaming:
            async with self.turns.turn(call.who, call.cost):
                messages = call.each_parsed(descriptor, requests, self.turns)
            # Closed here: the message that a servicer refuses has its turn until its iterator is closed, and without
            # this only the garbage collector would do that. The caller would have no turn for other calls meanwhile.
            async with aclosing(messages), aclosing(method(messages, context)) as answers:
                yield answers
        else:
            async with self._request(call, requests) as request:
                message = call.parse(descriptor, request)
            async with aclosing(method(message, context)) as answers:
                yield answers

    async def _abort(
        self, error: Exception, call: GuardedCall, context: Context, requests: AsyncIterator[bytes]
    ) -> None:
        if isinstance(error, RejectedCall):
            code, message = error.code, str(error)
            await self._make_wait(error, call, context)
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

    async def _make_wait(self, error: RejectedCall, call: GuardedCall, context: Context) -> None:
        """Before a refusal: known callers wait for their turn, so that refused calls are paid for like others; what
        comes in floods is kept for a while. Anybody else is answered at once."""
        if call.who is None or isinstance(error, CrowdedCall):
            if self.peers.too_often(_source(call)):
                await self.peers.keep(call.peer)
        else:
            with suppress(TimeoutError):
                async with asyncio.timeout(_seconds_inside(context)), self.turns.turn(call.who, call.cost):
                    pass


async def _each_metered(answers: AsyncIterator[Any]) -> AsyncGenerator[Any, None]:
    """The answers of a stream; the event loop's time that they take is charged to its caller."""
    with suppress(StopAsyncIteration):
        while True:
            yield await meter(anext(answers))


@contextmanager
def _calling(who: Principal) -> Iterator[None]:
    """While `caller` returns `who`."""
    token = _caller.set(who)
    try:
        yield
    finally:
        with suppress(ValueError):  # gRPC closes a stream that was cancelled from another context
            _caller.reset(token)


def _source(call: GuardedCall) -> str:
    """By whom floods are counted: the caller, or the address of a stranger."""
    return str(call.who.counted_as) if call.who else address_of(call.peer)


def _check(descriptor: MethodDescriptor, who: Principal, context: Context) -> None:
    """Raises RejectedCall unless a rule allows the call, and for one without a deadline that needs one."""
    if (role := RULES.get(descriptor.containing_service.name)) != who.role:
        message = f"not allowed: this is for {role}s, and the certificate or token is of the {who.role} {who.name}"
        raise RejectedCall(grpc.StatusCode.PERMISSION_DENIED, message)
    if descriptor.name not in STREAMING_METHODS and context.time_remaining() is None:
        raise RejectedCall(grpc.StatusCode.INVALID_ARGUMENT, "deadline: every call needs one")


def _seconds_inside(context: Context) -> float:
    """How long a call may take."""
    remaining = context.time_remaining()
    return MAX_CALL_SECONDS if remaining is None else min(remaining, MAX_CALL_SECONDS)
