"""`pharoah record -- CMD`: everything about a job that another run of it may differ in, as a file."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from pharoah._errors import PharoahError
from pharoah.cli import _common
from pharoah.cli._output import show
from pharoah.comparison.record import read_key, record_of
from pharoah_system.files import write_output


def add_parser(commands: Any) -> None:
    """Add the sub-command to the command line."""
    parser = commands.add_parser("record", help="what a run of a job may differ in, as a file", description=__doc__)
    parser.add_argument("--out", metavar="FILE", type=Path, required=True, help="where to leave the record")
    parser.add_argument("--key", metavar="FILE", type=Path, help="seal it: hashes under this key instead of values")
    _common.add_dry_run_options(parser)
    _common.add_command(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Run the sub-command; gives the exit code."""
    key = read_key(arguments.key) if arguments.key else b""
    record = record_of(_common.dry_run_of(arguments, _common.settings_of(arguments)))
    try:
        write_output(arguments.out, (record.seal(key) if key else record).to_json() + "\n")
    except OSError as error:
        raise PharoahError(f"{arguments.out}: {error.strerror}") from None
    show(f"{arguments.out}: {sum(map(len, record.groups.values()))} values{', sealed' if key else ''}")
    return 0
