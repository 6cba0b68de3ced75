"""Micro-benchmarks on the GPU, by the agent's own command, beside data sheets; and errors that are planted."""

from __future__ import annotations

import argparse
import json
import math
import random
import subprocess
import sys
from collections import defaultdict
from collections.abc import Sequence
from statistics import median, stdev
from typing import Any

import torch

from evaluation.figures import Figures
from pharoah_archetypes.devices import Device, device_named
from pharoah_benchmarks.faults.bit_flip import _flip
from pharoah_benchmarks.micro import MICRO_BENCHMARKS, MicroBenchmark
from pharoah_benchmarks.micro_kernels.memory import Copy, Patterns
from pharoah_benchmarks.micro_kernels.numbers import bits
from pharoah_benchmarks.micro_kernels.reproducibility import Reproduced
from pharoah_protocol.vocabulary import DeviceKind

RUNS = 2
"""Runs of the whole set, each in a process of its own."""
PLANTED = 10
"""Errors of each kind."""
GIBIBYTE = 1 << 30


def measure(figures: Figures, arguments: argparse.Namespace) -> None:
    """Run all micro-benchmarks of one GPU several times, and plant errors."""
    chosen = [one for one in MICRO_BENCHMARKS if one.device is DeviceKind.CUDA and one.need is None]
    runs = defaultdict[str, list[dict[str, Any]]](list)
    for _ in range(RUNS):
        for row in _run([one.name for one in chosen]):
            runs[row["name"]].append(row)
    correct = [row["correct"] is not False and not row["error"] for rows in runs.values() for row in rows]
    figures.ratio("gpu_benchmarks_correct_ratio", sum(correct), len(correct), 1.0)
    digests = [{row["digest"] for row in rows} for rows in runs.values() if any(row["digest"] for row in rows)]
    same = all(len(found) == 1 for found in digests)
    figures.add("gpu_digests_same_in_all_runs", same, "true", same, f"n={len(digests)}")
    _planted(figures, random.Random(arguments.seed))
    figures.details["runs"] = dict(runs)
    device = device_named(torch.cuda.get_device_name())
    caption = f"Micro-benchmarks on one GPU in {RUNS} runs; spreads are interquartile ranges and standard deviations:"
    columns = ("micro-benchmark", "median", "spread of repeats", "spread of runs", "rate", "of the data sheet")
    figures.table(caption, columns, [_row(one, runs[one.name], device) for one in chosen])


def _run(names: Sequence[str]) -> list[dict[str, Any]]:
    """What `pharoah-agent benchmark` prints."""
    command = [sys.executable, "-m", "pharoah_provider.agent.cli", "benchmark", *names, "-o", "json"]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    found: list[dict[str, Any]] = json.loads(done.stdout)
    return found


def _row(benchmark: MicroBenchmark, rows: Sequence[dict[str, Any]], device: Device | None) -> tuple[str, ...]:
    seconds = [row["median_seconds"] for row in rows if row["median_seconds"]]
    if len(seconds) < 2:
        return (f"`{benchmark.name}`", rows[0]["error"] or "wrong answer", "", "", "", "")
    middle = median(seconds)
    between = stdev(map(math.log, seconds))
    rate, most = _rate(benchmark, middle, device)
    within = median(row["spread_ratio"] or 0.0 for row in rows)
    share = f"{rate / most:.0%}" if most else ""
    return (
        f"`{benchmark.name}`",
        f"{1000 * middle:.3f} ms",
        f"{within:.1%}",
        f"{between:.1%}",
        _with_unit(benchmark, rate),
        share,
    )


def _rate(benchmark: MicroBenchmark, seconds: float, device: Device | None) -> tuple[float, float]:
    """Operations or bytes a second, and the most of the data sheet; zeros where there is no such thing."""
    if benchmark.name.startswith("gemm"):
        # torch multiplies float32 without tensor cores unless a script asks for them
        most = device.flops.get(benchmark.dtype, 0.0) if device else 0.0
        return 2 * benchmark.size**3 / seconds, most
    if benchmark.name == "memory_cuda":  # each byte is read and written
        return 2 * benchmark.size / seconds, device.bytes_per_second if device else 0.0
    if benchmark.name in ("host_to_device_cuda", "device_to_host_cuda"):
        return benchmark.size / seconds, 0.0
    return 0.0, 0.0


def _with_unit(benchmark: MicroBenchmark, rate: float) -> str:
    if not rate:
        return ""
    return f"{rate / 1e12:.1f} TFLOP/s" if benchmark.name.startswith("gemm") else f"{rate / 1e9:.0f} GB/s"


def _planted(figures: Figures, chance: random.Random) -> None:
    """One bit flips in the GPU's memory: in a pattern, in a copy, and in one of many products."""
    found = sum(test(chance) for test in (_pattern, _copy, _product) for _ in range(PLANTED))
    figures.ratio("planted_gpu_errors_found_ratio", found, 3 * PLANTED, 1.0)
    healthy = (Patterns("cuda", GIBIBYTE), Copy("cuda", "cuda", GIBIBYTE), Reproduced("cuda", 1024, 8))
    for kernel in healthy:
        for _ in range(PLANTED):
            kernel()
    wrong = sum(not kernel.check().correct for kernel in healthy)
    figures.add("healthy_gpu_kernels_called_wrong", wrong, "0", wrong == 0)


def _pattern(chance: random.Random) -> bool:
    class Faulty(Patterns):
        def _write(self) -> None:
            super()._write()
            _flip_one(self._words, chance)

    kernel = Faulty("cuda", GIBIBYTE)
    kernel()
    return not kernel.check().correct


def _copy(chance: random.Random) -> bool:
    kernel = Copy("cpu", "cuda", 1 << 28)
    kernel()
    _flip_one(bits(kernel._target), chance)
    return not kernel.check().correct


def _product(chance: random.Random) -> bool:
    calls, wrong_call = 0, chance.randrange(8, 24)

    def product(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
        nonlocal calls
        result = torch.mm(left, right)
        if calls == wrong_call:
            _flip_one(result, chance)
        calls += 1
        return result

    kernel = Reproduced("cuda", 1024, 8, product)
    for _ in range(3):
        kernel()
    return not kernel.check().correct


def _flip_one(numbers: torch.Tensor, chance: random.Random) -> None:
    _flip(numbers, chance.randrange(numbers.numel()), chance.randrange(8 * numbers.element_size()))
