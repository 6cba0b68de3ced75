"""`pharoah-provider revoke ROW...`: revoke rows now, inside the current epoch."""

from __future__ import annotations

import argparse
from typing import Any

from pharoah_protocol.v1 import RevokeRequest
from pharoah_provider import channel
from pharoah_provider.cli._calls import call
from pharoah_system.standard_streams import show


def add_parser(commands: Any) -> None:
    """Add this command."""
    parser = commands.add_parser("revoke", help="revoke rows now, inside the current epoch", description=__doc__)
    parser.add_argument(
        "rows", nargs="+", metavar="ROW", help="ids of rows, as `table` and `near-duplicates` list them"
    )
    channel.add_options(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Raises ProviderError for a call that is refused."""
    answer = call(arguments, "Revoke", RevokeRequest(rows=arguments.rows))
    show(f"{answer.revoked} rows are revoked; tenants receive the list with their next query")
    return 0
