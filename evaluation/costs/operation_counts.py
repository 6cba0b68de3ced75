"""Operations and memory as a dry run counts them, beside torch's own counters in a real step."""

from __future__ import annotations

import sys

from torch.utils.flop_counter import flop_registry

from evaluation.costs.memory_fit import CASES
from evaluation.figures import Figures
from evaluation.models.training_worker import Worker
from pharoah.cost.memory import peak
from pharoah.dryrun import dry_run

SAME = 0.001
TIMEOUT_SECONDS = 120.0


def measure(figures: Figures, quick: bool) -> None:
    """Operations are compared for kernels that `FlopCounterMode` has a formula for, memory where `MemTracker` runs."""
    families = list(CASES)[:: 6 if quick else 1]
    formulas = set(map(str, flop_registry))
    equal, ratios = 0, []
    with Worker({"OMP_NUM_THREADS": "1"}) as worker:
        for family in families:
            arguments = [family, "--batch-size", "4", "--width", "64", "--steps", "2"]
            cost = dry_run([sys.executable, "-m", "evaluation.scripts.train_zoo", *arguments], TIMEOUT_SECONDS).cost
            flops, tracked = worker.run("flops", arguments), worker.run("tracked", arguments)
            counted = sum(row.flops * row.times for row in cost.operations if row.name in formulas)
            equal += counted == flops
            if isinstance(tracked, int):
                ratios.append(peak(cost.memory, tensors_only=True).bytes / tracked)
                if abs(ratios[-1] - 1) > SAME:
                    print(f"  {family}: {ratios[-1]:.4f} of MemTracker's {tracked:,} bytes", flush=True)
            else:
                print(f"  {family}: MemTracker does not run: {tracked.partition('.')[0]}", flush=True)
            if cost.flops != counted:
                print(f"  {family}: {cost.flops - counted:.4g} of {cost.flops:.4g} operations FlopCounterMode lacks")
    worst = max(ratios, key=lambda ratio: abs(ratio - 1))
    figures.ratio("flops_equal_flop_counter_ratio", equal, len(families), 1.0)
    figures.add("memory_over_mem_tracker_worst", worst, f"equal or explained, n={len(ratios)}")
