"""`pharoah-provider registries`: print what can grow by one file, and what there is now, plug-ins included."""

from __future__ import annotations

import argparse
import json
import textwrap
from typing import Any

from pharoah_provider.registries import OVERVIEWS, markdown
from pharoah_system.standard_streams import show


def add_parser(commands: Any) -> None:
    """Add this command."""
    what = "print the entries of every registry, also those of plug-ins"
    parser = commands.add_parser("registries", help=what, description=__doc__)
    names = [overview.name for overview in OVERVIEWS]
    parser.add_argument("name", nargs="?", choices=names, metavar="NAME", help=f"one of {', '.join(names)}")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--markdown", action="store_true", help="all of them, as the page docs/registries.md")
    form.add_argument("-o", "--output", choices=["table", "json"], default="table")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Raises RegistryError for an entry that cannot be used."""
    if arguments.markdown:
        show(markdown(), end="")
        return 0
    chosen = [overview for overview in OVERVIEWS if arguments.name in (None, overview.name)]
    if arguments.output == "json":
        show(json.dumps({overview.name: list(overview.rows()) for overview in chosen}, indent=1))
        return 0
    for overview in chosen:
        show(f"{overview.name}  (entry-point group {overview.group})")
        for row in overview.rows():
            name, about, *_ = row.values()
            show(textwrap.fill(f"{name:21} {about}", 80, initial_indent="  ", subsequent_indent=" " * 24))
    return 0
