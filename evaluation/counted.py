"""What a dry run counts beside what torch's own counters see in a real step: operations and memory."""

from __future__ import annotations

import sys

from evaluation.figures import Figures
from evaluation.fitting import CASES
from evaluation.worker import Worker
from pharoah.cost.memory import peak
from pharoah.dryrun import dry_run
from pharoah_archetypes.kinds import kind_of

NOT_COUNTED = ("attention", "attention_backward", "recurrent", "recurrent_backward")
"""Kinds for which `FlopCounterMode` counts nothing on a CPU."""
CLOSE = 0.02
TIMEOUT_SECONDS = 120.0


def measure(figures: Figures, quick: bool) -> None:
    """Operations must be equal but for kernels that FlopCounterMode has no formula for; MemTracker's peak close."""
    families = list(CASES)[:: 6 if quick else 1]
    equal = close = 0
    with Worker({"OMP_NUM_THREADS": "1"}) as worker:
        for family in families:
            arguments = [family, "--batch-size", "4", "--width", "64", "--steps", "2"]
            cost = dry_run([sys.executable, "-m", "evaluation.train_zoo", *arguments], TIMEOUT_SECONDS).cost
            flops, tracked = worker.run("flops", arguments), worker.run("tracked", arguments)
            known = [row for row in cost.operations if kind_of(row.name) not in NOT_COUNTED]
            counted = sum(row.flops * row.times for row in known)
            most = peak(cost.memory).bytes
            equal += (same := counted == flops)
            close += (near := abs(most / tracked - 1) <= CLOSE)
            if not (same and near):
                print(
                    f"  {family:10} operations {cost.flops:.6g}, of known kernels {counted:.6g}, FlopCounterMode"
                    f" {flops:.6g}; memory {most:,}, MemTracker {tracked:,} ({most / tracked:.3f})",
                    flush=True,
                )
    figures.ratio("flops_equal_flop_counter_ratio", equal, len(families), 1.0)
    figures.ratio("memory_close_to_mem_tracker_ratio", close, len(families))
