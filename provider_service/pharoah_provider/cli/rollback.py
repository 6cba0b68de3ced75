"""`pharoah-provider rollback [RELEASE]`: roll the newest release back; the release before it is sealed as the next
epoch.

A command that was cut off is repeated with the number of the release, so that it rolls no other one back.
"""

from __future__ import annotations

import argparse
from typing import Any

from pharoah_protocol.v1 import RollbackRequest
from pharoah_provider import channel
from pharoah_provider.cli._calls import call
from pharoah_provider.cli._values import count
from pharoah_system.standard_streams import show


def add_parser(commands: Any) -> None:
    """Add this command."""
    what = "roll the newest release back and seal the release before it"
    parser = commands.add_parser("rollback", help=what, description=__doc__)
    parser.add_argument(
        "release", nargs="?", type=count, default=0, metavar="RELEASE", help="its number, as `learn` states it"
    )
    channel.add_options(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Raises ProviderError for a call that is refused."""
    answer = call(arguments, "Rollback", RollbackRequest(release=arguments.release))
    show(f"release {answer.release} is served as epoch {answer.epoch}")
    return 0
