"""`pharoah-provider rollback`: roll the newest release back; the release before it is sealed as the next epoch."""

from __future__ import annotations

import argparse
from typing import Any

from pharoah_protocol.v1 import RollbackRequest
from pharoah_provider import channel
from pharoah_provider.cli._calls import call


def add_parser(commands: Any) -> None:
    """Add this command."""
    what = "roll the newest release back and seal the release before it"
    parser = commands.add_parser("rollback", help=what, description=__doc__)
    channel.add_options(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Raises ProviderError for a call that is refused."""
    answer = call(arguments, "Rollback", RollbackRequest())
    print(f"release {answer.release} is served as epoch {answer.epoch}")
    return 0
