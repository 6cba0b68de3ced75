"""Calls of an operator to a running provider."""

from __future__ import annotations

import argparse
from collections.abc import Generator
from typing import Any

import grpc

from pharoah_protocol.channels import AccessError
from pharoah_protocol.rpc import Stub
from pharoah_protocol.v1 import ListRequest
from pharoah_provider import channel
from pharoah_serving.errors import ProviderError
from pharoah_system.bounded_reading import parse_json
from pharoah_system.text import one_line, render_value, sanitize_text

CALL_SECONDS = 30.0
"""Deadline of a call with one answer; the provider works on none for longer (`call_guard.MAX_CALL_SECONDS`)."""

MAX_DETAILS_CHARACTERS = 2000
"""Characters of a refusal that are printed; a campaign file is refused with a few hundred."""

_DOCUMENTS = ("content",)
"""Fields with the text of a document."""


class CallError(ProviderError):
    """A call that the provider did not answer, or refused."""

    def __init__(self, error: grpc.RpcError) -> None:
        self.details = sanitize_text(error.details() or "", MAX_DETAILS_CHARACTERS)
        super().__init__(f"{self.details} ({error.code().name})")
        self.invalid = error.code() is grpc.StatusCode.INVALID_ARGUMENT
        """Whether the request was at fault."""
        self.unavailable = error.code() is grpc.StatusCode.UNAVAILABLE
        """Whether the connection ended, or there was none."""


def call(
    arguments: argparse.Namespace,
    method: str,
    request: Any,
    *,
    seconds: float = CALL_SECONDS,
    largest_bytes: int = channel.MAX_LISTING_BYTES,
) -> Any:
    """The answer to one call of the service Operator. Raises ProviderError."""
    access = channel.access(arguments)
    with channel.operator_channel(access, largest_bytes) as opened:
        try:
            return _in_lines(
                getattr(Stub(opened, "Operator"), method)(request, metadata=access.metadata, timeout=seconds)
            )
        except grpc.RpcError as error:
            raise CallError(error) from None
        except AccessError as error:
            raise ProviderError(str(error)) from None


def _in_lines(answer: Any) -> Any:
    """The answer of a call, each of whose texts is one printable line: a name must not begin a line that looks like
    ours. What holds a whole document stays as it is, for who reads it."""
    for field, value in answer.ListFields():
        if isinstance(value, str) and field.name not in _DOCUMENTS:
            setattr(answer, field.name, one_line(value))
        elif field.name == "notices":
            value[:] = map(one_line, value)
    return answer


def rows_of(arguments: argparse.Namespace, listing: str) -> list[dict[str, Any]]:
    """The rows of a listing. Raises ProviderError, and UnreadableInput for an answer that is no JSON."""
    return [read_row(text) for text in call(arguments, "List", ListRequest(listing=listing)).rows]


def read_row(text: str) -> dict[str, Any]:
    """One row of a listing as the provider sends it. Raises as `rows_of` does."""
    row = parse_json(text, "a row of the provider's answer")
    if not isinstance(row, dict):
        raise ProviderError(f"the provider's answer is not a listing: {render_value(text)}")
    return {name: one_line(value) if isinstance(value, str) else value for name, value in row.items()}


def stream(arguments: argparse.Namespace, method: str, request: Any) -> Generator[Any]:
    """The answers of one call of the service Operator as they come, without a deadline. Who does not read them to their
    end closes them. Raises ProviderError."""
    access = channel.access(arguments)
    with channel.operator_channel(access) as opened:
        try:
            yield from map(_in_lines, getattr(Stub(opened, "Operator"), method)(request, metadata=access.metadata))
        except grpc.RpcError as error:
            raise CallError(error) from None
        except AccessError as error:
            raise ProviderError(str(error)) from None
