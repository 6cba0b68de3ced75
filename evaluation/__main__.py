"""`python -m evaluation NAME`: run one evaluation, print its table, write its figures."""

from __future__ import annotations

import argparse
import os
import sys
from importlib import import_module
from pathlib import Path

EVALUATIONS = {
    "demo": ("demo.run", "the main job end to end, with pictures (what `make demo` runs)"),
    "loop": ("loop.run", "verdicts, detection and cost of the whole loop, on real processes"),
    "capture": ("fingerprints.run", "archetypes, dry runs against real steps, and what capture costs"),
    "distributed": ("distributed.run", "jobs on many ranks, and traces of jobs elsewhere"),
    "kernel_memory": ("costs.kernel_memory", "memory that kernels of this CPU take, beside what is counted"),
    "privacy": ("privacy.run", "what the exchange reveals, to whom, and what it costs"),
    "gpu": ("fingerprints.gpu", "capture and dry runs on a CUDA device (`make gpu-check`)"),
}
"""Name of an evaluation to the module that has its `run`, and what it measures."""


def main() -> int:
    listed = "\n".join(f"  {name:13} {what}" for name, (_, what) in EVALUATIONS.items())
    parser = argparse.ArgumentParser(
        prog="python -m evaluation",
        description=f"{__doc__}\n\nevaluations:\n{listed}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("name", choices=list(EVALUATIONS), metavar="NAME")
    parser.add_argument("--data", type=Path, default=Path("../shared/data"), help="reference data, where one is needed")
    parser.add_argument("--quick", action="store_true", help="a smaller run that shows the same things")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, help="write the figures here as JSON")
    parser.add_argument("--docs", action="store_true", help="privacy: write the tables into docs/exchange.md")
    arguments = parser.parse_args()
    if arguments.name != "privacy":  # it measures what is kept
        os.environ.setdefault("PHAROAH_KEEP_RUNS", "0")  # thousands of runs that nobody will ask for
    module, _ = EVALUATIONS[arguments.name]
    return int(import_module(f"evaluation.{module}").run(arguments))


if __name__ == "__main__":
    sys.exit(main())
