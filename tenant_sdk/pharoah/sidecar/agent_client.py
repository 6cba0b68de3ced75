"""Asks the node's own agent over its local socket: a ticket for this run, the profile that jobs start under, and what
the signals of the node show."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from pathlib import Path

from pharoah._errors import UnknownReason
from pharoah_protocol.agent_messages import (
    ForecastAnswer,
    ForecastRequest,
    SignalReading,
    SignalsAnswer,
    SignalsRequest,
    TicketAnswer,
    TicketRequest,
)
from pharoah_protocol.hazard_model import MAX_MODEL_BYTES
from pharoah_protocol.local_messages import Message, decode_answer, encode
from pharoah_protocol.received_profile import ReceivedProfile, read_received_profile
from pharoah_protocol.v1 import NodeTicket
from pharoah_system.local_sockets import CheckedSocket
from pharoah_system.text import sanitize_text
from pharoah_system.trusted_paths import UntrustedPathError

MAX_ANSWER_BYTES = 1 << 16
"""A profile with measured ceilings has less than a tenth of it."""
MAX_READINGS = 1024
"""Readings that are used: those of dozens of signals of each of 16 devices."""
MAX_READING_BYTES = 1024
"""A reading has about 190 bytes; with the longest texts that are used it has about 500."""


@dataclass(frozen=True)
class NodeAnswer:
    """What the agent of this node has answered, checked."""

    ticket: NodeTicket
    received: ReceivedProfile


async def ask_node(socket_path: str, timeout_seconds: float, service_users: str = "") -> NodeAnswer:
    """A fresh ticket. `service_users` may run the agent besides root and us.

    Raises UnknownReason when no agent that can be trusted answers on this node, or not with a ticket.
    """
    try:
        place = CheckedSocket(Path(socket_path), service_users)
        async with asyncio.timeout(timeout_seconds):
            line = await _answer_line(place, TicketRequest())
        answer = decode_answer(line, TicketAnswer)
        ticket = NodeTicket(body=answer.body.encode(), signature=bytes.fromhex(answer.signature))
        return NodeAnswer(ticket, read_received_profile(answer.profile))
    except UntrustedPathError as error:
        raise UnknownReason(f"the agent's socket {socket_path} is not asked: {error} (PHAROAH_SERVICE_USERS)") from None
    except Exception as error:  # noqa: BLE001 - whoever listens there may answer anything
        raise UnknownReason(
            f"no agent answers at {socket_path} ({type(error).__name__}): this node cannot be named to the provider"
        ) from None


async def ask_signals(socket_path: str, timeout_seconds: float, service_users: str = "") -> tuple[SignalReading, ...]:
    """What the signals of this node show now; nothing where no agent that can be trusted answers."""
    try:
        place = CheckedSocket(Path(socket_path), service_users)
        async with asyncio.timeout(timeout_seconds):
            line = await _answer_line(place, SignalsRequest(), MAX_READINGS * MAX_READING_BYTES)
        readings = decode_answer(line, SignalsAnswer).readings
    except Exception:  # noqa: BLE001 - whoever listens there may answer anything
        return ()
    return tuple(
        replace(one, name=sanitize_text(one.name, 64), device=sanitize_text(one.device, 64),
                measures=sanitize_text(one.measures, 200))
        for one in readings[:MAX_READINGS]
    )  # fmt: skip


async def ask_forecast(socket_path: str, timeout_seconds: float, service_users: str = "") -> ForecastAnswer:
    """What is needed to forecast failures of this node, not checked; nothing where no agent that can be trusted
    answers."""
    try:
        place = CheckedSocket(Path(socket_path), service_users)
        async with asyncio.timeout(timeout_seconds):
            line = await _answer_line(place, ForecastRequest(), 2 * MAX_MODEL_BYTES)
        return decode_answer(line, ForecastAnswer)
    except Exception:  # noqa: BLE001 - whoever listens there may answer anything
        return ForecastAnswer()


async def _answer_line(place: CheckedSocket, request: Message, most_bytes: int = MAX_ANSWER_BYTES) -> bytes:
    """Raises UntrustedPathError, OSError, and ValueError for an answer that is too long."""
    reader, writer = await asyncio.open_unix_connection(str(place.path), limit=most_bytes)
    try:
        place.check_peer(writer.get_extra_info("socket"))
        writer.write(encode(request) + b"\n")
        return await reader.readline()
    finally:
        writer.close()
