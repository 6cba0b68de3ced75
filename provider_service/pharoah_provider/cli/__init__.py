"""`pharoah-provider`: serve, and everything an operator asks a running provider."""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc

from pharoah.exchange.group import SodiumMissing
from pharoah.proto.v1 import LearnRequest, Listing, ListRequest, RunCampaignRequest
from pharoah.rpc import Stub
from pharoah_provider.cli import archetypes
from pharoah_provider.errors import ProviderError

LISTINGS = {
    "nodes": ("NODES", ["node", "context", "runs", "alerts", "seen_seconds_ago"]),
    "alerts": ("ALERTS", ["alert_id", "state", "node", "run", "what", "evidence"]),
    "table": ("TABLE", ["nodes", "scope", "rung", "title", "severity", "outcome", "failed", "base"]),
    "runs": ("RUNS", ["run", "tenant", "node", "attempt", "beside_job", "end_state"]),
    "probes": ("PROBES", ["node", "benchmark", "purpose", "beside_job", "mean_seconds", "repeats"]),
    "reports": ("REPORTS", ["run", "ended_at", "step_ratio", "memory_ratio", "masked", "risk"]),
    "cells": ("CELLS", ["node", "workload", "settings", "degradation", "outcome", "step_seconds"]),
}  # fmt: skip


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
    archetypes.add_parser(commands)
    for name in LISTINGS:
        listing = commands.add_parser(name, help=f"list {name}" if name != "table" else "the incompatibility table")
        listing.add_argument("-o", "--output", choices=["table", "json"], default="table")
        listing.set_defaults(run=_list)
    for command in (campaign, learn, *(commands.choices[name] for name in LISTINGS)):
        command.add_argument("--endpoint", default=os.environ.get("PHAROAH_ENDPOINT", "127.0.0.1:7443"))
        command.add_argument(
            "--token-file",
            type=Path,
            default=os.environ.get("PHAROAH_TOKEN_FILE"),
            help="the operator's token",
        )
    arguments = parser.parse_args(argv)
    try:
        return int(arguments.run(arguments))
    except (ProviderError, SodiumMissing) as error:
        print(f"pharoah-provider: {error}", file=sys.stderr)
    except grpc.RpcError as error:
        print(f"pharoah-provider: {error.details()} ({error.code().name})", file=sys.stderr)
    except KeyboardInterrupt:
        return 130
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
    parser.add_argument("--keys", type=Path, default=defaults.keys, help="folder of secrets (default: %(default)s)")
    parser.add_argument("--tokens", type=Path, default=defaults.tokens, help="token file (default: %(default)s)")
    parser.add_argument("--insecure", action="store_true", help="allow plain text beyond loopback")
    parser.set_defaults(run=_serve)


def _serve(arguments: argparse.Namespace) -> int:
    from pharoah_provider.keys import KeyFolder
    from pharoah_provider.services.server import ServerSettings, serve

    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(levelname)s %(message)s")
    names = ("listen", "http", "db", "keys", "tokens", "insecure")
    settings = ServerSettings(**{name: getattr(arguments, name) for name in names})

    def ready(address: str) -> None:
        print(f"pharoah-provider listens on {address}; metrics on http://{settings.http}/metrics")
        print(f"provider key for tenants: {KeyFolder(settings.keys).public_key_hex()}", flush=True)

    asyncio.run(serve(settings, ready))
    return 0


def _campaign(arguments: argparse.Namespace) -> int:
    try:
        text = arguments.file.read_text()
    except OSError as error:
        raise ProviderError(f"{arguments.file}: {error.strerror}") from None

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


def _list(arguments: argparse.Namespace) -> int:
    title, columns = LISTINGS[arguments.command]
    answer = _stub(arguments, "List")(ListRequest(listing=Listing.Value(f"LISTING_{title}")))
    if arguments.output == "json":
        print("[" + ",\n ".join(answer.rows) + "]")
        return 0
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, header_style="bold", pad_edge=False)
    for column in columns:
        table.add_column(column.upper().replace("_", " "), overflow="fold")
    for row in map(json.loads, answer.rows):
        table.add_row(*(_shown(row[column]) for column in columns))
    Console().print(table)
    return 0


def _shown(value: Any) -> str:
    return "-" if value is None or value == "" else f"{value:.4g}" if isinstance(value, float) else str(value)


def _stub(arguments: argparse.Namespace, method: str) -> Callable[[Any], Any]:
    try:
        token = Path(arguments.token_file).read_text().strip() if arguments.token_file else ""
    except OSError as error:
        raise ProviderError(f"token file {arguments.token_file}: {error.strerror}") from None
    channel = grpc.insecure_channel(
        arguments.endpoint, [("grpc.enable_http_proxy", 0), ("grpc.max_receive_message_length", 64 << 20)]
    )
    call = getattr(Stub(channel, "Operator"), method)
    return lambda request: call(request, metadata=(("authorization", f"Bearer {token}"),))
