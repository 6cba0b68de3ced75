"""`pharoah-provider draw table --out FILE`: the table, jobs and versions by contexts."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from pharoah_protocol.vocabulary import Rung, Scope
from pharoah_provider import channel
from pharoah_provider.cli._calls import rows_of
from pharoah_provider.listings.table import LISTING
from pharoah_system.standard_streams import show


def add_parser(pictures: Any) -> None:
    """Add this picture."""
    what = "the table: jobs and versions by contexts, with counts"
    parser = pictures.add_parser("table", help=what, description=__doc__)
    parser.add_argument("--out", type=Path, required=True, metavar="FILE", help="a PNG, SVG or PDF, by the ending")
    for option, kinds, usual in (("--scope", Scope, Scope.SERVER), ("--rung", Rung, Rung.EXACT)):
        choices = [str(one) for one in kinds]
        parser.add_argument(option, choices=choices, default=str(usual), help="default: %(default)s")
    channel.add_options(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Raises ProviderError for a call that is refused, an empty table, and a file that cannot be written."""
    rows = rows_of(arguments, LISTING.name)
    from pharoah_provider.pictures.heatmap import draw, heatmap  # here and behind the call: it takes a second

    picture = heatmap(rows, Scope(arguments.scope), Rung(arguments.rung))
    draw(picture, arguments.out)
    show(f"{arguments.out}: {len(picture.lines)} jobs by {len(picture.columns)} contexts of release {picture.release}")
    return 0
