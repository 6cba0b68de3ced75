"""Asks the node's own agent over its local socket: a ticket for this run, and the profile that jobs start under."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

from pharoah._errors import UnknownReason
from pharoah_protocol.local_messages import MessageError, TicketAnswer, TicketRequest, decode, encode
from pharoah_protocol.v1 import NodeTicket

LARGEST_ANSWER_BYTES = 1 << 16


@dataclass(frozen=True)
class NodeAnswer:
    """What the agent of this node has answered."""

    ticket: NodeTicket
    profile: dict[str, Any]


async def ask_node(socket_path: str, timeout_seconds: float) -> NodeAnswer:
    """A fresh ticket. Raises UnknownReason when no agent answers on this node."""
    try:
        async with asyncio.timeout(timeout_seconds):
            reader, writer = await asyncio.open_unix_connection(socket_path, limit=LARGEST_ANSWER_BYTES)
            try:
                writer.write(encode(TicketRequest()) + b"\n")
                answer = decode(await reader.readline()).message
            finally:
                writer.close()
        if not isinstance(answer, TicketAnswer):
            raise MessageError(f"the agent answered with {answer.VERB!r}")
        ticket = NodeTicket(body=answer.body.encode(), signature=bytes.fromhex(answer.signature))
        return NodeAnswer(ticket, answer.profile)
    except (OSError, TimeoutError, ValueError) as error:
        raise UnknownReason(
            f"no agent answers at {socket_path} ({type(error).__name__}): this node cannot be named to the provider"
        ) from None
