"""`pharoah-provider draw PICTURE`: pictures of what the newest release says, for people. They need matplotlib."""

from __future__ import annotations

from typing import Any

from pharoah_provider.cli.draw import node_hazards, table, versions


def add_parser(commands: Any) -> None:
    """Add this command."""
    parser = commands.add_parser("draw", help="draw what the newest release says", description=__doc__)
    pictures = parser.add_subparsers(dest="picture", required=True, metavar="PICTURE")
    for module in (table, versions, node_hazards):
        module.add_parser(pictures)
