"""`pharoah-provider return-node NODE`: return a repaired node to service."""

from __future__ import annotations

import argparse
from typing import Any

from pharoah_protocol.v1 import ReturnNodeRequest
from pharoah_provider import channel
from pharoah_provider.cli._calls import call
from pharoah_system.standard_streams import show


def add_parser(commands: Any) -> None:
    """Add this command."""
    what = "return a repaired node to service: what it did before counts no more for its class"
    parser = commands.add_parser("return-node", help=what, description=__doc__)
    parser.add_argument("node", help="name of the node, as `nodes` lists it")
    channel.add_options(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Raises ProviderError for a call that is refused."""
    call(arguments, "ReturnNode", ReturnNodeRequest(node=arguments.node))
    show(f"{arguments.node} is in service; only what it does from now on counts for its class")
    return 0
