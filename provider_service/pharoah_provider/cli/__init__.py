"""`pharoah-provider`: serve, and everything an operator asks a running provider."""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import os
import re
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc

from pharoah_protocol.rpc import Stub
from pharoah_protocol.text import sanitize_text
from pharoah_protocol.v1 import (
    HandOverRequest,
    LearnRequest,
    Listing,
    ListRequest,
    RevokeRequest,
    RollbackRequest,
    RunCampaignRequest,
)
from pharoah_protocol.voprf.libsodium import SodiumMissing
from pharoah_provider import channel
from pharoah_provider.cli import archetypes
from pharoah_serving.errors import ProviderError

WIDE = 160
"""Columns of a listing that is no terminal's."""
LISTINGS = {
    "nodes": ("NODES", ["node", "context", "connected", "seen_seconds_ago", "runs", "alerts"]),
    "alerts": ("ALERTS", ["alert_id", "state", "node", "run", "what", "evidence"]),
    "table": ("TABLE", ["id", "nodes", "scope", "rung", "title", "severity", "outcome", "failed", "base"]),
    "near-duplicates": ("NEAR_DUPLICATES", ["id", "nodes", "scope", "severity", "outcome", "failed", "base"]),
    "runs": ("RUNS", ["run", "tenant", "node", "attempt", "beside_job", "end_state"]),
    "probes": ("PROBES", ["node", "benchmark", "purpose", "beside_job", "mean_seconds", "repeats"]),
    "reports": ("REPORTS", ["run", "ended_at", "step_ratio", "memory_ratio", "masked", "risk"]),
    "outcomes": ("OUTCOMES", ["name", "period", "context", "organisations", "runs", "failed"]),
    "revealed": ("REVEALED", ["run", "tenant", "context", "end_state", "archetype"]),
    "cells": ("CELLS", ["node", "workload", "settings", "degradation", "outcome", "step_seconds"]),
}  # fmt: skip
HELP = {
    "table": "the incompatibility table",
    "near-duplicates": "its rows about what alike archetypes have in common",
    "outcomes": "list how runs end, by the names tenants share",
    "revealed": "list jobs that were revealed; -o json has all that was told",
}

CERTIFICATE_NAME = re.compile(r"provider|auditor|tenant/[\w.-]+(/[\w.-]+)?|(agent|operator)/[\w.-]+")
LASTING = {"RunCampaign", "Learn"}
CALL_SECONDS = 30.0


def main(argv: list[str] | None = None) -> int:
    """Entry point; returns the exit code: 0, 1 for what went wrong, 2 for usage."""
    parser = argparse.ArgumentParser(prog="pharoah-provider", description="The provider's side of Pharoah.")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    _add_serve(commands)
    campaign = commands.add_parser("campaign", help="run a campaign file on the connected nodes")
    campaign.add_argument("file", type=Path)
    campaign.set_defaults(run=_campaign)
    learn = commands.add_parser("learn", help="learn a release and seal it as the next epoch")
    learn.set_defaults(run=_learn)
    rollback = commands.add_parser("rollback", help="take the newest release back: seal the one before it")
    rollback.set_defaults(run=_rollback)
    revoke = commands.add_parser("revoke", help="take rows back now, inside the current epoch")
    revoke.add_argument("rows", nargs="+", metavar="ROW", help="their ids, as `table` and `near-duplicates` list them")
    revoke.add_argument("--undo", action="store_true", help="let them hold again, from the next epoch on")
    revoke.set_defaults(run=_revoke)
    handing = commands.add_parser("hand-over", help="what an auditor needs to seal an epoch again; holds its seed")
    handing.add_argument("epoch", type=int)
    handing.add_argument("--out", type=Path, required=True, metavar="FILE", help="made readable for its owner alone")
    handing.set_defaults(run=_hand_over)
    key = commands.add_parser("key", help="print the key that tenants and witnesses pin; made if there is none yet")
    key.add_argument("--keys", default="pharoah-keys", help="as for serve (default: %(default)s)")
    key.set_defaults(run=_key)
    certificate = commands.add_parser("certificate", help="make a certificate, with an authority of this site's own")
    certificate.add_argument("name", help="provider, auditor, tenant/ORG[/ACCOUNT], agent/NODE or operator/NAME")
    certificate.add_argument("--folder", type=Path, default=Path("pharoah-pki"), help="default: %(default)s")
    certificate.add_argument("--domain", default="pharoah.local", help="SPIFFE trust domain (default: %(default)s)")
    certificate.add_argument("--host", action="append", default=[], help="how the provider is reached; may be repeated")
    certificate.set_defaults(run=_certificate)
    archetypes.add_parser(commands)
    for name in LISTINGS:
        listing = commands.add_parser(name, help=HELP.get(name, f"list {name}"))
        listing.add_argument("-o", "--output", choices=["table", "json"], default="table")
        listing.set_defaults(run=_list)
    for command in (campaign, learn, rollback, revoke, handing, *(commands.choices[name] for name in LISTINGS)):
        channel.add_options(command)
    arguments = parser.parse_args(argv)
    try:
        return int(arguments.run(arguments))
    except (ProviderError, SodiumMissing) as error:
        print(f"pharoah-provider: {error}", file=sys.stderr)
    except grpc.RpcError as error:
        print(f"pharoah-provider: {error.details()} ({error.code().name})", file=sys.stderr)
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # whoever read our output has read enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    return 1


