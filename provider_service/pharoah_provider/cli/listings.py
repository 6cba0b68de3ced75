"""`pharoah-provider LISTING`: print one listing; `pharoah-provider listings` prints which there are."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from pharoah_protocol.v1 import ListRequest
from pharoah_provider import channel
from pharoah_provider.cli._calls import call
from pharoah_provider.listings import LISTINGS, Listing, markdown_table
from pharoah_serving.errors import ProviderError
from pharoah_system.text import sanitize_text

WIDE_COLUMNS = 120
"""Characters from which on the wide columns of a listing are shown as well."""
PIPE_COLUMNS = 160
"""Characters of a line where the output is not a terminal."""
SHORT_TEXT = 24
"""Values of at most so many characters are never broken: ids, names and numbers can be copied in one piece."""


def add_parser(commands: Any) -> None:
    """One command per listing. Raises ProviderError for a listing with the name of another command."""
    overview = commands.add_parser("listings", help="print which listings there are", description=__doc__)
    overview.add_argument("--markdown", action="store_true", help="the table of docs/provider.md")
    overview.set_defaults(run=_print_listings)
    for listing in LISTINGS:
        if listing.name in commands.choices:
            raise ProviderError(f"listing {listing.name}: there is a command of this name; rename the listing")
        what = listing.whole_help.replace("%", "%%")
        parser = commands.add_parser(listing.name, help=what, description=f"List {what}.")
        parser.add_argument("-o", "--output", choices=["table", "json"], default="table")
        channel.add_options(parser)
        parser.set_defaults(run=run, listing=listing)


def run(arguments: argparse.Namespace) -> int:
    """Print one listing as a table or as JSON. Raises ProviderError for a call that is refused."""
    listing: Listing = arguments.listing
    rows = call(arguments, "List", ListRequest(listing=listing.name)).rows
    if 0 < listing.most_rows <= len(rows):
        print(f"only the newest {listing.most_rows:,} rows are listed; older ones are left out", file=sys.stderr)
    if arguments.output == "json":
        print("[" + ",\n ".join(rows) + "]")
        return 0
    console = Console(width=None if sys.stdout.isatty() else PIPE_COLUMNS)
    wide = console.width >= WIDE_COLUMNS
    columns = (*listing.columns, *(listing.wide_columns if wide else ()))
    console.print(_table(columns, [json.loads(row) for row in rows]))
    if not rows:
        console.print("(none)")
    elif listing.wide_columns and not wide:
        console.print(
            f"{len(listing.wide_columns)} more columns: {WIDE_COLUMNS} characters wide, or -o json", style="dim"
        )
    return 0


def _print_listings(arguments: argparse.Namespace) -> int:
    if arguments.markdown:
        print(markdown_table(), end="")
        return 0
    for listing in LISTINGS:
        print(f"{listing.name:16} {listing.whole_help}")
    return 0


def _table(columns: Sequence[str], rows: Sequence[dict[str, Any]]) -> Table:
    shown = [[_shown(column, row.get(column)) for column in columns] for row in rows]
    table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 1))
    for number, column in enumerate(columns):
        values = [line[number] for line in shown]
        short = all(len(value) <= SHORT_TEXT for value in values)
        numeric = not _is_time(column) and any(type(row.get(column)) in (int, float) for row in rows)
        heading = column.upper().replace("_", " ")
        table.add_column(heading, overflow="fold", no_wrap=short, justify="right" if numeric else "left")
    for line in shown:
        table.add_row(*map(escape, line))
    return table


def _is_time(column: str) -> bool:
    return column.endswith("_at") or column == "since"


def _shown(column: str, value: Any) -> str:
    if value is None or value == "" or value != value:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if _is_time(column):
        return time.strftime("%m-%d %H:%M:%S", time.localtime(value))
    return f"{value:.4g}" if isinstance(value, float) else sanitize_text(str(value))
