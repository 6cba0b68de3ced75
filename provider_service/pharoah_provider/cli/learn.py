"""`pharoah-provider learn`: learn a release from everything stored and seal it as the next epoch."""

from __future__ import annotations

import argparse
from typing import Any

from pharoah_protocol.v1 import LearnRequest
from pharoah_provider import channel
from pharoah_provider.cli._calls import stream
from pharoah_system.standard_streams import show


def add_parser(commands: Any) -> None:
    """Add this command."""
    parser = commands.add_parser("learn", help="learn a release and seal it as the next epoch", description=__doc__)
    channel.add_options(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Print each step. Raises ProviderError for a call that is refused."""
    for answer in stream(arguments, "Learn", LearnRequest()):
        show(answer.message, flush=True)
    return 0
