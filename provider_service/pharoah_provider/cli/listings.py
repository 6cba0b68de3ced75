"""`pharoah-provider LISTING`: print one listing; `pharoah-provider listings` prints which there are."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from importlib import import_module
from typing import Any

from pharoah_protocol.bounds import is_number
from pharoah_provider import channel
from pharoah_provider.cli._calls import rows_of
from pharoah_provider.cli._display import Column, line_columns, show_note, show_table
from pharoah_provider.listings import LISTINGS, Listing, markdown_table
from pharoah_serving.errors import ProviderError
from pharoah_system.standard_streams import say, show

WIDE_COLUMNS = 120
"""Characters from which on the wide columns of a listing are shown as well."""
PIPE_COLUMNS = 160
"""Characters of a line where the output is not a terminal."""
SHORT_TEXT = 24
"""Values of at most so many characters are never broken: ids, names and numbers can be copied in one piece."""


TABLE = "table"
"""The listing that has actions besides (`pharoah_provider.cli.table`)."""
LATEST_TIME = 253_402_300_800
"""Unix seconds: the year 10000. Behind it `time.localtime` fails on some systems."""


def add_parser(commands: Any) -> None:
    """Add the command that names them all."""
    overview = commands.add_parser("listings", help="print which listings there are", description=__doc__)
    overview.add_argument("--markdown", action="store_true", help="the table of docs/provider/listings.md")
    overview.set_defaults(run=_print_listings)


def add_listings(commands: Any, chosen: str) -> None:
    """One command per listing; only the chosen one, where it is a listing of ours.

    Raises ProviderError for a listing with the name of another command.
    """
    one = LISTINGS.without_others(chosen) if chosen else None
    for listing in [one] if one else LISTINGS:
        if listing.name in commands.choices:
            raise ProviderError(f"listing {listing.name}: there is a command of this name; rename the listing")
        what = listing.whole_help.replace("%", "%%")
        parser = commands.add_parser(listing.name, help=what, description=f"List {what}.")
        parser.add_argument("-o", "--output", choices=["table", "json"], default="table")
        channel.add_options(parser)
        parser.set_defaults(run=run, listing=listing)
        if listing.name == chosen == TABLE:
            import_module("pharoah_provider.cli.table").add_actions(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print one listing as a table or as JSON. Raises ProviderError for a call that is refused."""
    listing: Listing = arguments.listing
    rows = rows_of(arguments, listing.name)
    if 0 < listing.most_rows <= len(rows):
        say(f"only the newest {listing.most_rows:,} rows are listed; older ones are left out")
    if arguments.output == "json":
        show("[" + ",\n ".join(map(json.dumps, rows)) + "]")
        return 0
    wide = line_columns(PIPE_COLUMNS) >= WIDE_COLUMNS
    columns = (*listing.columns, *(listing.wide_columns if wide else ()))
    _show_table(columns, rows)
    if not rows:
        show("(none)")
    elif listing.wide_columns and not wide:
        more = f"{len(listing.wide_columns)} more columns: {WIDE_COLUMNS} characters wide, or -o json"
        show_note(more, PIPE_COLUMNS, dim=True)
    return 0


def _print_listings(arguments: argparse.Namespace) -> int:
    if arguments.markdown:
        show(markdown_table(), end="")
        return 0
    for listing in LISTINGS:
        show(f"{listing.name:16} {listing.whole_help}")
    return 0


def _show_table(columns: Sequence[str], rows: Sequence[dict[str, Any]]) -> None:
    shown = [[_render(column, row.get(column)) for column in columns] for row in rows]
    described = []
    for number, column in enumerate(columns):
        short = all(len(line[number]) <= SHORT_TEXT for line in shown)
        numeric = not _is_time(column) and any(type(row.get(column)) in (int, float) for row in rows)
        described.append(Column(column.upper().replace("_", " "), right=numeric, whole=short))
    show_table(described, shown, PIPE_COLUMNS)


def _is_time(column: str) -> bool:
    return column.endswith("_at") or column == "since"


def _render(column: str, value: Any) -> str:
    if value is None or value == "" or value != value:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if _is_time(column) and is_number(value) and abs(value) < LATEST_TIME:
        return time.strftime("%m-%d %H:%M:%S", time.localtime(value))
    return f"{value:.4g}" if isinstance(value, float) else str(value)
