"""One micro-benchmark beside a job, as a child of the job's sidecar: modest, and only what may run there.

`python -m pharoah_benchmarks.guest_probe` reads one order as a JSON line (`MeasureOrder`), prints the answer as one
(`Answer`), and ends. It works at a low priority, and is what the kernel kills first when memory runs out.
"""

from __future__ import annotations

import os
import sys

from pharoah_benchmarks.micro import MICRO_BENCHMARKS, Answer, MeasureOrder
from pharoah_benchmarks.micro._answer_stream import answer_stream
from pharoah_benchmarks.micro._measure import measure
from pharoah_system.memory_group import be_killed_first
from pharoah_system.parent_process import end_with_parent

NICENESS = 10
"""Beside one busy thread on its core this process gets a tenth of the time: 110 against 1,024 parts (the weights of
nice values in kernel/sched/core.c). At 19 it would get a seventieth, and a measurement of a second take a minute."""


def check(line: str) -> MeasureOrder:
    """The order, if a sidecar may do it. Raises ValueError that names the field."""
    order = MeasureOrder.from_json(line)
    if order.benchmark not in MICRO_BENCHMARKS or not MICRO_BENCHMARKS[order.benchmark].suits_guests:
        raise ValueError(f"benchmark: {order.benchmark!r:.80} is not one that runs beside a job from its sidecar")
    if order.scratch_folder or order.remote_folder or order.peer:
        raise ValueError("order: neither folders nor partners are given to a sidecar")
    return order


def be_modest() -> None:
    """A low priority, and the first to go when memory runs out."""
    os.nice(NICENESS)
    be_killed_first()


def parse_answer(line: str) -> Answer:
    """What came of an order."""
    try:
        order = check(line)
        import torch  # takes seconds, and only for an order that is done

        torch.set_num_threads(1)
        return measure(order)
    except Exception as fault:  # noqa: BLE001 - a failing benchmark is a result
        return Answer(error=f"{type(fault).__name__}: {fault}")


def main() -> None:
    """Answer one order."""
    end_with_parent()
    be_modest()
    answers = answer_stream()
    answers.write(parse_answer(sys.stdin.readline()).to_json() + "\n")
    answers.flush()


if __name__ == "__main__":
    main()
