"""How long learning takes and how much memory, up to ten million runs, beside pandas and statsmodels.

Every measurement is a process of its own with one thread, so that its memory is its own: the interpreter, numpy and
scipy, the columns of the runs, and what learning adds. statsmodels gives the same odds ratios, so it is also a check
of the learner's arithmetic. It answers less: it neither compares archetypes with each other nor matches runs.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from evaluation.environments import python_with
from evaluation.figures import Figures
from evaluation.pages import ROOT

WORKER = "evaluation.learning.scale_worker"
PEER = Path(__file__).with_name("statsmodels_peer.py")
COMPARED_RUNS, MAX_RUNS = 1_000_000, 10_000_000
ROUNDS, QUICK_ROUNDS = 3, 1
"""Times that both sides answer in turn; the fastest of each counts, in seconds of one core."""
HOSTS = 240
PAIRS, QUICK_PAIRS = 7, 3
"""Times that learning with hosts and without is measured, one after the other; the median of the ratios counts."""
MAX_CLUSTERS_RATIO = 2.0
MIN_RATIO = 10.0
MAX_DIFFERENCE = 1e-9
"""The largest difference of log odds ratios of Mantel and Haenszel: both sides have the same closed form."""
MAX_ADJUSTED_DIFFERENCE = 0.1
"""The largest difference of adjusted log odds ratios, in standard errors: ours have a ridge penalty that is worth a
twentieth of a run, which acts on the constant as well. `tests/learning/test_run_groups.py` compares fits without
one."""
THREADS = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")

Answer = dict[str, Any]


def measure(figures: Figures, arguments: argparse.Namespace) -> None:
    """Time and memory of the learner at three sizes, and of the peer at two."""
    peer = python_with("statsmodels-environment", ROOT / "requirements" / "statsmodels.txt", [])
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for runs in (COMPARED_RUNS // 10, COMPARED_RUNS, MAX_RUNS):
            file = Path(folder) / f"{runs}.npz"
            _run([sys.executable, "-m", WORKER, "draw", str(file), str(runs), str(arguments.seed)])
            learned, asked = [], []
            for _ in range(QUICK_ROUNDS if arguments.quick else ROUNDS):
                learned.append(_answer([sys.executable, "-m", WORKER, "learn", str(file)]))
                if runs <= COMPARED_RUNS:
                    asked.append(_answer([peer, str(PEER), str(file)]))
            own, theirs = _fastest(learned), _fastest(asked) if asked else None
            if runs == MAX_RUNS:
                _add_costs(figures, own)
            if runs == COMPARED_RUNS and theirs:
                _compare(figures, own, theirs)
            if runs == COMPARED_RUNS:
                _compare_clusters(figures, file, QUICK_PAIRS if arguments.quick else PAIRS)
            rows.append([f"{runs:,}", *_cost(own), *(_cost(theirs) if theirs else ["", ""])])
            file.unlink()
    figures.table(
        "Seconds of one core and peak memory of a process with one thread.",
        ["runs", "learner", "its memory", "pandas and statsmodels", "their memory"],
        rows,
    )


def _compare_clusters(figures: Figures, file: Path, pairs: int) -> None:
    """The time with the hosts of the runs over that without, one after the other, several times."""
    ratios = []
    for _ in range(pairs):
        without, beside = (
            _answer([sys.executable, "-m", WORKER, "learn", str(file), str(hosts)])["cpu_seconds"]
            for hosts in (0, HOSTS)
        )
        ratios.append(beside / without)
    median = float(np.median(ratios))
    figures.add(
        "clusters_time_ratio", median, f"<= {MAX_CLUSTERS_RATIO:g}", median <= MAX_CLUSTERS_RATIO,
        f"[{min(ratios):.2f}, {max(ratios):.2f}] {HOSTS} hosts over none, {pairs} pairs",
    )  # fmt: skip


def _add_costs(figures: Figures, own: Answer) -> None:
    figures.add("learn_1e7_runs_seconds", own["seconds"], interval=f"{own['cpu_seconds']:.2f} s of one core")
    before = own["bytes_before"] / 1e6
    figures.add("learn_rss_bytes", own["peak_bytes"], interval=f"of these {before:.0f} MB libraries and columns")


def _compare(figures: Figures, own: Answer, theirs: Answer) -> None:
    """The ratio of the times, and how far the estimates are apart."""
    same, whole = (theirs["cpu_seconds"] / own[name] for name in ("same_question_cpu_seconds", "cpu_seconds"))
    figures.add(
        "learn_1e6_seconds",
        own["cpu_seconds"],
        interval=f"{own['same_question_cpu_seconds']:.2f} s of these for what statsmodels answers",
    )
    tables = theirs["tables_seconds"] / theirs["seconds"]
    figures.add("statsmodels_1e6_seconds", theirs["cpu_seconds"], interval=f"{tables:.0%} of it tables")
    figures.add("learn_1e6_ratio_to_statsmodels", same, f">= {MIN_RATIO:g}", same >= MIN_RATIO, "the same questions")
    figures.add("learn_1e6_whole_ratio_to_statsmodels", whole, interval="with contrasts and matched pairs")
    odds = _largest(np.log(own["odds"]), np.log(theirs["odds"]), 1.0)
    figures.add(
        "learn_statsmodels_odds_difference", odds, f"<= {MAX_DIFFERENCE:g}", odds <= MAX_DIFFERENCE,
        f"{np.size(own['odds'])} pairs, largest",
    )  # fmt: skip
    adjusted = _largest(own["adjusted"], theirs["adjusted"], np.array(theirs["standard_errors"]))
    figures.add(
        "learn_statsmodels_adjusted_difference_se", adjusted, f"<= {MAX_ADJUSTED_DIFFERENCE:g}",
        adjusted <= MAX_ADJUSTED_DIFFERENCE, "standard errors, largest",
    )  # fmt: skip


def _largest(own: Any, theirs: Any, unit: Any) -> float:
    return float(np.max(np.abs(np.array(own) - np.array(theirs)) / unit))


def _cost(answer: Answer) -> list[str]:
    return [f"{answer['cpu_seconds']:.2f} s", f"{answer['peak_bytes'] / 1e6:,.0f} MB"]


def _fastest(answers: list[Answer]) -> Answer:
    return min(answers, key=lambda answer: float(answer["cpu_seconds"]))


def _answer(command: list[str]) -> Answer:
    answer: Answer = json.loads(_run(command))
    return answer


def _run(command: list[str]) -> str:
    """What a process prints. Raises CalledProcessError; its messages go to our standard error."""
    return subprocess.run(command, env={**os.environ, **THREADS}, stdout=subprocess.PIPE, text=True, check=True).stdout
