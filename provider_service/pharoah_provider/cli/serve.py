"""`pharoah-provider serve`: run the provider."""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
from pathlib import Path
from typing import Any

from pharoah_learning.node_actions import Breaker
from pharoah_protocol.voprf.libsodium import SodiumMissing
from pharoah_provider.cli._values import amount, count, http_address, table_days
from pharoah_provider.node_actions import ActionMode
from pharoah_provider.peer_hosts import PeerHosts
from pharoah_provider.services.server import serve
from pharoah_provider.services.settings import ServerSettings
from pharoah_serving.errors import ProviderError
from pharoah_serving.keys import open_keys
from pharoah_serving.listener import Tls
from pharoah_serving.quotas import Limits
from pharoah_system.log_lines import log_to_standard_error
from pharoah_system.standard_streams import show


def add_parser(commands: Any) -> None:
    """Add this command."""
    defaults = ServerSettings()
    parser = commands.add_parser("serve", help="run the provider", description=__doc__)
    option = parser.add_argument
    option("--listen", default=defaults.listen, metavar="ADDRESS",
           help="gRPC: HOST:PORT with TLS, else unix:/path (default: provider.sock in "
           "$XDG_RUNTIME_DIR/pharoah, for root in /run/pharoah; 127.0.0.1:7443 with TLS)")  # fmt: skip
    option("--socket-group", default=defaults.socket_group, metavar="GROUP",
           help="whose members may connect to the Unix socket (default: its owner alone)")  # fmt: skip
    option("--http", default=defaults.http, metavar="ADDRESS",
           help="/metrics, on unix:PATH or HOST:PORT (default: %(default)s)")  # fmt: skip
    option("--http-token", type=Path, metavar="FILE", help="readers of /metrics must send its content as bearer token")
    option("--metrics-public", action="store_true", help="let --http be an address beyond this machine")
    option("--db", type=Path, default=defaults.db, help="DuckDB file (default: %(default)s)")
    option("--keys", default=defaults.keys, help="folder of secrets, or command:CMD (default: %(default)s)")
    option("--init", action="store_true", help="make the keys when there are none; for a first start only")
    option("--audit", type=Path, default=defaults.audit, help="folder of the audit log (default: %(default)s)")
    option("--witnesses", type=Path, help="file of `KEY URL` lines: the witnesses that cosign the log")
    option("--tls-cert", type=Path, help="certificate of this provider (PEM); with --tls-key and --client-ca")
    option("--tls-key", type=Path, help="key of the certificate")
    option("--client-ca", type=Path, help="authority that signs the certificates of tenants, agents and operators")
    option("--deny-list", type=Path, help="file of serial numbers of certificates that are not accepted any more")
    option("--domain", default=defaults.domain, help="SPIFFE trust domain (default: %(default)s)")
    option("--tokens", type=Path, default=defaults.tokens, help="list of tokens, without TLS (default: %(default)s)")
    option("--settle-seconds", type=amount, default=defaults.settle_seconds, metavar="S",
           help="how long no micro-benchmark runs beside a run that has begun (default: %(default)g)")  # fmt: skip
    option("--benchmark-share", type=amount, default=defaults.benchmark_share, metavar="RATIO",
           help="share of the time that micro-benchmarks may take for one tenant (default: %(default)g)")  # fmt: skip
    option("--idle-check-seconds", type=amount, default=defaults.idle_check_seconds, metavar="S",
           help="pause between two checks of an idle node; 0 for no checks (default: %(default)g)")  # fmt: skip
    option("--alert-url", type=http_address, default=defaults.alert_url, metavar="URL",
           help="an Alertmanager that gets all incidents, such as http://127.0.0.1:9093/api/v2/alerts")  # fmt: skip
    option("--node-actions", choices=list(ActionMode), type=ActionMode, default=defaults.node_actions,
           help="how far the actions of sick nodes go (default: %(default)s)")  # fmt: skip
    option("--most-drained", type=count, default=defaults.breaker.most_nodes, metavar="N",
           help="how many nodes may be drained at a time (default: %(default)s)")  # fmt: skip
    option("--most-drained-share", type=amount, default=defaults.breaker.most_share, metavar="RATIO",
           help="share of the nodes of one context that may be drained (default: %(default)g)")  # fmt: skip
    limits = defaults.limits
    option("--tenant-queries", type=count, default=limits.tenant_queries, metavar="N",
           help="verdicts that a tenant may ask for in a day (default: %(default)s)")  # fmt: skip
    option("--organisation-queries", type=count, default=limits.organisation_queries, metavar="N",
           help="verdicts in a day for all accounts of an organisation (default: %(default)s)")  # fmt: skip
    option("--tenant-offers", type=count, default=limits.tenant_offers, metavar="N",
           help="offers that a tenant may take in a day (default: %(default)s)")  # fmt: skip
    option("--peer-host", action="append", default=[], metavar="NODE=HOST",
           help="where other nodes reach a node while two measure their network; may be repeated (default: the "
           "address that its agent comes from)")  # fmt: skip
    option("--retention", type=table_days, action="append", default=[], metavar="TABLE=DAYS",
           help="how long rows are kept; may be repeated (docs/provider/operation.md lists the tables)")  # fmt: skip
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Serve until SIGTERM or SIGINT. Raises ProviderError that names the option or the file."""
    log_to_standard_error(logging.INFO, "%(asctime)s %(name)s %(levelname)s %(message)s")
    os.umask(0o077)  # database, keys and audit log are readable by their owner alone
    names = (
        "listen", "socket_group", "http", "http_token", "metrics_public", "db", "keys", "audit", "witnesses", "domain",
        "tokens", "settle_seconds", "init", "deny_list", "benchmark_share", "node_actions", "idle_check_seconds",
        "alert_url",
    )  # fmt: skip
    files = (arguments.tls_cert, arguments.tls_key, arguments.client_ca)
    if any(files) and not all(files):
        raise ProviderError("--tls-cert, --tls-key and --client-ca belong together")
    settings = ServerSettings(
        **{name: getattr(arguments, name) for name in names},
        tls=Tls(*files) if all(files) else None,
        breaker=_breaker(arguments),
        limits=Limits(arguments.tenant_queries, arguments.organisation_queries, arguments.tenant_offers),
        peer_hosts=PeerHosts.from_options(arguments.peer_host),
        retention=dict(arguments.retention),
    )

    def ready(address: str) -> None:
        show(f"pharoah-provider listens on {address}; metrics on {settings.http}")
        show(f"provider key for tenants: {open_keys(settings.keys).public.hex()}", flush=True)

    try:
        asyncio.run(serve(settings, ready))
    except SodiumMissing as error:
        raise ProviderError(str(error)) from None
    return 0


def _breaker(arguments: argparse.Namespace) -> Breaker:
    try:
        return Breaker(arguments.most_drained, arguments.most_drained_share)
    except ValueError as error:
        raise ProviderError(f"--most-drained, --most-drained-share: {error}") from None
