"""The node's own agent, asked over its local socket: a ticket for this run, and the profile jobs here start under."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from typing import Any

from pharoah._errors import UnknownReason
from pharoah_protocol.v1 import NodeTicket

LARGEST_ANSWER = 1 << 16


@dataclass(frozen=True)
class NodeAnswer:
    ticket: NodeTicket
    profile: dict[str, Any]


async def ask_node(socket_path: str, timeout_seconds: float) -> NodeAnswer:
    """A fresh ticket. Raises UnknownReason when no agent stands on this node."""
    try:
        async with asyncio.timeout(timeout_seconds):
            reader, writer = await asyncio.open_unix_connection(socket_path, limit=LARGEST_ANSWER)
            try:
                writer.write(b'{"op": "ticket"}\n')
                answer = json.loads(await reader.readline())
            finally:
                writer.close()
        ticket = NodeTicket(body=answer["body"].encode(), signature=bytes.fromhex(answer["signature"]))
        return NodeAnswer(ticket, answer["profile"])
    except (OSError, TimeoutError, ValueError, KeyError, TypeError) as error:
        raise UnknownReason(
            f"no agent answers at {socket_path} ({type(error).__name__}): this node cannot be named to the provider"
        ) from None
