"""Calls that need no caller, such as those of methods that do not exist.

They are answered at once. When an address floods them, each is kept for a while before it is answered, so that its
connection runs out of streams and gRPC refuses the rest by itself (`peers`).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc

from pharoah_serving.context import Context
from pharoah_serving.peers import Peers, address_of


class UnknownMethods(grpc.GenericRpcHandler):  # type: ignore[type-arg]  # it is generic in the stubs alone
    """Answers calls of methods that no service has. It comes after all services."""

    def __init__(self, peers: Peers) -> None:
        self._peers = peers

    def service(self, _: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler[Any, Any]:
        return grpc.stream_unary_rpc_method_handler(self._refuse)

    async def _refuse(self, _: AsyncIterator[bytes], context: Context) -> bytes:
        await delay(self._peers, context.peer())
        await context.abort(grpc.StatusCode.UNIMPLEMENTED, "Method not found!")
        raise AssertionError("abort returns nothing")


async def delay(peers: Peers, peer: str) -> None:
    """Count a call without a caller; in a flood of its address it is kept, also when it is cancelled, unless its
    connection makes as few calls as a probe of health does."""
    peers.count_call(peer)
    try:
        if peers.too_often(address_of(peer)) and not peers.is_quiet(peer):
            await peers.keep(peer)
    except asyncio.CancelledError:
        peers.gave_up(peer)
        raise
