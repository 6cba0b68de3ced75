"""The worker that measures, a child of the agent, so that torch never enters the agent itself.

`python -m pharoah_benchmarks.micro` reads orders as JSON lines, `{"benchmark": "gemm", "repeats": 20,
"limit_seconds": 4}` (see `MeasureOrder` for the other fields), and answers each with the seconds of its repeats, with
a wrong answer, or with an error (`Answer`). An empty line is answered with an empty answer when the worker has started
and has made the inputs that it keeps.
"""

from __future__ import annotations

import sys

import torch

from pharoah_benchmarks.micro._answer_stream import answer_stream
from pharoah_benchmarks.micro._measure import KeptKernels, measure
from pharoah_benchmarks.micro._order import Answer, MeasureOrder
from pharoah_system.parent_process import end_with_parent


def main() -> None:
    end_with_parent()
    answers = answer_stream()
    # One thread: a micro-benchmark beside a job must not take more cores than the job leaves.
    torch.set_num_threads(1)
    kept = KeptKernels()
    for line in sys.stdin:
        try:
            if line.strip():
                answer = measure(MeasureOrder.from_json(line), kept=kept)
            else:
                kept.prepare()
                answer = Answer()
        except Exception as fault:  # noqa: BLE001 - a failing benchmark is a result
            answer = Answer(error=f"{type(fault).__name__}: {fault}")
        answers.write(answer.to_json() + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
