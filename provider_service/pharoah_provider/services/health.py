"""`grpc.health.v1.Health`, for orchestrators and load balancers: `Check` alone, without a certificate of ours, bounded.

Callers are not authorized here, so that no call may last: there is no `Watch`.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterable
from typing import Any

import grpc
from google.protobuf.message import DecodeError
from grpc_health.v1 import health_pb2

from pharoah_serving.context import Context
from pharoah_serving.open_calls import delay
from pharoah_serving.peers import Peers, address_of

SERVICE = "grpc.health.v1.Health"
MAX_AT_ONCE = 256
"""Questions from one address that may be open at once."""
MAX_QUESTION_BYTES = 1024
"""A question holds the name of a service. Messages to the whole server may be longer (`listener.listen`)."""
QUESTION_SECONDS = 0.5
"""How long a call may take to send its question, which comes with its headers."""
SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING


class Health:
    """The status of each service; unknown services are NOT_FOUND."""

    def __init__(self, services: Iterable[str], peers: Peers) -> None:
        self._statuses = dict.fromkeys(("", *services), NOT_SERVING)
        self._peers = peers
        self._asking: Counter[str] = Counter()

    def set_status(self, serving: bool) -> None:
        """Set the status of all services."""
        self._statuses = dict.fromkeys(self._statuses, SERVING if serving else NOT_SERVING)

    def handler(self) -> grpc.GenericRpcHandler[Any, Any]:
        encode = health_pb2.HealthCheckResponse.SerializeToString
        check = grpc.stream_unary_rpc_method_handler(self._check, response_serializer=encode)
        return grpc.method_handlers_generic_handler(SERVICE, {"Check": check})

    async def _check(self, requests: AsyncIterator[bytes], context: Context) -> Any:
        peer = context.peer()
        address = address_of(peer)
        await delay(self._peers, peer)
        if self._asking[address] >= MAX_AT_ONCE:
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, f"more than {MAX_AT_ONCE} calls at once")
        self._asking[address] += 1
        try:
            async with asyncio.timeout(QUESTION_SECONDS):
                question = _question(await anext(aiter(requests), b""))
        except (TimeoutError, DecodeError):
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "request: no question of health")
        finally:
            self._asking[address] -= 1
            if not self._asking[address]:
                del self._asking[address]
        if question.service not in self._statuses:
            await context.abort(grpc.StatusCode.NOT_FOUND, "no such service")
        return health_pb2.HealthCheckResponse(status=self._statuses[question.service])


def _question(message: bytes) -> health_pb2.HealthCheckRequest:
    """Raises DecodeError."""
    if len(message) > MAX_QUESTION_BYTES:
        raise DecodeError(f"{len(message)} bytes")
    return health_pb2.HealthCheckRequest.FromString(message)
