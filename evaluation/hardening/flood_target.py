"""A provider as one attacker sees it: connections of its own, and the same call on all of their streams."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc.aio

from evaluation.hardening.flooded_site import certificate
from pharoah_protocol.channels import Access, ServerRole

CONNECTIONS = 16
"""Connections of one flood, each with as many calls as it may have open."""
STREAMS = 64
"""Calls that a flood keeps open on each connection; the provider may allow fewer."""


@dataclass(frozen=True)
class Target:
    """Where the provider is, and who attacks it."""

    endpoint: str
    metrics: str
    pki: Path
    """Folder of the authority."""
    caller: str
    """Whose certificate the attacker shows, such as `tenant/worst/a`."""

    def channel(self) -> grpc.aio.Channel:
        """A connection of its own, also beside other channels of this process."""
        access = Access.from_files(self.endpoint, certificate(self.pki, self.caller))
        return access.aio_channel(("grpc.use_local_subchannel_pool", 1), ("grpc.enable_retries", 0))

    def tls(self) -> ssl.SSLContext:
        """For connections that speak HTTP/2 by hand, with the certificate."""
        files = certificate(self.pki, self.caller)
        assert files.certificate and files.key
        context = self.tls_of_nobody()
        context.load_cert_chain(files.certificate, files.key)
        return context

    def tls_of_nobody(self) -> ssl.SSLContext:
        """The same without a certificate."""
        context = ssl.create_default_context(cafile=self.pki / "ca.pem")
        context.set_alpn_protocols(["h2"])
        return context

    async def raw(self, tls: ssl.SSLContext | None) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A connection to the provider's port; without `tls` nothing is sent by itself."""
        host, _, port = self.endpoint.rpartition(":")
        name = ServerRole.PROVIDER.server_name if tls else None
        return await asyncio.open_connection(host, int(port), ssl=tls, server_hostname=name)

    async def raw_metrics(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        host, _, port = self.metrics.rpartition(":")
        return await asyncio.open_connection(host, int(port))


async def ignoring(work: Awaitable[Any]) -> None:
    """Await `work` whatever the provider does to it."""
    with contextlib.suppress(grpc.aio.AioRpcError, OSError, asyncio.IncompleteReadError):
        await work


async def again_and_again(work: Callable[[], Awaitable[Any]]) -> None:
    """Until cancelled."""
    while True:
        await ignoring(work())
        await asyncio.sleep(0)


async def side_by_side(number: int, work: Callable[[], Awaitable[Any]]) -> None:
    """So many of the same, again and again, until cancelled."""
    async with asyncio.TaskGroup() as group:
        for _ in range(number):
            group.create_task(again_and_again(work))


async def in_parallel(target: Target, work: Callable[[grpc.aio.Channel], Callable[[], Awaitable[Any]]]) -> None:
    """The same call on all streams of several connections, until cancelled."""
    channels = [target.channel() for _ in range(CONNECTIONS)]
    try:
        async with asyncio.TaskGroup() as group:
            for channel in channels:
                for _ in range(STREAMS):
                    group.create_task(again_and_again(work(channel)))
    finally:
        await asyncio.gather(*(channel.close(None) for channel in channels))
