"""`python -m evaluation NAME`: run one evaluation, print its table, write its figures."""

from __future__ import annotations

import argparse
import os
import sys
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

from tests.harness.processes import ProcessScope, interrupted_once


class Evaluation(NamedTuple):
    """One evaluation of the command line."""

    module: str
    """The module in `evaluation` that has its `run(arguments)`."""
    what: str


EVALUATIONS = {
    "demo": Evaluation("demo.run", "the main job end to end, with pictures (what `make demo` runs)"),
    "interrupt": Evaluation("demo.interrupt", "processes that a demo leaves behind when it is interrupted"),
    "loop": Evaluation("loop.run", "verdicts, detection and cost of the whole loop, on real processes"),
    "odd_rank": Evaluation("loop.odd_rank_detection", "one slow rank of several: suspected, and not cleared too early"),
    "capture": Evaluation("fingerprints.run", "archetypes, dry runs against real steps, cost of capture"),
    "coverage": Evaluation("coverage.run", "public scripts and models: which of them get a dry run"),
    "archetypes": Evaluation("archetypes.run", "which models of public libraries have one archetype"),
    "distributed": Evaluation("distributed.run", "jobs on many ranks, costs, diagnosis, and published traces"),
    "rank_verdicts": Evaluation("distributed.verdicts", "which distributed jobs get the right answer"),
    "kernel_memory": Evaluation("costs.kernel_memory", "memory that CPU kernels take, beside what is counted"),
    "survival": Evaluation("survival.run", "how well failures are seen before they come"),
    "validation": Evaluation("validation.run", "whether nodes are rightly called slower, and classed"),
    "learning": Evaluation("learning.run", "what offline learning finds in runs whose truth is known"),
    "privacy": Evaluation("privacy.run", "what the exchange reveals, to whom, and what it costs"),
    "storage": Evaluation("storage.run", "what a day of reports weighs, and whether old rows are deleted"),
    "hardening": Evaluation("hardening.run", "attacks on the whole product: what still gets through"),
    "ingest": Evaluation("ingest.run", "how fast reports and telemetry are taken in, and what a kill loses"),
    "gpu": Evaluation("gpu.run", "what only a machine with a GPU shows (`make gpu-check`)"),
}


def main() -> int:
    """The command line. Returns the exit code: 0 when every bound holds, 1 when one does not, 130 when interrupted."""
    arguments = parser().parse_args()
    if arguments.name != "privacy":  # that one measures what a machine keeps
        os.environ.setdefault("PHAROAH_KEEP_RUNS", "0")  # thousands of runs that nobody will compare
    try:
        with interrupted_once(), ProcessScope():
            return int(import_module(f"evaluation.{EVALUATIONS[arguments.name].module}").run(arguments))
    except KeyboardInterrupt:
        print("interrupted; everything that was started has ended", file=sys.stderr)
        return 130


def parser() -> argparse.ArgumentParser:
    """Arguments that all evaluations share."""
    listed = "\n".join(f"  {name:13} {evaluation.what}" for name, evaluation in EVALUATIONS.items())
    parser = argparse.ArgumentParser(
        prog="python -m evaluation",
        description=f"{__doc__}\n\nevaluations:\n{listed}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("name", choices=list(EVALUATIONS), metavar="NAME")
    parser.add_argument("--data", type=Path, help="distributed, learning: folder of public data of others")
    parser.add_argument(
        "--part",
        help="hardening, learning, coverage, privacy, distributed, loop: this part only, such as consent, or loops",
    )
    parser.add_argument("--scripts", type=Path, help="coverage: folder of public scripts with a list, commands.toml")
    parser.add_argument(
        "--simulator-data",
        type=Path,
        metavar="FILE",
        help="learning, survival: runs or fleets of others with their truth, CSV or Parquet",
    )
    parser.add_argument("--quick", action="store_true", help="a smaller run that shows the same things")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, help="write the figures to this file, as JSON")
    parser.add_argument("--docs", action="store_true", help="write the tables into docs/ (not for demo)")
    return parser


if __name__ == "__main__":
    sys.exit(main())
