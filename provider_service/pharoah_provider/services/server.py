"""The provider process: everything wired together, from the database to the listening port."""

from __future__ import annotations

import asyncio
import logging
import signal
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc.aio
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from pharoah.exchange.group import sodium
from pharoah.proto.v1 import service
from pharoah.rpc import handlers
from pharoah_provider.errors import ProviderError
from pharoah_provider.exchange import Exchange
from pharoah_provider.fleet import Fleet
from pharoah_provider.keys import KeyFolder
from pharoah_provider.metrics import Metrics
from pharoah_provider.monitoring.monitor import Monitor
from pharoah_provider.services.agent import AgentServicer
from pharoah_provider.services.auth import RULES, Gatekeeper, Tokens
from pharoah_provider.services.exchange import ExchangeServicer
from pharoah_provider.services.operator import OperatorServicer
from pharoah_provider.services.runs import RunsServicer
from pharoah_provider.services.status import translated
from pharoah_provider.store import Database, Store

log = logging.getLogger("pharoah.provider")

LARGEST_MESSAGE = 1 << 20
DRAIN_SECONDS = 2.0
ROTATION_CHECK_SECONDS = 60.0
LOOPBACK = ("127.0.0.1", "localhost", "[::1]")


@dataclass(frozen=True)
class ServerSettings:
    listen: str = "127.0.0.1:7443"
    http: str = "127.0.0.1:7480"
    db: Path = Path("pharoah.duckdb")
    keys: Path = Path("pharoah-keys")
    tokens: Path = Path("pharoah-tokens")
    insecure: bool = False
    """Listen without TLS on an address that is not loopback."""


@asynccontextmanager
async def provider(settings: ServerSettings) -> AsyncIterator[str]:
    """A running provider; the address it listens on. Raises ProviderError naming file, setting or port."""
    host, _, port = settings.listen.rpartition(":")
    if host not in LOOPBACK and not settings.insecure:
        raise ProviderError(f"--listen {settings.listen}: not loopback, and TLS is not set up; --insecure allows it")
    sodium()  # raises with what to install, before anything is opened
    tokens, keys = Tokens(settings.tokens), KeyFolder(settings.keys)
    store = Store(Database(settings.db))
    try:
        metrics, fleet = Metrics(), Fleet()
        metrics.watch_agents(fleet.last_seen)
        exchange, monitor = Exchange(store, keys), Monitor(store, fleet, metrics)
        await exchange.rotate(time.time())
        if release := await store.newest_release():
            monitor.use(release)
        await monitor.restore()
        gatekeeper = Gatekeeper(tokens)
        servicers = {
            "Exchange": ExchangeServicer(exchange, gatekeeper),
            "Runs": RunsServicer(store, monitor, gatekeeper),
            "Agent": AgentServicer(store, fleet, gatekeeper),
            "Operator": OperatorServicer(store, fleet, exchange, monitor),
        }
        assert servicers.keys() == RULES.keys()
        server = _server(servicers, gatekeeper, metrics)
        status = health.aio.HealthServicer()
        health_pb2_grpc.add_HealthServicer_to_server(status, server)
        names = [service(name).full_name for name in servicers]
        for name in ("", *names):
            await status.set(name, health_pb2.HealthCheckResponse.SERVING)
        if host in LOOPBACK:
            reflection.enable_server_reflection([*names, health.SERVICE_NAME, reflection.SERVICE_NAME], server)
        bound = _bind(server, settings.listen)
        http = _serve_metrics(metrics, settings.http)
        await server.start()
        rotating = asyncio.create_task(_rotate(exchange))
        try:
            yield f"{host}:{bound}" if port == "0" else settings.listen
        finally:
            rotating.cancel()
            await status.enter_graceful_shutdown()
            monitor.drain()
            await server.stop(DRAIN_SECONDS)
            http.shutdown()
            http.server_close()
    finally:
        store.close()


async def _rotate(exchange: Exchange) -> None:
    while True:
        await asyncio.sleep(ROTATION_CHECK_SECONDS)
        try:
            await exchange.rotate(time.time())
        except ProviderError:
            log.exception("the epoch could not be rotated; trying again in a minute")


async def serve(settings: ServerSettings, ready: Any) -> None:
    """Run a provider until SIGTERM or SIGINT; `ready(address)` is called once it listens."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    async with provider(settings) as address:
        ready(address)
        await stop.wait()
        log.info("draining")


def _server(servicers: dict[str, Any], gatekeeper: Gatekeeper, metrics: Metrics) -> grpc.aio.Server:
    options = [
        ("grpc.max_receive_message_length", LARGEST_MESSAGE),
        ("grpc.max_metadata_size", 8192),
        ("grpc.so_reuseport", 0),
        ("grpc.keepalive_permit_without_calls", 0),
    ]
    server = grpc.aio.server(interceptors=[gatekeeper], options=options)
    generic = []
    for name, servicer in servicers.items():
        for method in service(name).methods:
            wrapped = translated(metrics, method.name, getattr(servicer, method.name))
            setattr(servicer, method.name, wrapped)
        generic.append(handlers(name, servicer))
    server.add_generic_rpc_handlers(tuple(generic))
    return server


def _bind(server: grpc.aio.Server, listen: str) -> int:
    try:
        return int(server.add_insecure_port(listen))
    except RuntimeError:
        raise ProviderError(f"--listen {listen}: cannot be bound; is another provider running?") from None


def _serve_metrics(metrics: Metrics, http: str) -> Any:
    host, _, port = http.rpartition(":")
    try:
        return metrics.serve(host, int(port))
    except (OSError, ValueError) as error:
        raise ProviderError(f"--http {http}: {error}") from None
