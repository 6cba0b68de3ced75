"""The headers of every call: what leaves beside the messages. `pharoah explain --payload` prints them.

gRPC writes them, and nothing in them depends on the job or on a setting of the user except the address, the transport
and the token. The user agent is gRPC's own: its Python package and its core each add their version, and neither can be
switched off, so it is read here from a call that gRPC really makes, to a server in this process.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

import grpc
import grpc.aio

from pharoah._settings import Settings
from pharoah.sidecar.provider_connection import STATED_DEADLINE_SECONDS
from pharoah_protocol.channels import COMMON_OPTIONS, ServerRole

TOKEN_IN_WORDS = "Bearer (your token)"
WITHOUT_DEADLINE = ("Runs/WatchAlerts", "Runs/WatchOrders")
"""Calls that live as long as the run."""
_REHEARSAL = "/pharoah.rehearsal/Call"
_REHEARSAL_SECONDS = 5.0
"""Longest time for a call inside this process, which takes milliseconds."""


def request_headers(call: str, settings: Settings, user_agent: str) -> dict[str, str]:
    """Name to value of the headers of one call, such as `Exchange/GetEpoch`; the token is masked.

    A call that gRPC repeats, because the provider was away, also has `grpc-previous-rpc-attempts`.
    """
    service, _, method = call.partition("/")
    auditor = service == "Pseudonyms" and bool(settings.auditor_endpoint)
    headers = {
        ":scheme": "https" if settings.certificate_file else "http",
        ":method": "POST",
        ":authority": _authority(settings, auditor=auditor),
        ":path": f"/pharoah.v1.{service}/{method}",
        "te": "trailers",
        "content-type": "application/grpc",
        "user-agent": user_agent,
        "grpc-accept-encoding": "identity, deflate, gzip",
    }
    if call not in WITHOUT_DEADLINE:
        headers["grpc-timeout"] = f"{STATED_DEADLINE_SECONDS / 60:g}M"
    if settings.token_file and not settings.certificate_file:
        headers["authorization"] = TOKEN_IN_WORDS
    return headers


def _authority(settings: Settings, *, auditor: bool) -> str:
    """What gRPC writes there: the name that is checked in the server's certificate, or the path of the Unix socket."""
    if not settings.certificate_file:
        endpoints = [settings.endpoint, *([settings.auditor_endpoint] if auditor else [])]
        return " or ".join(dict.fromkeys(quote(endpoint.removeprefix("unix:/"), safe="") for endpoint in endpoints))
    roles = [ServerRole.PROVIDER, *([ServerRole.AUDITOR] if auditor else [])]
    return " or ".join(role.server_name for role in roles)


async def user_agent() -> str:
    """The user agent that gRPC sends from this machine. Raises AioRpcError, OSError."""
    found: list[str] = []

    class Recorder(grpc.GenericRpcHandler):  # type: ignore[type-arg]
        def service(self, details: Any) -> Any:
            metadata: Mapping[str, Any] = dict(details.invocation_metadata)
            found.append(str(metadata.get("user-agent", "")))

            async def answer(request: bytes, _: Any) -> bytes:
                return request

            return grpc.unary_unary_rpc_method_handler(answer)

    with tempfile.TemporaryDirectory() as folder:
        address = f"unix:{Path(folder) / 'rehearsal.sock'}"
        server = grpc.aio.server()
        server.add_generic_rpc_handlers((Recorder(),))
        server.add_insecure_port(address)
        await server.start()
        try:
            channel = grpc.aio.insecure_channel(address, list(COMMON_OPTIONS))
            async with channel, asyncio.timeout(_REHEARSAL_SECONDS):
                await channel.unary_unary(_REHEARSAL, None, None)(b"", wait_for_ready=True)
        finally:
            await server.stop(None)
    return found[0]
