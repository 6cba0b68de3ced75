"""`python -m evaluation coverage`: which scripts and models get a dry run, and is it the step that really runs?

Every job runs for real under `pharoah run`, which captures a step, and is dry-run. Jobs that fail without Pharoah are
left out and listed. The libraries are those of `requirements/coverage.txt`; nothing is downloaded while jobs run.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial

import numpy as np

from evaluation.coverage import environment, launchers
from evaluation.coverage.job import Job, Outcome, outcome
from evaluation.coverage.sources import families, loops, public_scripts, serving
from evaluation.figures import Figures, timed

LIBRARIES = ("torchvision", "timm", "transformers")
WORKERS = max(1, len(os.sched_getaffinity(0)))
BOUNDS = {
    "loops": 0.95,
    "torchvision": 0.98,
    "timm": 0.98,
    "transformers": 0.98,
    "public_scripts": 0.95,
    "serving": 0.95,
}
LEAST = {"loops": 60, "torchvision": 29, "timm": 150, "transformers": 150, "public_scripts": 40, "serving": 14}
"""How many jobs of a kind there must be in the full form."""
QUICK_EVERY = 8
"""The short form takes every eighth job."""
MAX_EXPLORATION_SECONDS = 5.0


def run(arguments: argparse.Namespace) -> int:
    figures = Figures("coverage")
    interpreter = environment.python()
    sources: dict[str, Callable[[], list[Job]]] = {
        "loops": lambda: loops(interpreter),
        "serving": lambda: serving(interpreter),
    }
    sources |= {library: partial(families, interpreter, library) for library in LIBRARIES}
    if arguments.scripts:
        sources["public_scripts"] = lambda: public_scripts(interpreter, arguments.scripts)
    if arguments.part in (None, "launchers"):
        timed("launchers", lambda: launchers.measure(figures, interpreter))
    everything: list[Outcome] = []
    for kind, jobs in sources.items():
        if arguments.part in (None, kind):
            chosen = jobs()[:: QUICK_EVERY if arguments.quick else 1]
            timed(kind, partial(measure, figures, kind, chosen, interpreter, arguments.quick, everything))
    if everything:
        together(figures, everything)
    return figures.finish(arguments)


def measure(
    figures: Figures, kind: str, jobs: Sequence[Job], interpreter: str, quick: bool, everything: list[Outcome]
) -> None:
    """The jobs of one kind: how many are dry-run. Their outcomes are added to `everything`."""
    with ProcessPoolExecutor(WORKERS) as pool:
        outcomes = list(pool.map(partial(outcome, interpreter=interpreter), jobs))
    for one in outcomes:
        if line := _line(one):
            print(f"  {one.job.name}: {line}", flush=True)
    ran = [one for one in outcomes if not one.failed]
    figures.add(f"{kind}_jobs", len(ran), f">= {LEAST[kind]} unless --quick", quick or len(ran) >= LEAST[kind])
    figures.ratio(f"{kind}_dry_run_ratio", sum(one.is_dry_run for one in ran), len(ran), BOUNDS[kind])
    figures.details[kind] = {one.job.name: _line(one) for one in outcomes if _line(one)}
    everything += outcomes


def together(figures: Figures, outcomes: Sequence[Outcome]) -> None:
    """What holds for all kinds: dry steps are real steps, and following branches does not take long."""
    both = [one for one in outcomes if one.is_dry_run and one.real]
    figures.ratio("dry_equals_real_ratio", sum(one.is_equal for one in both), len(both), 0.98)
    branched = [one for one in outcomes if one.branched]
    decided = sum(one.is_dry_run for one in branched)
    figures.ratio("explored_branch_decides_ratio", decided, len(branched))
    extra = [one.exploring_seconds for one in branched if one.is_dry_run]
    p90 = float(np.quantile(extra, 0.9)) if extra else 0.0
    holds = p90 <= MAX_EXPLORATION_SECONDS
    figures.add("exploring_p90_seconds", p90, f"<= {MAX_EXPLORATION_SECONDS:g}", holds, f"n={len(extra)}")


def _line(one: Outcome) -> str:
    """What is worth reading of an outcome; empty when everything went well."""
    if one.failed:
        return f"left out, it fails without Pharoah: {one.failed.splitlines()[-1]}"
    if not one.is_dry_run:
        return f"no dry run: {one.reason}"
    if one.real and not one.is_equal:
        return f"dry {' / '.join(one.grammars[0].split())} real {' / '.join(one.grammars[1].split())}"
    return ""
