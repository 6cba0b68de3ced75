"""`pharoah-provider confirm-time`: confirm that the time of this machine is right, after its clock has jumped.

The provider reads it within a minute, or when it starts.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

from pharoah_provider.cli._keys import add_options
from pharoah_provider.high_water import state_folder
from pharoah_serving.errors import ProviderError
from pharoah_serving.time_guard import confirm
from pharoah_system.standard_streams import show


def add_parser(commands: Any) -> None:
    """Add this command."""
    what = "confirm that the time of this machine is right, after its clock has jumped"
    parser = commands.add_parser("confirm-time", help=what, description=__doc__)
    add_options(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Raises ProviderError for a folder that cannot be written."""
    folder = state_folder(arguments.keys, arguments.db)
    now = time.time()
    try:
        confirm(folder, now)
    except OSError as error:
        raise ProviderError(f"{folder}: {error.strerror}") from None
    show(f"confirmed: it is {time.strftime('%Y-%m-%d %H:%M:%S', time.gmtime(now))} UTC")
    return 0
