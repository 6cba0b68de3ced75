"""`pharoah-provider table draw --out FILE`: draw the table, jobs and versions by contexts. It needs matplotlib."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from pharoah_protocol.v1 import ListRequest
from pharoah_protocol.vocabulary import Rung, Scope
from pharoah_provider import channel
from pharoah_provider.cli._calls import call
from pharoah_provider.heatmap import draw, heatmap
from pharoah_provider.listings.table import LISTING
from pharoah_serving.errors import ProviderError


def add_parser(actions: Any) -> None:
    """Add this action."""
    what = "draw the table: jobs and versions by contexts, with counts"
    parser = actions.add_parser("draw", help=what, description=__doc__)
    parser.add_argument("--out", type=Path, required=True, metavar="FILE", help="ends with .png, .svg or .pdf")
    for option, kinds, usual in (("--scope", Scope, Scope.SERVER), ("--rung", Rung, Rung.EXACT)):
        choices = [str(one) for one in kinds]
        parser.add_argument(option, choices=choices, default=str(usual), help="default: %(default)s")
    channel.add_options(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Raises ProviderError for a call that is refused, an empty table, and a file that cannot be written."""
    rows = [json.loads(row) for row in call(arguments, "List", ListRequest(listing=LISTING.name)).rows]
    picture = heatmap(rows, Scope(arguments.scope), Rung(arguments.rung))
    try:
        draw(picture, arguments.out)
    except (OSError, ValueError) as error:
        raise ProviderError(f"{arguments.out}: {error}") from None
    print(f"{arguments.out}: {len(picture.lines)} jobs by {len(picture.columns)} contexts of release {picture.release}")
    return 0
