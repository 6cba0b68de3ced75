"""The codec of the two local sockets: ranks and the sidecar (`rank_messages`), and the sidecar and the node's agent
(`agent_messages`).

A message is one frozen dataclass; its verb names it on the wire. To add a message, write its class in one of the two
modules and add a handler where it is received. Ranks import this module: standard library only.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple, TypeVar

from pharoah_protocol.typed_json import FieldError, read_object, to_json
from pharoah_system.bounded_reading import MESSAGE_LIMITS, UnreadableInput, parse_json
from pharoah_system.text import render_value

MAX_MESSAGE_BYTES = 1 << 20


class MessageError(ValueError):
    """A packet that holds no message of this release; the message of the error names the verb or the field."""


class Message:
    """Base of all messages."""

    VERB: ClassVar[str] = ""


class Packet(NamedTuple):
    """A decoded packet."""

    message: Message
    wants_answer: bool


MESSAGES: dict[str, type[Message]] = {}
"""Every message whose module is imported, by its verb."""

M = TypeVar("M", bound=Message)


def message_class(verb: str) -> Callable[[type[M]], type[M]]:
    """Enter a class under its verb."""

    def enter(kind: type[M]) -> type[M]:
        kind.VERB = verb
        MESSAGES[verb] = kind
        return kind

    return enter


def encode(message: Message, *, wants_answer: bool = False) -> bytes:
    """One packet. A rank calls this up to four times a second while it trains, so the head is put together as text."""
    head = f'{{"verb":"{message.VERB}"' + (',"wants_answer":true' if wants_answer else "")
    body = to_json(vars(message))
    return (f"{head}}}" if body == "{}" else f"{head},{body[1:]}").encode()


def decode(packet: bytes) -> Packet:
    """The message in a packet. Raises MessageError."""
    data = _json_object(packet)
    verb, wants_answer = data.pop("verb", ""), data.pop("wants_answer", False)
    kind = MESSAGES.get(verb) if isinstance(verb, str) else None
    if kind is None:
        raise MessageError(f"verb {str(verb)[:80]!r} is not known to this release")
    if not isinstance(wants_answer, bool):
        raise MessageError(f"{verb}.wants_answer: bool was expected, not {wants_answer!r}")
    try:
        return Packet(read_object(kind, data, verb), wants_answer)
    except FieldError as error:
        raise MessageError(str(error)) from None


def decode_answer(packet: bytes, expected: type[M]) -> M:
    """The answer of a program that may be of another release: fields that this one does not know are left out.

    Raises MessageError for anything but the expected message.
    """
    data = _json_object(packet)
    data.pop("wants_answer", None)
    if (verb := data.pop("verb", "")) != expected.VERB:
        raise MessageError(f"{expected.VERB!r} was expected, not {render_value(verb)}")
    try:
        return read_object(expected, data, expected.VERB, drop_unknown=True)
    except FieldError as error:
        raise MessageError(str(error)) from None


def _json_object(packet: bytes) -> dict[str, Any]:
    """Raises MessageError, also for what is nested too deeply to be read."""
    try:
        data = parse_json(packet, "message", MESSAGE_LIMITS)
    except UnreadableInput as error:
        raise MessageError(f"{packet[:80]!r} is not JSON that can be read: {error.problem}") from None
    if not isinstance(data, dict):
        raise MessageError(f"{packet[:80]!r} is not a JSON object")
    return data


def wants_answer(packet: bytes) -> bool:
    """Whether the sender of a packet that cannot be decoded waits for an answer, as far as the packet shows it."""
    return b'"wants_answer":true' in packet
