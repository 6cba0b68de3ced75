"""`pharoah-provider audit-bundle EPOCH`: write what `pharoah-auditor replay` needs to seal an epoch again."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from pharoah_protocol.v1 import ExportAuditBundleRequest
from pharoah_provider import channel
from pharoah_provider.cli._calls import call
from pharoah_provider.cli._values import count
from pharoah_serving.errors import ProviderError
from pharoah_system.files import create_exclusively
from pharoah_system.standard_streams import show

MAX_BUNDLE_BYTES = (2 << 30) - 1
"""A bundle comes in one message and holds every trial, for which the 64 MiB of a listing are too few
(`channel.MAX_LISTING_BYTES`). This is the largest message of Protobuf (protobuf.dev, size limits)."""
BUNDLE_SECONDS = 600.0
"""Deadline of the call. The provider makes the bundle within 30 seconds or not at all (`call_guard`); the rest of the
time is for 2 GiB on the way, at 4 MB a second."""


def add_parser(commands: Any) -> None:
    """Add this command."""
    what = "write what an auditor needs to seal an epoch again; it holds the epoch's seed"
    parser = commands.add_parser("audit-bundle", help=what, description=__doc__)
    parser.add_argument("epoch", type=count)
    parser.add_argument("--out", type=Path, required=True, metavar="FILE", help="a new file that its owner alone reads")
    channel.add_options(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Raises ProviderError for a file that exists or cannot be written."""
    request = ExportAuditBundleRequest(epoch=arguments.epoch)
    answer = call(arguments, "ExportAuditBundle", request, seconds=BUNDLE_SECONDS, largest_bytes=MAX_BUNDLE_BYTES)
    try:
        create_exclusively(arguments.out, answer.content)
    except OSError as error:
        raise ProviderError(f"{arguments.out}: {error.strerror}") from None
    show(f"{arguments.out}: for the auditor alone; its reader can open every row of epoch {arguments.epoch}")
    return 0
