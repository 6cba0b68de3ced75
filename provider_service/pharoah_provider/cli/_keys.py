"""The options that name the keys of a provider and its database, for commands on the provider's own machine."""

from __future__ import annotations

import argparse
from pathlib import Path


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add them."""
    parser.add_argument("--keys", default="pharoah-keys", help="as for serve (default: %(default)s)")
    parser.add_argument("--db", type=Path, default=Path("pharoah.duckdb"), help="as for serve (default: %(default)s)")
