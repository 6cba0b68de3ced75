"""`python -m evaluation NAME`: run one evaluation, print its table, write its figures."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from enum import StrEnum
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

from tests.harness.processes import ProcessScope, interrupted_once


class Option(StrEnum):
    """Options that some evaluations take, by the name of their attribute; all evaluations take the others."""

    PART = "part"
    DATA = "data"
    SCRIPTS = "scripts"
    SIMULATOR_DATA = "simulator_data"
    TORCH = "torch"
    PYTHON = "python"

    @property
    def flag(self) -> str:
        """As it is written on the command line."""
        return f"--{self.value.replace('_', '-')}"


class Evaluation(NamedTuple):
    """One evaluation of the command line."""

    module: str
    """The module in `evaluation` that has its `run(arguments)`."""
    what: str
    takes: Sequence[Option] = ()


EVALUATIONS = {
    "demo": Evaluation("demo.run", "the main job end to end, with pictures (what `make demo` runs)"),
    "interrupt": Evaluation("demo.interrupt", "processes that a demo leaves behind when it is interrupted"),
    "loop": Evaluation("loop.run", "verdicts, detection and cost of the whole loop, on real processes", (Option.PART,)),
    "odd_rank": Evaluation("loop.odd_rank_detection", "one slow rank of several: suspected, and not cleared too early"),
    "capture": Evaluation("fingerprints.run", "archetypes, dry runs against real steps, cost of capture"),
    "coverage": Evaluation(
        "coverage.run",
        "public scripts and models: which of them get a dry run",
        (Option.PART, Option.SCRIPTS),
    ),
    "archetypes": Evaluation("archetypes.run", "which models of public libraries have one archetype"),
    "distributed": Evaluation(
        "distributed.run",
        "jobs on many ranks, costs, diagnosis, and published traces",
        (Option.PART, Option.DATA),
    ),
    "rank_verdicts": Evaluation("distributed.verdicts", "which distributed jobs get the right answer"),
    "kernel_memory": Evaluation("costs.kernel_memory", "memory that CPU kernels take, beside what is counted"),
    "survival": Evaluation(
        "survival.run",
        "how well failures are seen before they come",
        (Option.PART, Option.DATA, Option.SIMULATOR_DATA),
    ),
    "validation": Evaluation(
        "validation.run",
        "whether nodes are rightly called slower, and classed",
        (Option.PART, Option.DATA),
    ),
    "learning": Evaluation(
        "learning.run",
        "what offline learning finds in runs whose truth is known",
        (Option.PART, Option.DATA, Option.SIMULATOR_DATA),
    ),
    "privacy": Evaluation("privacy.run", "what the exchange reveals, to whom, and what it costs", (Option.PART,)),
    "storage": Evaluation("storage.run", "what a day of reports weighs, and whether old rows are deleted"),
    "hardening": Evaluation("hardening.run", "attacks on the whole product: what still gets through", (Option.PART,)),
    "ingest": Evaluation(
        "ingest.run", "how fast reports and telemetry are taken in, and what a kill loses", (Option.PART,)
    ),
    "releases": Evaluation(
        "releases.run",
        "every promised release of torch, really installed, and >= 30 scripts",
        (Option.TORCH, Option.PYTHON),
    ),
    "house": Evaluation("house.run", "the shape of the source, its names and pages"),
    "gpu": Evaluation("gpu.run", "what only a machine with a GPU shows (`make gpu-check`)", (Option.PART,)),
}


def main() -> int:
    """The command line. Returns the exit code: 0 when every bound holds, 1 when one does not, 130 when interrupted."""
    arguments = arguments_of(sys.argv[1:])
    if arguments.name != "privacy":  # that one measures what a machine keeps
        os.environ.setdefault("PHAROAH_KEEP_RUNS", "0")  # thousands of runs that nobody will compare
    try:
        with interrupted_once(), ProcessScope():
            return int(import_module(f"evaluation.{EVALUATIONS[arguments.name].module}").run(arguments))
    except KeyboardInterrupt:
        print("interrupted; everything that was started has ended", file=sys.stderr)
        return 130


def arguments_of(words: Sequence[str]) -> argparse.Namespace:
    """The arguments of a command line. Exits with 2 when an option is given that the evaluation does not take: it would
    measure something else than what was asked for."""
    of = parser()
    arguments = of.parse_args(words)
    for option in Option:
        if getattr(arguments, option) is not None and option not in EVALUATIONS[arguments.name].takes:
            of.error(f"{option.flag}: {arguments.name} does not take it; these do: {_taking(option)}")
    return arguments


def _taking(option: Option) -> str:
    return ", ".join(name for name, evaluation in EVALUATIONS.items() if option in evaluation.takes)


def parser() -> argparse.ArgumentParser:
    """Arguments that all evaluations share."""
    listed = "\n".join(f"  {name:13} {evaluation.what}" for name, evaluation in EVALUATIONS.items())
    parser = argparse.ArgumentParser(
        prog="python -m evaluation",
        description=f"{__doc__}\n\nevaluations:\n{listed}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("name", choices=list(EVALUATIONS), metavar="NAME")
    parser.add_argument(
        Option.DATA.flag, type=Path, metavar="DIR", help=f"folder of public data of others ({_taking(Option.DATA)})"
    )
    parser.add_argument(Option.PART.flag, help=f"measure this part only ({_taking(Option.PART)})")
    parser.add_argument(
        Option.SCRIPTS.flag,
        type=Path,
        metavar="DIR",
        help=f"folder of public scripts with a list, commands.toml ({_taking(Option.SCRIPTS)})",
    )
    parser.add_argument(
        Option.SIMULATOR_DATA.flag,
        type=Path,
        metavar="FILE",
        help=f"runs or fleets of others with their truth, CSV or Parquet ({_taking(Option.SIMULATOR_DATA)})",
    )
    parser.add_argument(
        Option.TORCH.flag, metavar="LIST", help=f"releases of torch, such as 2.4.1,2.5.1 ({_taking(Option.TORCH)})"
    )
    parser.add_argument(Option.PYTHON.flag, metavar="LIST", help=f"such as 3.13 ({_taking(Option.PYTHON)})")
    parser.add_argument("--quick", action="store_true", help="a smaller run that shows the same things")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, help="write the figures to this file, as JSON")
    parser.add_argument("--docs", action="store_true", help="write the tables into docs/ (not for demo)")
    return parser


if __name__ == "__main__":
    sys.exit(main())
