"""`pharoah-provider`: serve, and everything an operator asks a running provider."""

from __future__ import annotations

import argparse
import sys

from pharoah_protocol.registry import RegistryError
from pharoah_protocol.voprf.libsodium import SodiumMissing
from pharoah_provider.cli import (
    admit,
    archetypes,
    audit_bundle,
    backfill,
    campaign,
    certificate,
    confirm_time,
    drain_commands,
    draw,
    forget,
    init,
    key,
    learn,
    listings,
    move,
    registries,
    reinstate,
    return_node,
    revoke,
    rollback,
    serve,
    table,
    token,
)
from pharoah_serving.closed_output import end_when_output_is_closed
from pharoah_serving.errors import ProviderError
from pharoah_system.standard_streams import say, say_uncaught_errors

EXIT_CODES = """\
exit codes
  0   done
  1   it failed; the message says why
  2   usage error
"""


def main(argv: list[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    try:
        arguments = _parser().parse_args(argv)
        with end_when_output_is_closed():
            return int(arguments.run(arguments))
    except (ProviderError, SodiumMissing, RegistryError) as error:
        say(f"pharoah-provider: {error}")
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


def entry() -> None:
    """Entry point of the installed command."""
    say_uncaught_errors()
    sys.exit(main())


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="pharoah-provider",
        description="The provider's side of Pharoah.",
        epilog=EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for module in (
        serve, init, campaign, learn, forget, rollback, revoke, reinstate, admit, audit_bundle, key, certificate, token,
        confirm_time, move, archetypes, backfill, draw, drain_commands, return_node, registries, listings, table,
    ):  # fmt: skip
        module.add_parser(commands)
    return parser
