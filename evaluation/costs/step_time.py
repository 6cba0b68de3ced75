"""How long does a step take? Predictions of dry runs against real steps, one thread, families held out."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from json import loads
from statistics import median
from typing import Any

import numpy as np
from scipy.optimize import nnls
from scipy.stats import spearmanr

from evaluation.figures import Figures
from evaluation.models.training_worker import Worker
from pharoah.cost.ceilings import Ceilings, read_measured_ceilings
from pharoah.cost.duration import FITTED, Parts, operators
from pharoah.cost.step import StepCost
from pharoah.dryrun import dry_run
from pharoah_protocol.ceilings import CurvePoint, read_ceilings

SIZES = {
    "gpt2": ("4 64 64 2", "8 192 128 4", "16 384 128 4"),
    "llama": ("4 64 64 2", "8 192 128 4", "16 384 128 4"),
    "bert": ("4 64 64 2", "8 192 128 4", "16 384 128 4"),
    "electra": ("4 64 64 2", "8 192 128 4", "24 384 128 4"),
    "t5": ("4 64 64 2", "8 192 64 3", "16 384 64 3"),
    "mixtral": ("4 64 64 2", "8 192 128 2", "16 256 128 3"),
    "mamba": ("2 32 32 2", "4 96 64 2", "8 128 128 2"),
    "lstm": ("8 64 32 2", "32 192 64 2", "64 384 96 2"),
    "vit": ("8 64 32 2", "32 192 64 4", "64 384 64 4"),
    "swin": ("4 32 32 2", "8 64 64 2", "16 128 64 2"),
    "resnet": ("4 32 32 2", "16 64 32 3", "64 128 32 3"),
    "unet": ("2 32 32 2", "4 48 32 2", "6 64 48 2"),
    "dlrm": ("256 32 32 2", "2048 64 32 2", "8192 64 32 3"),
    "mlp": ("64 128 128 3", "1024 512 256 4", "4096 1024 512 5"),
    "wav2vec2": ("2 32 64 2", "2 64 128 2", "3 128 256 3"),
    "whisper": ("2 64 32 2", "8 192 64 2", "16 256 128 3"),
    "clip": ("4 64 32 2", "16 192 32 3", "32 256 64 4"),
}
"""Batch, width, length and depth of three jobs per family, with steps of some 5, 50 and 500 milliseconds."""
WARM_UP_STEPS = 2
TIMEOUT_SECONDS = 120.0


@dataclass
class Job:
    family: str
    arguments: Sequence[str]
    cost: StepCost
    seconds: float
    """The median of the real steps."""


def measure(figures: Figures, quick: bool) -> None:
    families = list(SIZES)[:: 4 if quick else 1]
    benchmarked, jobs = [_ceilings()], list[Job]()
    with Worker({"OMP_NUM_THREADS": "1"}) as worker:
        for number, family in enumerate(families):
            jobs += [_job(worker, arguments) for arguments in _arguments(family)]
            if number % 4 == 3:
                benchmarked.append(_ceilings())  # between the jobs: the machine's speed drifts
    parts = np.array([operators(job.cost, _together(benchmarked)) for job in jobs])
    real = np.array([job.seconds for job in jobs])
    predicted = np.array([_held_out(number, jobs, parts, real) for number in range(len(jobs))])
    for job, guess in zip(jobs, predicted, strict=True):
        shown = f"{job.seconds * 1e3:8.1f} ms, predicted {guess * 1e3:8.1f} ({guess / job.seconds:.2f})"
        print(f"  {' '.join(job.arguments):75} {shown}", flush=True)
    _figures(figures, predicted, real, parts)


def _figures(figures: Figures, predicted: Any, real: Any, parts: Any) -> None:
    print(f"  fitted to all: {Parts(*_fitted(parts, real))}")
    rank, error = float(spearmanr(predicted, real)[0]), median(abs(predicted / real - 1))
    unfitted = median(abs(parts.sum(axis=1) / real - 1))
    shipped = median(abs(parts @ np.array(FITTED) / real - 1))
    figures.add("steptime_jobs", len(real), "printed")
    figures.add("steptime_rank_correlation", rank, ">= 0.95", rank >= 0.95)
    figures.add("steptime_median_error_ratio", error, "<= 0.25", error <= 0.25)
    figures.add("steptime_median_error_ratio_shipped", shipped, "printed")
    figures.add("steptime_median_error_ratio_unfitted", unfitted, "printed")


def _arguments(family: str) -> list[list[str]]:
    names = ("--batch-size", "--width", "--length", "--depth")
    sizes = [[word for pair in zip(names, size.split(), strict=True) for word in pair] for size in SIZES[family]]
    return [[family, *size] for size in [*sizes, [*sizes[1], "--bf16"]]]


def _job(worker: Worker, arguments: Sequence[str]) -> Job:
    cost = dry_run([sys.executable, "-m", "evaluation.scripts.train_zoo", *arguments], TIMEOUT_SECONDS).cost
    return Job(arguments[0], arguments, cost, median(worker.run("durations", arguments)[WARM_UP_STEPS:]))


def _ceilings() -> Ceilings:
    command = [sys.executable, "-m", "pharoah_protocol.node_profile", '{"threads": 1}']
    answer = subprocess.run(
        [*command, sys.executable, "-m", "pharoah_benchmarks.ceilings"], check=True, capture_output=True
    )
    return read_measured_ceilings("this machine", read_ceilings(loads(answer.stdout)))


def _together(benchmarked: Sequence[Ceilings]) -> Ceilings:
    """The median of several measurements, point by point."""
    first = benchmarked[0]
    curves = {
        kind: {
            dtype: tuple(
                CurvePoint(
                    work=point.work, seconds=median(each.curves[kind][dtype][at].seconds for each in benchmarked)
                )
                for at, point in enumerate(curve)
            )
            for dtype, curve in by_dtype.items()
        }
        for kind, by_dtype in first.curves.items()
    }
    return replace(first, overhead=median(each.overhead for each in benchmarked), curves=curves)


def _held_out(number: int, jobs: Sequence[Job], parts: Any, real: Any) -> float:
    """The predicted step of a job, with weights that are fitted to the other families."""
    others = np.array([job.family != jobs[number].family for job in jobs])
    return float(parts[number] @ _fitted(parts[others], real[others]))


def _fitted(parts: Any, real: Any) -> Any:
    """The weights of the parts with the least relative error."""
    return nnls(parts / real[:, None], np.ones(len(real)))[0]
