"""`pharoah-provider init`: make the keys of a provider, before its first start, and print the public one."""

from __future__ import annotations

import argparse
import os
from typing import Any

from pharoah_provider.cli._keys import add_options
from pharoah_provider.first_start import make_provider, start_new_log
from pharoah_system.standard_streams import show


def add_parser(commands: Any) -> None:
    """Add this command."""
    what = "make the keys of a provider, and print the one that tenants pin"
    parser = commands.add_parser("init", help=what, description=__doc__)
    add_options(parser)
    parser.add_argument("--new-log", action="store_true",
                        help="make a new signing key and a new log, where the old ones are lost")  # fmt: skip
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Raises ProviderError for keys that cannot be made."""
    os.umask(0o077)
    make = start_new_log if arguments.new_log else make_provider
    made = make(arguments.keys, arguments.db)
    show(made.public.hex())
    return 0
