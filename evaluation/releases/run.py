"""`python -m evaluation releases`: training scripts with every minor release of torch that is promised.

Each release has an environment of its own, installed from the package index (some GB) and removed afterwards. A call
that is stopped goes on where it was; results are kept in `evaluation-out/releases/results.jsonl` until the sources of
Pharoah, a script, or how it is measured change. `--torch 2.4.1,2.5.1` and `--python 3.13` choose releases.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterable
from functools import partial
from itertools import groupby
from pathlib import Path

from evaluation.figures import Figures, timed
from evaluation.releases.install import FOLDER, alone, forget
from evaluation.releases.jobs import scripts
from evaluation.releases.measure import Measuring
from evaluation.releases.plan import FIRST_PYTHON, Plan, Release, planned
from evaluation.releases.store import Results
from evaluation.releases.tables import show

NICENESS = 10
"""Hours of work: whatever else the machine does comes first."""
MIN_SCRIPTS = 30


def run(arguments: argparse.Namespace) -> int:
    """Measure all releases. Returns the exit code."""
    plan = planned(arguments.torch, arguments.python, arguments.quick)
    os.nice(NICENESS)
    chosen = scripts(arguments.quick)
    measuring = Measuring(Results(FOLDER / "results.jsonl"), chosen)
    figures = Figures("releases")
    figures.add(
        "releases_scripts",
        len(chosen),
        f">= {MIN_SCRIPTS} unless --quick",
        arguments.quick or len(chosen) >= MIN_SCRIPTS,
    )
    with alone():
        for _, group in groupby((*_with_reference(plan), *plan.unsupported), key=lambda one: one.torch):
            try:
                for release in group:
                    timed(str(release), partial(_measure, measuring, plan, release))
            finally:
                forget()
    newer = measuring.measure_newer(Path(sys.executable))["torch"]
    show(figures, measuring, plan, newer)
    return figures.finish(arguments)


def _with_reference(plan: Plan) -> Iterable[Release]:
    """All that is promised, and before it the reference, if it is not among them."""
    return plan.releases if plan.reference in plan.releases else (plan.reference, *plan.releases)


def _measure(measuring: Measuring, plan: Plan, release: Release) -> None:
    if release in plan.unsupported:
        measuring.measure_unsupported(release)
    else:
        chosen = release in plan.releases  # otherwise it is the reference, of which the archetypes are wanted
        measuring.measure(release, checks=chosen and release.python == FIRST_PYTHON, captures=chosen)
