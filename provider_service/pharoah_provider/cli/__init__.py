"""`pharoah-provider`: serve, and everything an operator asks a running provider."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from pharoah_protocol.registry import RegistryError
from pharoah_serving.closed_output import end_when_output_is_closed
from pharoah_serving.errors import ProviderError
from pharoah_system.bounded_reading import UnreadableInput
from pharoah_system.command_table import Command, add_commands, find_command
from pharoah_system.standard_streams import say, say_uncaught_errors

EXIT_CODES = """\
exit codes
  0   done
  1   it failed; the message says why
  2   usage error
"""
COMMANDS = {
    "serve": Command("serve", "run the provider"),
    "init": Command("init", "make the keys of a provider, and print the one that tenants pin"),
    "campaign": Command("campaign", "plan and run campaigns of cells"),
    "learn": Command("learn", "learn a release and seal it as the next epoch"),
    "forget": Command("forget", "leave evidence of a node or a cell out from learning"),
    "rollback": Command("rollback", "roll the newest release back and seal the release before it"),
    "revoke": Command("revoke", "revoke rows now, inside the current epoch"),
    "reinstate": Command("reinstate", "let revoked rows hold again, from the next epoch on"),
    "admit": Command("admit", "admit the facts of a node that changed them too often"),
    "audit-bundle": Command(
        "audit_bundle", "write what an auditor needs to seal an epoch again; it holds the epoch's seed"
    ),
    "key": Command("key", "print the key that tenants and witnesses pin"),
    "certificate": Command("certificate", "make a certificate, with an authority of this site's own"),
    "token": Command("token", "make a token for a caller on this machine, or revoke one"),
    "confirm-time": Command(
        "confirm_time", "confirm that the time of this machine is right, after its clock has jumped"
    ),
    "move": Command("move", "let copies of a stopped provider's files start at another place"),
    "archetypes": Command("archetypes", "archetypes of traces"),
    "backfill": Command("backfill", "read past runs of others and print what they say"),
    "draw": Command("draw", "draw what the newest release says"),
    "drain-commands": Command("drain_commands", "print a shell script that drains nodes and returns them"),
    "return-node": Command(
        "return_node", "return a repaired node to service: what it did before counts no more for its class"
    ),
    "registries": Command("registries", "print the entries of every registry, also those of plug-ins"),
    "listings": Command("listings", "print which listings there are"),
}
"""All commands but the listings, which are a registry."""


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    words = sys.argv[1:] if argv is None else list(argv)
    try:
        arguments = _parser(words).parse_args(words)
        with end_when_output_is_closed():
            return int(arguments.run(arguments))
    except (ProviderError, RegistryError, UnreadableInput) as error:
        say(f"pharoah-provider: {error}")
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


def entry() -> None:
    """Entry point of the installed command."""
    say_uncaught_errors()
    sys.exit(main())


def _parser(words: Sequence[str] = ()) -> argparse.ArgumentParser:
    """The parser for a command line: it knows all commands, and the options of the one that is named."""
    parser = argparse.ArgumentParser(
        prog="pharoah-provider",
        description="The provider's side of Pharoah.",
        epilog=EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    chosen = find_command(words)
    if chosen == "backfill":
        # Here, before numpy is loaded: further threads of OpenBLAS spin when they start, and its tables are small.
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    add_commands(commands, COMMANDS, __name__, chosen)
    if chosen not in COMMANDS:
        from pharoah_provider.cli.listings import add_listings  # here: listings load what they are made of

        add_listings(commands, chosen)
    return parser
