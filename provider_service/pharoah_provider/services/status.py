"""One map from our errors to gRPC status, and the counting of calls."""

from __future__ import annotations

import functools
import inspect
import logging
import time
from collections.abc import Callable
from typing import Any

import grpc

from pharoah_provider.errors import Exhausted, Invalid, NotReady, ProviderError, Refused, StoreError, Unknown
from pharoah_provider.metrics import Metrics
from pharoah_provider.services import Context

log = logging.getLogger("pharoah.provider.services")

STATUS: dict[type[ProviderError], grpc.StatusCode] = {
    Invalid: grpc.StatusCode.INVALID_ARGUMENT,
    Unknown: grpc.StatusCode.NOT_FOUND,
    NotReady: grpc.StatusCode.FAILED_PRECONDITION,
    Exhausted: grpc.StatusCode.RESOURCE_EXHAUSTED,
    Refused: grpc.StatusCode.PERMISSION_DENIED,
    StoreError: grpc.StatusCode.UNAVAILABLE,
}


def translated(metrics: Metrics, name: str, method: Callable[..., Any]) -> Callable[..., Any]:
    """A servicer method whose errors become statuses and whose calls are counted."""

    async def fail(error: Exception, context: Context) -> None:
        if isinstance(error, ProviderError):
            code, message = STATUS.get(type(error), grpc.StatusCode.INTERNAL), str(error)
        else:
            log.exception("%s failed", name)
            code, message = grpc.StatusCode.INTERNAL, "internal error"
        metrics.rpcs.labels(name, code.name).inc()
        await context.abort(code, message)

    @functools.wraps(method)
    async def unary(request: Any, context: Context) -> Any:
        began = time.perf_counter()
        try:
            answer = await method(request, context)
        except (ProviderError, ArithmeticError, LookupError, TypeError, ValueError, OSError) as error:
            await fail(error, context)
            return None
        metrics.rpcs.labels(name, "OK").inc()
        metrics.rpc_seconds.labels(name).observe(time.perf_counter() - began)
        return answer

    @functools.wraps(method)
    async def stream(request: Any, context: Context) -> Any:
        try:
            async for answer in method(request, context):
                yield answer
        except (ProviderError, ArithmeticError, LookupError, TypeError, ValueError, OSError) as error:
            await fail(error, context)
        metrics.rpcs.labels(name, "OK").inc()

    return stream if inspect.isasyncgenfunction(method) else unary
