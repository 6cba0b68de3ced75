"""`pharoah-provider token ROLE NAME`: make a token for a caller on this machine, or revoke one (`--revoke NAME`)."""

from __future__ import annotations

import argparse
from typing import Any

from pharoah_protocol.vocabulary import Role
from pharoah_serving import token_command
from pharoah_system.standard_streams import show

USAGE = {
    Role.TENANT: "export PHAROAH_TOKEN_FILE={file}",
    Role.AGENT: "pharoah-agent run --node {name} --token-file {file}",
    Role.OPERATOR: "export PHAROAH_TOKEN_FILE={file}",
}


def add_parser(commands: Any) -> None:
    """Add this command."""
    what = "make a token for a caller on this machine, or revoke one"
    parser = commands.add_parser("token", help=what, description=__doc__)
    token_command.add_options(parser, USAGE, token_command.TOKENS)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Prints what was done, and how the token is used. Raises ProviderError."""
    show("\n".join(token_command.change(arguments, USAGE)))
    return 0
