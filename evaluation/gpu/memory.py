"""Does a job fit on the GPU? Predictions of dry runs against real runs, and against the allocator of torch."""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from statistics import median
from typing import Any, NamedTuple

import torch

from evaluation.costs.memory_fit import command_of, what_if
from evaluation.figures import Figures
from pharoah.cost import cuda_allocator
from pharoah.cost.memory import peak
from pharoah.cost.memory_fit import CONTEXT, compute_reserved_bytes
from pharoah.cost.mitigation import Mitigation
from pharoah.cost.step import StepCost

CASES = {
    "gpt2": "--batch-size 16 --width 768 --length 128 --depth 6 --vocabulary 32000",
    "llama": "--batch-size 32 --width 768 --length 128 --depth 6 --vocabulary 32000",
    "bert": "--batch-size 32 --width 768 --length 128 --depth 6 --vocabulary 32000",
    "t5": "--batch-size 32 --width 512 --length 128 --depth 4 --vocabulary 32000",
    "mixtral": "--batch-size 24 --width 512 --length 128",
    "lstm": "--batch-size 128 --width 512 --length 128 --depth 2 --vocabulary 10000",
    "vit": "--batch-size 128 --width 512 --length 64 --depth 6 --vocabulary 1000",
    "resnet": "--batch-size 256 --width 128 --depth 3 --vocabulary 1000",
    "unet": "--batch-size 16 --width 64 --length 64",
    "dlrm": "--batch-size 8192 --width 128 --vocabulary 500000",
    "mlp": "--batch-size 8192 --width 2048 --length 512 --depth 8",
    "whisper": "--batch-size 24 --width 512 --length 128 --depth 4",
}
"""A family's job of one to some gigabytes."""
FRACTIONS = 2
"""Limits that are drawn for each job, 0.8 to 1.2 times what it is predicted to reserve."""
AT_ONCE = 12
"""Processes that use the GPU at a time."""
MIB = 1 << 20


class Real(NamedTuple):
    """A real run."""

    allocated: int
    reserved: int
    outside: int
    """Bytes of the GPU that the process took beside what torch's allocator had reserved at its end."""


def measure(figures: Figures, arguments: argparse.Namespace) -> None:
    """Compare dry runs with real runs of the same commands."""
    names = list(CASES)[:: 4 if arguments.quick else 1]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        costs = dict(zip(names, pool.map(_dry, names), strict=True))
        real = dict(zip(names, pool.map(_real, names), strict=True))
        _limits(figures, costs, pool, random.Random(arguments.seed))
    reserved = {name: compute_reserved_bytes(cost) for name, cost in costs.items()}
    errors = {name: reserved[name] / real[name].reserved - 1 for name in names}
    worst = max(errors, key=lambda name: abs(errors[name]))
    figures.add("reserved_relative_error_median", median(map(abs, errors.values())), interval=f"n={len(names)}")
    figures.add("reserved_relative_error_worst", errors[worst], interval=worst)
    outside = [one.outside for one in real.values()]
    figures.add("bytes_besides_allocator_median", median(outside), f"predicted: {CONTEXT:,}", True)
    rows = [
        (name, *(f"{size / MIB:,.0f}" for size in (peak(costs[name].memory).bytes, real[name].allocated,
         reserved[name], real[name].reserved, real[name].outside)), f"{errors[name]:+.1%}")
        for name in names
    ]  # fmt: skip
    columns = ("family", "predicted peak", "allocated", "predicted to reserve", "reserved", "besides", "error")
    figures.table("Memory of three steps on the GPU, in MiB; the error is that of the reserved bytes:", columns, rows)


def _limits(figures: Figures, costs: dict[str, StepCost], pool: ThreadPoolExecutor, chance: random.Random) -> None:
    """Which jobs run out of memory under a limit, and for which was it predicted?"""
    trials = []
    for name, cost in costs.items():
        needed = compute_reserved_bytes(cost)
        trials += [(name, int(needed * chance.uniform(0.8, 1.2))) for _ in range(FRACTIONS)]
    failed = list(pool.map(lambda trial: _worker(trial[0], trial[1]) is None, trials))
    predicted = [not _fits(costs[name], limit) for name, limit in trials]
    right = sum(fails and expected for fails, expected in zip(failed, predicted, strict=True))
    figures.ratio("gpu_oom_precision", right, sum(predicted), 0.9)
    figures.ratio("gpu_oom_recall", right, sum(failed), 0.9)


def _fits(cost: StepCost, limit: int) -> bool:
    try:
        compute_reserved_bytes(cost, limit)
    except cuda_allocator.OutOfMemory:
        return False
    return True


def _arguments(name: str) -> list[str]:
    return [name, *CASES[name].split()]


def _dry(name: str) -> StepCost:
    return what_if(command_of(_arguments(name)), Mitigation())


def _real(name: str) -> Real:
    if (found := _worker(name)) is None:
        raise SystemExit(f"evaluation gpu: {name} does not fit into the memory of this GPU")
    return Real(**found)


def _worker(name: str, limit: int = 0) -> Any:
    """What a real run took; None when it ran out of memory."""
    command = [sys.executable, "-m", "evaluation.gpu.memory", str(limit), *_arguments(name)]
    done = subprocess.run(command, capture_output=True, text=True, env=dict(os.environ), check=False)
    if done.returncode:
        raise SystemExit(f"evaluation gpu: {name}: {done.stderr[-800:]}")
    return json.loads(done.stdout.splitlines()[-1])


def _train(limit: int, words: Sequence[str]) -> dict[str, int] | None:
    """Three steps in this process; None when they run out of memory."""
    from evaluation.scripts.train_zoo import add_options, train

    parser = argparse.ArgumentParser()
    add_options(parser)
    if limit:
        torch.cuda.set_per_process_memory_fraction(limit / torch.cuda.get_device_properties(0).total_memory)
    try:
        train(parser.parse_args(words))
    except torch.cuda.OutOfMemoryError:
        return None
    torch.cuda.synchronize()
    return {
        "allocated": torch.cuda.max_memory_allocated(),
        "reserved": torch.cuda.max_memory_reserved(),
        "outside": _used_by_this_process() - torch.cuda.memory_reserved(),
    }


def _used_by_this_process() -> int:
    import pynvml

    pynvml.nvmlInit()
    gpu = pynvml.nvmlDeviceGetHandleByIndex(0)
    found = {one.pid: one.usedGpuMemory for one in pynvml.nvmlDeviceGetComputeRunningProcesses(gpu)}
    return int(found.get(os.getpid()) or 0)


if __name__ == "__main__":
    print(json.dumps(_train(int(sys.argv[1]), sys.argv[2:])))
