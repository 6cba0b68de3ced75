"""`pharoah-provider audit-bundle EPOCH`: write what `pharoah-auditor replay` needs to seal an epoch again."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Any

from pharoah_protocol.v1 import ExportAuditBundleRequest
from pharoah_provider import channel
from pharoah_provider.cli._calls import call
from pharoah_provider.cli._values import count
from pharoah_serving.errors import ProviderError


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
    answer = call(arguments, "ExportAuditBundle", ExportAuditBundleRequest(epoch=arguments.epoch))
    try:
        with os.fdopen(os.open(arguments.out, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(answer.content)
    except OSError as error:
        raise ProviderError(f"{arguments.out}: {error.strerror}") from None
    print(f"{arguments.out}: for the auditor alone; its reader can open every row of epoch {arguments.epoch}")
    return 0
