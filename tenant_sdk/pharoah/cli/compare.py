"""`pharoah compare A B`: what differs between two runs, the likeliest reason first.

A and B are ids of runs on this machine (`pharoah status --ended` lists them), or files that `pharoah record` wrote.
"""

from __future__ import annotations

import argparse
import json
import os
import string
import textwrap
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import Any

from pharoah._settings import Settings
from pharoah.cli._output import cut, show
from pharoah.comparison.compare import Difference, compare
from pharoah.comparison.history import History, Run, read
from pharoah.comparison.record import GROUPS, Record, read_key

_SHOWN = 60
"""Characters of a value that one line holds."""
_BEFORE = 15
"""Characters that are shown before the first difference of two long values; the place is hard to find without any."""
_LEFT_OUT = "..."
"""It stands where a part of a value is not shown."""


def add_parser(commands: Any) -> None:
    """Add the sub-command to the command line."""
    parser = commands.add_parser("compare", help="what differs between two runs", description=__doc__)
    parser.add_argument("left", metavar="A")
    parser.add_argument("right", metavar="B")
    parser.add_argument("--key", metavar="FILE", type=Path, help="the key one is sealed with, to seal the other")
    parser.add_argument("-n", type=int, default=10, metavar="N", help="differences to show (default: 10)")
    parser.add_argument("-o", "--output", choices=["table", "json"], default="table")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Run the sub-command; gives the exit code."""
    runs = [_run(name) for name in (arguments.left, arguments.right)]
    left, right = (run.record for run in runs)
    if arguments.key and bool(left.sealed) != bool(right.sealed):
        key = read_key(arguments.key)
        left, right = (record if record.sealed else record.seal(key) for record in (left, right))
    found = compare(left, right)
    if arguments.output == "json":
        show(json.dumps([asdict(difference) for difference in found], indent=1))
        return 0
    if head := [
        *_header("A", runs[0]),
        *_header("B", runs[1]),
        *_unknown("A", left, right),
        *_unknown("B", right, left),
    ]:
        show("\n".join(head), end="\n\n")
    for difference in found[: arguments.n]:
        show("\n".join(_lines(difference, bool(left.sealed))))
    if not found:
        show("no differences")
    elif len(found) > arguments.n:
        show(f"and {len(found) - arguments.n} more that are less likely to matter: -n {len(found)}")
    return 0


def _run(name: str) -> Run:
    """Raises RecordError when a name is neither a file nor the id of one run."""
    a_file = os.path.exists(name) or set(name) - set(string.hexdigits)  # noqa: PTH110 - never raises
    return read(Path(name)) if a_file else History(Settings.load()).find(name)


def _header(mark: str, run: Run) -> list[str]:
    """What became of a run; nothing of a record alone."""
    if not run.id:
        return []
    began = datetime.fromtimestamp(run.began).strftime("%Y-%m-%d %H:%M")
    steps = f", {run.steps} steps of {1000 * run.step_seconds:.3g} ms" if run.steps else ""
    return [f"{mark}  {run.id[:8]}  {began}  {run.state:.20}{steps}", f"   {cut(run.command, 76)}"]


def _unknown(mark: str, record: Record, other: Record) -> list[str]:
    """What can be compared in the other one only."""
    missing = [group for group in GROUPS if group in other.groups and group not in record.groups]
    return [f"not known of {mark}: {', '.join(missing)}"] if missing else []


def _lines(difference: Difference, sealed: bool) -> list[str]:
    """At most 80 columns."""
    head = f"{difference.weight:.2f}  {difference.group}  {_printable(difference.name)}"
    if sealed:
        values = "differs" if difference.left and difference.right else "only one of them has it"
        return [head, f"      {values}; {difference.why}"]
    lines = [head]
    for mark, value, other in (("A", difference.left, difference.right), ("B", difference.right, difference.left)):
        lines.append(f"      {mark} {_render(value, other) or '-'}")
    lines += textwrap.wrap(difference.why, 74, initial_indent="      ", subsequent_indent="      ")
    return lines


def _render(value: str, other: str) -> str:
    """A value on one line: where it or the other one is longer, from shortly before the place where they differ."""
    text, other_text = _printable(value), _printable(other)
    pairs = enumerate(zip(text, other_text, strict=False))
    same = next((at for at, (mine, theirs) in pairs if mine != theirs), min(len(text), len(other_text)))
    if max(len(text), len(other_text)) > _SHOWN and same > _BEFORE + len(_LEFT_OUT):
        text = _LEFT_OUT + text[same - _BEFORE :]
    return text if len(text) <= _SHOWN else text[: _SHOWN - len(_LEFT_OUT)] + _LEFT_OUT


def _printable(value: str) -> str:
    """The value with line breaks and other control characters as Python writes them in a string."""
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in value)
