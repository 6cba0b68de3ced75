"""`pharoah-provider drain-commands SCHEDULER`: print a shell script that carries out the actions of nodes.

Nodes that are to be drained are drained, and all others that were ever looked at return, unless people have drained
them. The script may be run again and again, for example by cron: `pharoah-provider drain-commands slurm | sh`.
"""

from __future__ import annotations

import argparse
from typing import Any

from pharoah_protocol.vocabulary import NodeAction
from pharoah_provider import channel
from pharoah_provider.cli._calls import rows_of
from pharoah_provider.listings.node_actions import LISTING
from pharoah_provider.schedulers import SCHEDULERS, NodeOrder, commands
from pharoah_system.standard_streams import show


def add_parser(commands: Any) -> None:
    """Add this command."""
    what = "print a shell script that drains nodes and returns them"
    parser = commands.add_parser("drain-commands", help=what, description=__doc__.partition("\n\n")[2])
    parser.add_argument("scheduler", choices=list(SCHEDULERS.entries), help="whose commands to print")
    channel.add_options(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Raises ProviderError for a call that is refused."""
    rows = rows_of(arguments, LISTING.name)
    for line in commands(SCHEDULERS[arguments.scheduler], map(_order, rows)):
        show(line)
    return 0


def _order(row: dict[str, Any]) -> NodeOrder:
    reason = f"{row['class']}, {row['failed']} cells failed"
    return NodeOrder(row["node"], row["action"] == NodeAction.DRAIN, reason)
