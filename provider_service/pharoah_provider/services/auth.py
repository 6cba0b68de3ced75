"""Who calls, and whether they may: tokens by role, deny by default.

The token file has one `role name token` per line; roles are tenant, agent and operator. It is read again when it
changes, so that a token can be withdrawn without a restart.
"""

from __future__ import annotations

import hmac
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import grpc
import grpc.aio

from pharoah_provider.errors import ProviderError
from pharoah_provider.services import Context

ROLES = ("tenant", "agent", "operator")
RULES = {"Exchange": "tenant", "Runs": "tenant", "Agent": "agent", "Operator": "operator"}
"""Service to the role that may call it. A service without a rule is not served to anybody."""
OPEN = ("/grpc.health.v1.Health/", "/grpc.reflection.")


class TokenFileError(ProviderError):
    """A token file nobody can read; the message names file and line."""


class Tokens:
    """Tokens of one file. Thread-safe for reading."""

    def __init__(self, file: Path) -> None:
        """Raises TokenFileError."""
        self._file = file
        self._stamp = 0
        self._tokens: list[tuple[str, str, bytes]] = []
        self._refresh()

    def principal(self, metadata: Any) -> tuple[str, str] | None:
        """(role, name) of the bearer, or None."""
        self._refresh()
        given = next((value for key, value in metadata or () if key == "authorization"), "")
        token = str(given).removeprefix("Bearer ").encode()
        found = None
        for role, name, known in self._tokens:
            if hmac.compare_digest(known, token):
                found = (role, name)
        return found

    def _refresh(self) -> None:
        try:
            stamp = self._file.stat().st_mtime_ns
            if stamp != self._stamp:
                self._tokens = _parse(self._file)
                self._stamp = stamp
        except OSError as error:
            if not self._stamp:
                raise TokenFileError(f"{self._file}: {error.strerror}") from None


def _parse(file: Path) -> list[tuple[str, str, bytes]]:
    tokens = []
    for number, line in enumerate(file.read_text().splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        fields = line.split()
        if len(fields) != 3 or fields[0] not in ROLES:
            raise TokenFileError(f"{file}:{number}: expected `role name token`, role one of {', '.join(ROLES)}")
        if len(fields[2]) < 16:
            raise TokenFileError(f"{file}:{number}: the token of {fields[1]} is shorter than 16 characters")
        tokens.append((fields[0], fields[1], fields[2].encode()))
    return tokens


class Gatekeeper(grpc.aio.ServerInterceptor):  # type: ignore[type-arg] # not subscriptable at run time
    """Refuses calls whose bearer may not make them, before a handler sees them."""

    def __init__(self, tokens: Tokens) -> None:
        self._tokens = tokens

    async def intercept_service(
        self, continuation: Callable[[Any], Awaitable[Any]], details: grpc.HandlerCallDetails
    ) -> Any:
        handler = await continuation(details)
        if handler is None or details.method.startswith(OPEN):
            return handler
        principal = self._tokens.principal(details.invocation_metadata)
        if principal is None:
            return _refusing(handler, grpc.StatusCode.UNAUTHENTICATED, "unknown token")
        service = details.method.rpartition("/")[0].rpartition(".")[2]
        if RULES.get(service) != principal[0]:
            return _refusing(handler, grpc.StatusCode.PERMISSION_DENIED, "not allowed")
        return handler

    def name(self, context: Context) -> str:
        """Name of the caller of a call that was let through."""
        principal = self._tokens.principal(context.invocation_metadata())
        return principal[1] if principal else ""


def _refusing(handler: Any, code: grpc.StatusCode, message: str) -> Any:
    async def refuse(_: Any, context: Context) -> None:
        await context.abort(code, message)

    async def refuse_stream(_: Any, context: Context) -> Any:
        await context.abort(code, message)
        yield  # makes it a generator, as a streaming handler must be

    shape = {
        (False, False): (grpc.unary_unary_rpc_method_handler, refuse),
        (False, True): (grpc.unary_stream_rpc_method_handler, refuse_stream),
        (True, False): (grpc.stream_unary_rpc_method_handler, refuse),
        (True, True): (grpc.stream_stream_rpc_method_handler, refuse_stream),
    }
    make, behaviour = shape[handler.request_streaming, handler.response_streaming]
    return make(
        behaviour,
        request_deserializer=handler.request_deserializer,
        response_serializer=handler.response_serializer,
    )