def entry() -> None:
    sys.exit(main())


def _add_serve(commands: Any) -> None:
    from pharoah_provider.services.server import ServerSettings

    defaults = ServerSettings()
    parser = commands.add_parser("serve", help="run the provider")
    parser.add_argument("--listen", default=defaults.listen, metavar="HOST:PORT", help="gRPC (default: %(default)s)")
    parser.add_argument("--http", default=defaults.http, metavar="HOST:PORT", help="/metrics (default: %(default)s)")
    parser.add_argument("--db", type=Path, default=defaults.db, help="DuckDB file (default: %(default)s)")
    parser.add_argument(
        "--keys", default=defaults.keys, help="folder of secrets, or command:CMD (default: %(default)s)"
    )
    parser.add_argument("--audit", type=Path, default=defaults.audit, help="audit log's folder (default: %(default)s)")
    parser.add_argument("--witnesses", type=Path, help="file of `KEY URL` lines: who cosigns the log")
    parser.add_argument("--tls-cert", type=Path, help="this provider's certificate (PEM); with --tls-key, --client-ca")
    parser.add_argument("--tls-key", type=Path, help="its key")
    parser.add_argument("--client-ca", type=Path, help="who signs the certificates of tenants, agents and operators")
    parser.add_argument("--domain", default=defaults.domain, help="SPIFFE trust domain (default: %(default)s)")
    parser.add_argument("--tokens", type=Path, default=defaults.tokens, help="without TLS (default: %(default)s)")
    parser.add_argument("--settle-seconds", type=_amount, default=defaults.settle_seconds, metavar="S",
                        help="how long a run is left alone by benchmarks (default: %(default)g)")  # fmt: skip
    limits = defaults.limits
    parser.add_argument("--tenant-questions", type=_count, default=limits.tenant_questions, metavar="N",
                        help="verdicts a tenant may ask for in a day (default: %(default)s)")  # fmt: skip
    parser.add_argument("--organisation-questions", type=_count, default=limits.organisation_questions, metavar="N",
                        help="and all its accounts together (default: %(default)s)")  # fmt: skip
    parser.add_argument("--tenant-offers", type=_count, default=limits.tenant_offers, metavar="N",
                        help="offers a tenant may take in a day (default: %(default)s)")  # fmt: skip
    parser.set_defaults(run=_serve)


