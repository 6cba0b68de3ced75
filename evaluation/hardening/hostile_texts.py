"""Texts that take a terminal over, and a provider whose every answer and error is made of them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Any

import grpc
from google.protobuf import message_factory
from google.protobuf.descriptor import FieldDescriptor, MethodDescriptor
from google.protobuf.message import Message

from pharoah_protocol.rpc import request_type
from pharoah_protocol.v1 import services
from pharoah_provider.listings import LISTINGS

MARK = "owned"
"""A word of every text: an output that holds it has shown a text of others."""
NEW_LINE = "\nforged: "
"""A line of an output that begins so is not ours."""
TEXT = (
    f"{MARK}\x1b[2J\x1b]0;title\x07\x1b[31;7m\r\x08\x00\x9b31m\x85\u2028\u2029\u202e\u2066\u200f\ufeff\x7f"
    f"[red]x[/red] [link=http://x]y[/link]{NEW_LINE}line\ttab"
)
"""C0 and C1, what sets titles and colours, line ends of Unicode, directions, rich's markup."""
DEPTH = 5
"""Messages within messages."""


class Manner(StrEnum):
    """How the provider answers."""

    REFUSES = "refuses"
    """Every call ends with an error whose details are the text."""
    ANSWERS = "answers"
    """Every field of every answer is the text."""
    BABBLES = "babbles"
    """Answers that hold JSON hold the text in its place."""


CODES = (grpc.StatusCode.PERMISSION_DENIED, grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.NOT_FOUND,
         grpc.StatusCode.UNAVAILABLE)  # fmt: skip


def filled(message: Message, text: str = TEXT, depth: int = DEPTH) -> Message:
    """A message whose every field holds something, and every text the hostile one."""
    for field in message.DESCRIPTOR.fields:
        values = [_value(field, text, depth)]
        if values == [None]:
            continue
        if field.is_repeated:
            getattr(message, field.name).extend(values)
        elif field.message_type is not None:
            getattr(message, field.name).CopyFrom(values[0])
        else:
            setattr(message, field.name, values[0])
    return message


def _value(field: Any, text: str, depth: int) -> Any:
    if field.message_type is not None:
        made = message_factory.GetMessageClass(field.message_type)()
        return filled(made, text, depth - 1) if depth else None
    match field.cpp_type:
        case FieldDescriptor.CPPTYPE_STRING:
            return text.encode() if field.type == FieldDescriptor.TYPE_BYTES else text
        case FieldDescriptor.CPPTYPE_FLOAT | FieldDescriptor.CPPTYPE_DOUBLE:
            return 1.0
        case FieldDescriptor.CPPTYPE_BOOL:
            return True
        case _:
            return 1


@contextmanager
def hostile_provider(socket: Path, manner: Manner, code: grpc.StatusCode = CODES[0]) -> Iterator[None]:
    """Every service of Pharoah on a Unix socket."""
    server = grpc.server(ThreadPoolExecutor(8))
    for service in services():
        handlers = {method.name: _handler(method, manner, code) for method in service.methods}
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service.full_name, handlers),))
    server.add_insecure_port(f"unix:{socket}")
    server.start()
    try:
        yield
    finally:
        server.stop(0)


def _handler(method: MethodDescriptor, manner: Manner, code: grpc.StatusCode) -> Any:
    def answer(request: Any, context: grpc.ServicerContext) -> Any:
        if manner is Manner.REFUSES:
            context.abort(code, TEXT)
        return _answer(method, request, manner)

    def answers(_: Any, context: grpc.ServicerContext) -> Iterator[Message]:
        if manner is Manner.REFUSES:
            context.abort(code, TEXT)
        yield from (_answer(method, None, manner, number) for number in range(4))
        context.abort(code, TEXT)

    server, client = (
        "stream" if streams else "unary" for streams in (method.server_streaming, method.client_streaming)
    )
    make = getattr(grpc, f"{client}_{server}_rpc_method_handler")
    return make(
        answers if method.server_streaming else answer,
        request_deserializer=request_type(method).FromString,
        response_serializer=message_factory.GetMessageClass(method.output_type).SerializeToString,
    )


def _answer(method: MethodDescriptor, request: Any, manner: Manner, number: int = 0) -> Any:
    answer: Any = message_factory.GetMessageClass(method.output_type)()
    if method.name == "List":
        answer.rows.append(TEXT if manner is Manner.BABBLES else _row(request.listing))
        return answer
    if method.name == "Connect":
        kinds = [field.name for field in answer.DESCRIPTOR.fields if field.message_type is not None]
        kind = ("welcome", "ack", "node_state", kinds[-1])[number]
        filled(getattr(answer, kind))
        return answer
    return filled(answer, TEXT if manner is Manner.BABBLES else json.dumps({MARK: TEXT}, ensure_ascii=False))


def _row(name: str) -> str:
    """A row of a listing, with the text in all columns."""
    listing = LISTINGS.entries.get(name)
    columns = (*listing.columns, *listing.wide_columns, "reason", "executor") if listing else ()
    return json.dumps(dict.fromkeys(columns, TEXT), ensure_ascii=False)
