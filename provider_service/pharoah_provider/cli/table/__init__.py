"""`pharoah-provider table ACTION`: one row with its evidence, and the whole table for other programs and providers.

Without an action `pharoah-provider table` is the listing.
"""

from __future__ import annotations

from typing import Any

from pharoah_provider.cli.table import export, import_, show
from pharoah_provider.listings.table import LISTING


def add_parser(commands: Any) -> None:
    """Add the actions to the command of the listing, which must be there."""
    parser = commands.choices[LISTING.name]
    actions = parser.add_subparsers(dest="action", metavar="ACTION", title="actions")
    for module in (show, export, import_):
        module.add_parser(actions)
