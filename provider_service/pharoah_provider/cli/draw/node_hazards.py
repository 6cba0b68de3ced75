"""`pharoah-provider draw node-hazards --out FILE`: how the hazard model of nodes does."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from pharoah_provider import channel
from pharoah_provider.cli._calls import rows_of
from pharoah_provider.listings.node_hazards import LISTING
from pharoah_serving.errors import ProviderError
from pharoah_system.standard_streams import show


def add_parser(pictures: Any) -> None:
    """Add this picture."""
    what = "how the hazard model does on nodes that it was not fitted on"
    parser = pictures.add_parser("node-hazards", help=what, description=f"Draw {what}.")
    parser.add_argument("--out", type=Path, required=True, metavar="FILE", help="a PNG, SVG or PDF, by the ending")
    channel.add_options(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Raises ProviderError for a call that is refused, without a model, and for a file that cannot be written."""
    rows = rows_of(arguments, LISTING.name)
    from pharoah_learning.hazard_check import HazardCheck  # here and behind the call: it takes seconds
    from pharoah_provider.pictures.node_hazards import draw_node_hazards

    check = HazardCheck.decode(json.dumps(rows[0]["hazard_check"])) if rows else None
    if check is None:
        raise ProviderError("there is no hazard model of nodes yet; `pharoah-provider learn` prints why")
    draw_node_hazards(arguments.out, check)
    show(arguments.out)
    return 0
