"""What the defences cost: the time of a verdict and of a dry run, beside the same before them.

`HARDENING_BEFORE` names what to compare with: a folder with a checkout, or a commit of this repository. Both are
measured in turns in one run, each by a process that imports its own tree (`cost_worker`). Without it the figures are
printed alone.
"""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import tarfile
import tempfile
import tomllib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from statistics import median

import numpy as np

from evaluation.figures import Figures
from evaluation.pages import ROOT

BEFORE = "HARDENING_BEFORE"
MAX_RATIO = 1.2
"""What the defences may cost, over what it took before them."""
ROUNDS, QUICK_ROUNDS = 12, 4
"""Turns of each tree. They change places, so that what the machine does besides meets both in the same way."""
VERDICTS_PER_ROUND = 100
DRY_RUNS_PER_ROUND = 2


class Tree:
    """One checkout, measured by a process that imports it."""

    def __init__(self, folder: Path, worker: subprocess.Popen[str]) -> None:
        self._folder, self._worker = folder, worker
        self.verdict_seconds: list[float] = []
        self.dry_run_seconds: list[float] = []

    def measure(self) -> None:
        """One turn."""
        self.verdict_seconds += self._ask("verdicts", VERDICTS_PER_ROUND)
        self.dry_run_seconds += self._ask("dry_runs", DRY_RUNS_PER_ROUND)

    def _ask(self, what: str, count: int) -> list[float]:
        """Raises RuntimeError when the worker has ended: a tree must have what `cost_worker` imports."""
        assert self._worker.stdin and self._worker.stdout
        with suppress(BrokenPipeError):
            print(json.dumps({"what": what, "count": count}), file=self._worker.stdin, flush=True)
        if not (answer := self._worker.stdout.readline()):
            raise RuntimeError(f"{self._folder}: its {what} cannot be measured; what it printed says why")
        return [float(seconds) for seconds in json.loads(answer)]


def measure(figures: Figures, quick: bool, seed: int) -> None:
    """Add the figures of this tree, and of the one before where it is named."""
    with ExitStack() as stack:
        trees = [Tree(ROOT, stack.enter_context(_worker(ROOT, seed)))]
        if named := os.environ.get(BEFORE):
            folder = stack.enter_context(_checkout(named))
            trees.append(Tree(folder, stack.enter_context(_worker(folder, seed))))
        for turn in range(QUICK_ROUNDS if quick else ROUNDS):
            for tree in trees if turn % 2 else reversed(trees):
                tree.measure()
    p99s = [float(np.quantile(tree.verdict_seconds, 0.99)) for tree in trees]
    _add(figures, "verdict_p99_seconds", p99s, f"n={len(trees[0].verdict_seconds)}")
    dry_runs = [median(tree.dry_run_seconds) for tree in trees]
    _add(figures, "dry_run_seconds", dry_runs, f"median, n={len(trees[0].dry_run_seconds)}")


def _add(figures: Figures, key: str, values: list[float], trials: str) -> None:
    now, *before = values
    if before:
        holds = now <= MAX_RATIO * before[0]
        figures.add(key, now, f"<= {MAX_RATIO:g}x before", holds, f"{now / before[0]:.2f}x before; {trials}")
        figures.add(f"{key}_before", before[0], interval=trials)
    else:
        figures.add(key, now, interval=trials)


@contextmanager
def _checkout(named: str) -> Iterator[Path]:
    """The folder that is named, or one with the files of the commit that is named."""
    if Path(named).is_dir():
        yield Path(named).resolve()
        return
    packed = subprocess.run(["git", "archive", named], cwd=ROOT, stdout=subprocess.PIPE, check=True).stdout
    with tempfile.TemporaryDirectory() as folder:
        with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
            archive.extractall(folder, filter="data")
        yield Path(folder)


@contextmanager
def _worker(tree: Path, seed: int) -> Iterator[subprocess.Popen[str]]:
    """A process that imports `tree` alone; it ends with the context."""
    project = tomllib.loads((tree / "pyproject.toml").read_text())
    folders = [tree, *(tree / name for name in project["tool"]["hatch"]["build"]["dev-mode-dirs"])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, folders))}
    worker = subprocess.Popen(
        [sys.executable, "-P", str(Path(__file__).with_name("cost_worker.py")), str(seed)],
        cwd=tree, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        yield worker
    finally:
        with suppress(BrokenPipeError):
            worker.communicate()  # closes its input, and with that it ends