def _count(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number >= 0")
    return int(text)


def _amount(text: str) -> float:
    try:
        if 0 <= (value := float(text)) < float("inf"):
            return value
    except ValueError:
        pass
    raise argparse.ArgumentTypeError(f"{text!r} is not a number >= 0")


def _serve(arguments: argparse.Namespace) -> int:
    from pharoah_provider.services.server import ServerSettings, serve
    from pharoah_serving.keys import open_keys
    from pharoah_serving.listener import Tls
    from pharoah_serving.quotas import Limits

    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(levelname)s %(message)s")
    os.umask(0o077)  # database, keys and audit log are the provider's own
    names = ("listen", "http", "db", "keys", "audit", "witnesses", "domain", "tokens")
    files = (arguments.tls_cert, arguments.tls_key, arguments.client_ca)
    if any(files) and not all(files):
        raise ProviderError("--tls-cert, --tls-key and --client-ca belong together")
    limits = Limits(arguments.tenant_questions, arguments.organisation_questions, arguments.tenant_offers)
    settings = ServerSettings(
        **{name: getattr(arguments, name) for name in names},
        tls=Tls(*files) if all(files) else None,
        settle_seconds=arguments.settle_seconds,
        limits=limits,
    )

    def ready(address: str) -> None:
        print(f"pharoah-provider listens on {address}; metrics on http://{settings.http}/metrics")
        print(f"provider key for tenants: {open_keys(settings.keys).public.hex()}", flush=True)

    asyncio.run(serve(settings, ready))
    return 0


def _campaign(arguments: argparse.Namespace) -> int:
    try:
        text = arguments.file.read_text()
    except OSError as error:
        raise ProviderError(f"{arguments.file}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ProviderError(f"{arguments.file}: not a text in UTF-8") from None

    try:
        _show_progress(_stub(arguments, "RunCampaign")(RunCampaignRequest(campaign=text)))
    except grpc.RpcError as error:
        if error.code() != grpc.StatusCode.INVALID_ARGUMENT:
            raise
        raise ProviderError(f"{arguments.file}: {error.details()}") from None
    return 0


def _show_progress(answers: Iterator[Any]) -> None:
    """A bar on a terminal, a line per tenth elsewhere."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("campaign"), BarColumn(24), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, TextColumn("{task.description}"), disable=not sys.stdout.isatty()) as bar:
        task = bar.add_task("", total=None)
        told = -1
        for answer in answers:
            bar.update(
                task,
                completed=answer.done,
                total=answer.total,
                description=f"{answer.node} {answer.cell[:30]}",
            )
            tenth = 10 * answer.done // answer.total
            if bar.disable and tenth > told:
                told = tenth
                print(
                    f"campaign {answer.done}/{answer.total}  {answer.node} {answer.cell}: {answer.outcome}",
                    flush=True,
                )


def _learn(arguments: argparse.Namespace) -> int:
    for answer in _stub(arguments, "Learn")(LearnRequest()):
        print(answer.message, flush=True)
    return 0


def _rollback(arguments: argparse.Namespace) -> int:
    answer = _stub(arguments, "Rollback")(RollbackRequest())
    print(f"release {answer.release} sealed as epoch {answer.epoch}")
    return 0


def _revoke(arguments: argparse.Namespace) -> int:
    answer = _stub(arguments, "Revoke")(RevokeRequest(rows=arguments.rows, undo=arguments.undo))
    if arguments.undo:
        print(f"{answer.revoked} rows hold again from the next epoch on")
    else:
        print(f"{answer.revoked} rows are taken back; tenants learn of it with their next question")
    return 0


def _hand_over(arguments: argparse.Namespace) -> int:
    answer = _stub(arguments, "HandOver")(HandOverRequest(epoch=arguments.epoch))
    try:
        with os.fdopen(os.open(arguments.out, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(answer.content)
    except OSError as error:
        raise ProviderError(f"{arguments.out}: {error.strerror}") from None
    print(f"{arguments.out}: for the auditor alone; who has it can open every row of epoch {arguments.epoch}")
    return 0


def _key(arguments: argparse.Namespace) -> int:
    from pharoah_serving.keys import open_keys

    print(open_keys(arguments.keys).public.hex())
    return 0


def _certificate(arguments: argparse.Namespace) -> int:
    from pharoah_provider.certificates import Authority

    if not CERTIFICATE_NAME.fullmatch(arguments.name):
        raise ProviderError(
            f"{arguments.name}: expected provider, auditor, tenant/ORG[/ACCOUNT], agent/NODE, operator/NAME"
        )
    hosts = tuple(arguments.host) or (("127.0.0.1", "localhost") if arguments.name in ("provider", "auditor") else ())
    files = Authority(arguments.folder, arguments.domain).issue(arguments.name, hosts)
    print(f"{files[0]}\n{files[1]}\nauthority: {arguments.folder / 'ca.pem'}")
    return 0


def _list(arguments: argparse.Namespace) -> int:
    title, columns = LISTINGS[arguments.command]
    answer = _stub(arguments, "List")(ListRequest(listing=Listing.Value(f"LISTING_{title}")))
    if arguments.output == "json":
        print("[" + ",\n ".join(answer.rows) + "]")
        return 0
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    table = Table(box=None, header_style="bold", pad_edge=False)
    for column in columns:
        table.add_column(column.upper().replace("_", " "), overflow="fold", no_wrap=column == "id")
    for row in map(json.loads, answer.rows):
        table.add_row(*(escape(_shown(column, row[column])) for column in columns))
    Console(width=None if sys.stdout.isatty() else WIDE).print(table)
    return 0


def _shown(column: str, value: Any) -> str:
    if value is None or value == "" or value != value:
        return "-"
    if column.endswith("_at"):
        return time.strftime("%m-%d %H:%M:%S", time.localtime(value))
    return f"{value:.4g}" if isinstance(value, float) else sanitize_text(str(value))


def _stub(arguments: argparse.Namespace, method: str) -> Callable[[Any], Any]:
    access = channel.access(arguments)
    call = getattr(Stub(channel.operator_channel(access), "Operator"), method)
    seconds = None if method in LASTING else CALL_SECONDS
    return lambda request: call(request, metadata=access.metadata, timeout=seconds)
