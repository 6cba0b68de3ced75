"""`pharoah-provider reinstate ROW...`: let revoked rows hold again, from the next epoch on."""

from __future__ import annotations

import argparse
from typing import Any

from pharoah_protocol.v1 import ReinstateRequest
from pharoah_provider import channel
from pharoah_provider.cli._calls import call
from pharoah_system.standard_streams import show


def add_parser(commands: Any) -> None:
    """Add this command."""
    what = "let revoked rows hold again, from the next epoch on"
    parser = commands.add_parser("reinstate", help=what, description=__doc__)
    parser.add_argument("rows", nargs="+", metavar="ROW", help="ids of revoked rows")
    channel.add_options(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Raises ProviderError for a call that is refused."""
    answer = call(arguments, "Reinstate", ReinstateRequest(rows=arguments.rows))
    show(f"{answer.reinstated} rows are reinstated; they hold again from the next epoch on")
    return 0
