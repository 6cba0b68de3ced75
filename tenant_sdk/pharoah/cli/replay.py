"""`pharoah replay FILE`: compute a saved step of a job again on this node, and say which node computes wrong results.

`pharoah run --step-file FILE` saves a step. Run `pharoah replay FILE --out RESULT` on the node of the job and on others
of the same class, then give the results of all to one of them with `--with`. The file has weights and data of the job.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pharoah._errors import PharoahError
from pharoah.cli._output import show
from pharoah.replay.judgement import Judgement, ReplayState, judge
from pharoah.replay.results import NodeResult, read_results, write_results
from pharoah.replay.step_file import CPU_VARIABLES, GPU_VARIABLES, NodeClass, SavedStep, StepFileError, StepReader
from pharoah_system.standard_streams import say

WRONG_RESULTS = 13
"""The exit code when the results of some nodes differ."""
_WORDS = {
    ReplayState.EQUAL: "all results are equal, bit by bit",
    ReplayState.WRONG_NODE: "computes wrong results: do not use this node, and ask its provider to test it",
    ReplayState.WRONG_ONCE: "has computed the saved step wrong, and not since: go on with longer repeats (--seconds)",
    ReplayState.THIRD_NODE_NEEDED: "two nodes differ: replay the step on a third one of this class",
    ReplayState.NOT_REPRODUCIBLE: "the repeats of every node differ: replay the step on another node of this class",
}


def add_parser(commands: Any) -> None:
    """Add the sub-command to the command line."""
    parser = commands.add_parser(
        "replay", help="compute a saved step again, to find wrong results", description=__doc__
    )
    parser.add_argument("file", metavar="FILE", type=Path, help="a step that `pharoah run --step-file` has saved")
    parser.add_argument(
        "--seconds", type=_seconds, default=30.0, metavar="S", help="how long it repeats on each GPU (default: 30)"
    )
    parser.add_argument("--node", default=platform.node(), metavar="NAME", help="what to call this node")
    parser.add_argument("--out", metavar="RESULT", type=Path, help="write what this node has computed into this file")
    parser.add_argument(
        "--with", dest="others", metavar="RESULT", type=Path, nargs="+", default=[], help="results of other nodes"
    )
    parser.add_argument(
        "--trust", action="store_true", help="also a file that somebody else owns, or that others may write to"
    )
    parser.add_argument("-o", "--output", choices=["table", "json"], default="table")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Run the sub-command; gives the exit code. Raises StepFileError."""
    reader = StepReader(arguments.file, trust=arguments.trust)
    files = [read_results(path, reader.step.id) for path in arguments.others]
    names = [arguments.node, *(name for file in files for name in {one.node for one in file})]
    if len(set(names)) < len(names):
        raise PharoahError(f"--with: two results of one node ({', '.join(sorted(names))}); give names with --node")
    _set_variables(reader.step.node_class)
    from pharoah.replay.repeat import gpus_of, repeat  # here: it imports torch

    own, failed = list[NodeResult](), list[StepFileError]()
    for gpu in gpus_of(reader.step):
        try:
            own.append(repeat(reader, arguments.node, arguments.seconds, gpu=gpu))
        except StepFileError as error:  # this GPU is of another class, or has no room; others may compute the step
            failed.append(error)
            say(f"pharoah: {'the processors' if gpu is None else f'gpu{gpu}'}: {error}")
    if not own:
        raise failed[0] if failed else PharoahError(f"{arguments.file}: it used a GPU, and torch sees none here")
    if arguments.out:
        write_results(arguments.out, own)
    results = [*own, *(one for file in files for one in file)]
    found = judge(reader.step, results)
    if arguments.output == "json":
        show(json.dumps({"step": reader.step.id, **asdict(found)}, indent=1))
    else:
        show("\n".join(_lines(reader.step, results, found)))
    return 0 if found.state is ReplayState.EQUAL else WRONG_RESULTS


def _set_variables(of: NodeClass) -> None:
    """Have the variables with which the step was computed, before any library reads them. `pharoah run` sets some of
    them for a job, by the profile of its node."""
    if "torch" not in sys.modules:
        for name in CPU_VARIABLES + GPU_VARIABLES:
            os.environ.pop(name, None)
        os.environ.update(of.variables)


def _lines(step: SavedStep, results: list[NodeResult], found: Judgement) -> list[str]:
    """At most 80 columns, for names of usual length."""
    lines = [f"step {step.id[:8]} of rank {step.rank}, saved on {step.node}: {len(step.computations)} operators"]
    for one in results:
        equal = (
            "all equal" if one.steady is not None else f"{one.repeats - one.outcomes[0].repeats} differ from the others"
        )
        lines.append(f"  {one.place:<20} {one.repeats:>5} repeats, {equal}")
    lines.append("")
    names_nodes = found.state in (ReplayState.WRONG_NODE, ReplayState.WRONG_ONCE)
    of_node = _WORDS[found.state if names_nodes else ReplayState.WRONG_NODE]
    for node, operator in zip(found.wrong, found.operators, strict=False):
        lines += [f"{node} {of_node}", f"  first in {operator}"]
    if not names_nodes:
        lines.append(_WORDS[found.state])
        lines += [f"  first in {operator}" for operator in found.operators[len(found.wrong) :] if operator]
    return lines


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= 86_400:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds from 0 to 86400")
    return value
