"""`pharoah-provider key`: print the public key that tenants and witnesses pin. `init` makes it."""

from __future__ import annotations

import argparse
from typing import Any

from pharoah_serving.keys import open_keys
from pharoah_system.standard_streams import show


def add_parser(commands: Any) -> None:
    """Add this command."""
    what = "print the key that tenants and witnesses pin"
    parser = commands.add_parser("key", help=what, description=__doc__)
    parser.add_argument("--keys", default="pharoah-keys", help="as for serve (default: %(default)s)")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Raises ProviderError for keys that cannot be opened."""
    show(open_keys(arguments.keys).public.hex())
    return 0
