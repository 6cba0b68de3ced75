"""The provider process: everything wired together, from the database to the listening port."""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from pharoah_protocol.bounds import MAX_FINGERPRINT_BYTES
from pharoah_protocol.v1 import service
from pharoah_protocol.voprf import libsodium
from pharoah_provider.cell_results import MAX_CELL_MESSAGE_BYTES
from pharoah_provider.exchange_server import ExchangeServer
from pharoah_provider.first_start import make_provider
from pharoah_provider.owned_tasks import OwnedTasks
from pharoah_provider.services import readers
from pharoah_provider.services.agent import AgentServicer
from pharoah_provider.services.exchange import ExchangeServicer
from pharoah_provider.services.health import Health
from pharoah_provider.services.operator import OperatorServicer
from pharoah_provider.services.runs import RunsServicer
from pharoah_provider.services.settings import DEFAULT_ADDRESSES, ServerSettings
from pharoah_provider.services.state import ProviderState, open_files, restore_state
from pharoah_provider.services.upkeep import Upkeep
from pharoah_provider.storage.retention import RetentionTask, retention
from pharoah_provider.witnesses import read_witnesses
from pharoah_serving.addresses import address_of
from pharoah_serving.call_guard import RULES, CallGuard
from pharoah_serving.connections import watches_of
from pharoah_serving.guarded_call import MAX_MESSAGE_BYTES
from pharoah_serving.identity import Certificates
from pharoah_serving.listener import listen, prepare_process
from pharoah_serving.metrics_server import MetricsAddress, serving_metrics
from pharoah_serving.peer_certificates import PeerCertificates
from pharoah_serving.pseudonym_service import PseudonymServicer
from pharoah_serving.reading_processes import ReadingProcesses
from pharoah_serving.tokens import Tokens

log = logging.getLogger("pharoah.provider")

MAX_FILE_BYTES = 1 << 20
"""A campaign file, or a table of another provider, with the other fields of the request."""
MAX_REQUESTS = {
    "Agent.Connect": MAX_CELL_MESSAGE_BYTES,
    "Runs.Reveal": MAX_FINGERPRINT_BYTES + MAX_MESSAGE_BYTES,
    "Operator.PlanCampaign": MAX_FILE_BYTES,
    "Operator.RunCampaign": MAX_FILE_BYTES,
    "Operator.ImportTable": MAX_FILE_BYTES,
}
"""Bytes of a request, where there is a reason for more than others have. All of these are read in other processes."""
STOP_SECONDS = 2.0
"""Time for calls to end when the provider stops; tenants connect again by themselves."""


@asynccontextmanager
async def provider(settings: ServerSettings) -> AsyncIterator[str]:
    """A running provider; the address it listens on. Raises ProviderError naming file, setting or port."""
    address = address_of(settings.listen, settings.tls, DEFAULT_ADDRESSES, settings.socket_group)
    metrics_address = MetricsAddress(settings.http, settings.http_token, settings.metrics_public)
    metrics_address.check()
    kept_days = retention(settings.retention)
    libsodium.library()  # raises with what to install, before anything is opened
    identities, witnesses = _identities(settings), read_witnesses(settings.witnesses)
    if settings.init:
        make_provider(settings.keys, settings.db)
    async with AsyncExitStack() as owned:
        owned.callback(address.close)
        reading = await owned.enter_async_context(ReadingProcesses(readers.TABLE))
        files = open_files(settings, owned)
        state = await restore_state(settings, files, witnesses)
        servicers, clock = _servicers(state, settings, reading), state.clock
        calls = CallGuard(identities, files.audit, state.metrics, clock.wall)
        status = Health((service(name).full_name for name in servicers), calls.peers)
        server, endpoint = listen(servicers, calls, address, status.handler(), largest_messages=MAX_REQUESTS)
        old_rows = RetentionTask(files.store, kept_days, clock.wall, clock.since_boot)
        upkeep = Upkeep(state.publisher, files.audit, state.pseudonym_keys, status, old_rows, files.guard,
                        state.node_forecasts, lambda: files.store.failed)  # fmt: skip
        try:
            await server.start()
            async with OwnedTasks() as background, serving_metrics(state.metrics.text, metrics_address) as metrics_at:
                await upkeep.begin()
                watches = [watch.run() for watch in watches_of(endpoint, calls.peers)]
                for work in (upkeep.run(), calls.recorder.run(), *watches, state.monitor.keep_watch()):
                    background.start(work)
                log.info("metrics on %s", metrics_at)
                await state.campaigns.restore()
                yield endpoint
        finally:
            status.set_status(serving=False)
            state.monitor.end_streams()
            state.fleet.end_streams()  # before the campaign ends, or agents would be sent to stop their cells
            await state.campaigns.close()
            calls.peers.close()
            await server.stop(STOP_SECONDS)
            await state.monitor.close()
            calls.recorder.flush()


def _identities(settings: ServerSettings) -> Certificates | Tokens:
    """What identifies callers: certificates with TLS, else tokens."""
    if settings.tls:
        return Certificates(settings.domain, PeerCertificates(settings.tls.clients, settings.deny_list))
    return Tokens(settings.tokens)


def _servicers(state: ProviderState, settings: ServerSettings, reading: ReadingProcesses) -> dict[str, Any]:
    """The servicer of each service, by its short name."""
    files, clock = state.files, state.clock
    store, keys, fleet, publisher = files.store, files.keys, state.fleet, state.publisher
    exchange = ExchangeServer(store.nodes, keys, publisher, state.quotas, fleet, clock)
    servicers = {
        "Exchange": ExchangeServicer(exchange),
        "Runs": RunsServicer(
            store, state.monitor, state.intake, state.joins, state.quotas, clock, state.fleet.contexts, reading
        ),
        "Pseudonyms": PseudonymServicer(state.pseudonym_keys, store.sharing.count_evaluation),
        "Agent": AgentServicer(store.nodes, fleet, state.metrics, clock, reading, settings.peer_hosts),
        "Operator": OperatorServicer(
            store, keys, fleet, publisher, state.campaigns, state.node_actions, state.node_forecasts, reading
        ),
    }
    assert servicers.keys() == RULES.keys()
    return servicers


async def serve(settings: ServerSettings, ready: Any) -> None:
    """Run a provider until SIGTERM or SIGINT; `ready(address)` is called once it listens."""
    stop = asyncio.Event()
    prepare_process()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    async with provider(settings) as address:
        ready(address)
        await stop.wait()
        log.info("stopping")
