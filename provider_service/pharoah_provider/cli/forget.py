"""`pharoah-provider forget node NAME` or `forget cell ID`: leave evidence out from the next learning on."""

from __future__ import annotations

import argparse
from typing import Any

from pharoah_protocol.log.forgotten import ForgetKind
from pharoah_protocol.v1 import ForgetRequest
from pharoah_provider import channel
from pharoah_provider.cli._calls import call
from pharoah_system.standard_streams import show


def add_parser(commands: Any) -> None:
    """Add this command."""
    parser = commands.add_parser(
        "forget", help="leave evidence of a node or a cell out from learning", description=__doc__
    )
    parser.add_argument("kind", choices=[str(kind) for kind in ForgetKind], help="what is left out")
    parser.add_argument("name", help="name of the node, or id of a result as `cells` lists it")
    parser.add_argument("--undo", action="store_true", help="let it count again")
    channel.add_options(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Raises ProviderError for a call that is refused."""
    request = ForgetRequest(kind=arguments.kind, name=arguments.name, undo=arguments.undo)
    changed = call(arguments, "Forget", request).changed
    what = "counts again" if arguments.undo else "is left out"
    show(f"evidence of {arguments.kind} {arguments.name} ({changed} pieces) {what} from the next `learn` on;")
    show("the transparency log has an entry of it, and rows that were learned stay until then (see `revoke`)")
    return 0
