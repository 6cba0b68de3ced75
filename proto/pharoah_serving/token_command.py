"""The command `token`, which provider and auditor have: make a token for a caller on this machine, or revoke one."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path

from pharoah_protocol.vocabulary import Role
from pharoah_serving.tokens import TokenFileError, new_token, revoke

TOKENS = Path("pharoah-tokens")
"""Where servers and this command look for the list."""
Usage = Mapping[Role, str]
"""How a token is used, by the role of its caller, with {file} and {name}."""


def add_options(parser: argparse.ArgumentParser, usage: Usage, tokens: Path) -> None:
    """Add the options of the command. `tokens` is the list that the server reads when nothing else is asked for."""
    parser.add_argument("role", nargs="?", metavar="ROLE", help=f"{', '.join(usage)}")
    parser.add_argument("name", nargs="?", metavar="NAME", help="ORG[/ACCOUNT] of a tenant, NODE of an agent")
    parser.add_argument("--out", type=Path, metavar="FILE", help="new file for the token (default: NAME.token)")
    parser.add_argument("--revoke", metavar="NAME", help="remove the tokens of NAME from the list instead")
    parser.add_argument("--tokens", type=Path, default=tokens, metavar="FILE",
                        help="the list, which holds hashes of tokens (default: %(default)s)")  # fmt: skip


def change(arguments: argparse.Namespace, usage: Usage) -> list[str]:
    """Do what was asked for; gives the lines to print. Raises TokenFileError."""
    if arguments.revoke and not arguments.role:
        revoked = revoke(arguments.tokens, arguments.revoke)
        return [f"revoked: {principal.role} {principal.name}" for principal in revoked]
    if arguments.revoke or not arguments.name or arguments.role not in tuple(usage):
        raise TokenFileError(f"expected ROLE NAME, with a role of {', '.join(usage)}, or --revoke NAME")
    out = (arguments.out or Path(f"{arguments.name.replace('/', '-')}.token")).absolute()
    principal = new_token(arguments.tokens, arguments.role, arguments.name, out)
    return [
        f"{principal.role} {principal.name} may call with the token in {out}",
        f"who uses it must own it (chown USER {out}), and nobody else may read it",
        f"usage: {usage[principal.role].format(file=out, name=principal.name)}",
    ]
