"""`pharoah-provider move`: after the provider has stopped, let copies of its files start at another place.

Copy the database, the keys and the audit log afterwards, and start there within a day. Start one copy only: two of them
would sign two logs. A copy that was made without this command is refused when it starts.
"""

from __future__ import annotations

import argparse
from typing import Any

from pharoah_provider.cli._keys import add_options
from pharoah_provider.first_start import move_away
from pharoah_system.standard_streams import show


def add_parser(commands: Any) -> None:
    """Add this command."""
    what = "let copies of a stopped provider's files start at another place"
    parser = commands.add_parser("move", help=what, description=__doc__)
    add_options(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Raises ProviderError while the provider runs, and for a folder that is a copy itself."""
    move_away(arguments.keys, arguments.db)
    show("copy the database, the keys and the audit log now, and start one copy within a day; here nothing starts")
    return 0
