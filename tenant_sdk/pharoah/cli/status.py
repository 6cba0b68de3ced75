"""`pharoah status`: the jobs of this user that Pharoah watches on this node."""

from __future__ import annotations

import argparse
import contextlib
import json
import tempfile
from pathlib import Path
from typing import Any

from pharoah._link import Link


def add_parser(commands: Any) -> None:
    parser = commands.add_parser("status", help="the jobs Pharoah watches on this node", description=__doc__)
    parser.add_argument("-o", "--output", choices=["table", "json"], default="table")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    found = []
    for path in sorted(Path(tempfile.gettempdir()).glob("pharoah-*/courier.sock")):
        with contextlib.suppress(OSError, ValueError), contextlib.closing(Link(str(path), 1.0)) as link:
            found.append(link.ask("status", 1.0))
    if arguments.output == "json":
        print(json.dumps(found))
        return 0
    print(f"{'RUN':10} {'VERDICT':13} {'PROVIDER':10} {'NODE':10} RANKS")
    for job in found:
        reached = "reached" if job["connected"] else "-"
        print(
            f"{job['run_id'][:8]:10} {job['verdict']:13} {reached:10} {job['node_alias'] or '-':10} {len(job['ranks'])}"
        )
    return 0
