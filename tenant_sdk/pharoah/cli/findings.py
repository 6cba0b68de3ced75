"""`pharoah findings`: the codes that findings of a verdict carry, and what they mean."""

from __future__ import annotations

import argparse
import textwrap
from typing import Any

from pharoah._finding_kind import finding_kinds, findings_table
from pharoah.cli._output import show
from pharoah_protocol.registry import RegistryError


def add_parser(commands: Any) -> None:
    """Add the sub-command to the command line."""
    parser = commands.add_parser("findings", help="the codes of findings and their meaning", description=__doc__)
    parser.add_argument("--markdown", action="store_true", help="as the table of docs/tenant/verdicts.md")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Run the sub-command; gives the exit code. Raises PharoahError for a plug-in that cannot be used."""
    try:
        if arguments.markdown:
            show(findings_table())
            return 0
        for kind in finding_kinds():
            show(f"{kind.code}  ({kind.severity})")
            show(textwrap.fill(kind.help, 80, initial_indent="  ", subsequent_indent="  "))
    except RegistryError as error:
        show(f"pharoah findings: {error}")
        return 1
    return 0
