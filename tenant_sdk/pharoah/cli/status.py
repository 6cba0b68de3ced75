"""`pharoah status`: the jobs of this user that Pharoah watches on this node; `--ended`: those it has watched."""

from __future__ import annotations

import argparse
import contextlib
import json
from datetime import datetime
from typing import Any

from pharoah._runtime_folder import sockets_of_this_user
from pharoah._settings import Settings
from pharoah._sidecar_link import SidecarLink
from pharoah.cli._output import cut, show
from pharoah.comparison.history import History
from pharoah_protocol.rank_messages import Status, StatusAnswer


def add_parser(commands: Any) -> None:
    """Add the sub-command to the command line."""
    parser = commands.add_parser("status", help="the jobs Pharoah watches on this node", description=__doc__)
    parser.add_argument("-o", "--output", choices=["table", "json"], default="table")
    parser.add_argument(
        "--ended",
        action="store_true",
        help="the runs that are over or lost, the newest first",
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Run the sub-command; gives the exit code."""
    return _list_ended(arguments) if arguments.ended else _running(arguments)


def _list_ended(arguments: argparse.Namespace) -> int:
    """Runs that are over, also those that were killed together with their sidecar."""
    running = {job["run_id"] for job in _list_watched()}
    runs = [run for run in History(Settings.load()).runs() if run.id not in running]
    if arguments.output == "json":
        show(json.dumps([json.loads(run.to_json()) for run in runs]))
        return 0
    show(f"{'RUN':10} {'BEGAN':17} {'STATE':11} {'STEPS':>7} {'MS':>6}  COMMAND")
    for run in runs:
        began = datetime.fromtimestamp(run.began).strftime("%Y-%m-%d %H:%M")
        columns = f"{run.id[:8]:10} {began:17} {run.state:11.11} {run.steps:7} {1000 * run.step_seconds:6.3g}"
        show(f"{columns}  {cut(run.command, 78 - len(columns))}")
    return 0


def _running(arguments: argparse.Namespace) -> int:
    found = _list_watched()
    if arguments.output == "json":
        show(json.dumps(found))
        return 0
    show(f"{'RUN':10} {'VERDICT':13} {'PROVIDER':10} {'NODE':12} RANKS")
    for job in found:
        reached = "reached" if job["connected"] else "-"
        show(
            f"{job['run_id'][:8]:10} {job['verdict']:13} {reached:10} {job['node_alias'] or '-':12} {len(job['ranks'])}"
        )
    return 0


def _list_watched() -> list[dict[str, Any]]:
    """The answers of the sidecars on this node."""
    found = []
    for path in sockets_of_this_user("sidecar.sock"):
        with contextlib.suppress(OSError, ValueError), contextlib.closing(SidecarLink(str(path), 1.0)) as link:
            found.append(vars(link.ask(Status(), StatusAnswer, 1.0)))
    return found
