"""`pharoah-provider admit NODE`: admit the facts of a node that has changed them too often for one day."""

from __future__ import annotations

import argparse
from typing import Any

from pharoah_protocol.v1 import AdmitNodeRequest
from pharoah_provider import channel
from pharoah_provider.cli._calls import call
from pharoah_system.standard_streams import show


def add_parser(commands: Any) -> None:
    """Add this command."""
    parser = commands.add_parser(
        "admit", help="admit the facts of a node that changed them too often", description=__doc__
    )
    parser.add_argument("node", help="name of the node, as `nodes` lists it")
    channel.add_options(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Raises ProviderError for a call that is refused."""
    call(arguments, "AdmitNode", AdmitNodeRequest(node=arguments.node))
    show(f"{arguments.node} connects again, and the facts that it sends then are admitted")
    return 0
