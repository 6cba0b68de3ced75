"""`pharoah-provider table ACTION`: one row with its evidence, and the whole table for other programs and providers.

Without an action `pharoah-provider table` is the listing.
"""

from __future__ import annotations

import argparse

from pharoah_provider.cli.table import export, import_, show


def add_actions(parser: argparse.ArgumentParser) -> None:
    """Add the actions to the command of the listing."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", title="actions")
    for module in (show, export, import_):
        module.add_parser(actions)
