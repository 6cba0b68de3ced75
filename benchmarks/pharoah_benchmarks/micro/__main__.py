"""The worker that measures, a child of the agent, so that torch never enters the agent itself.

`python -m pharoah_benchmarks.micro` reads orders as JSON lines, `{"benchmark": "gemm", "repeats": 20,
"limit_seconds": 4}`, and answers each with the seconds of its repeats or with an error.
"""

from __future__ import annotations

import json
import sys
import time

import torch

from pharoah_benchmarks.micro import MICRO_BENCHMARKS
from pharoah_protocol.parent_process import end_with_parent


def measure(name: str, repeats: int, limit_seconds: float) -> list[float]:
    """Seconds of each repeat, after one that does not count; fewer when the limit is reached.

    Raises RegistryError for a micro-benchmark that this node does not have, and whatever the kernel raises.
    """
    run = MICRO_BENCHMARKS[name].build()
    run()
    seconds: list[float] = []
    deadline = time.perf_counter() + limit_seconds
    while len(seconds) < repeats and time.perf_counter() < deadline:
        began = time.perf_counter()
        run()
        seconds.append(time.perf_counter() - began)
    return seconds


def main() -> None:
    end_with_parent()
    # One thread: a micro-benchmark beside a job must not take more cores than the job leaves.
    torch.set_num_threads(1)
    for line in sys.stdin:
        order = json.loads(line)
        try:
            seconds = measure(order["benchmark"], order["repeats"], order["limit_seconds"])
            answer = {"seconds": seconds, "error": ""}
        except Exception as fault:  # noqa: BLE001 - a failing benchmark is a result
            answer = {"seconds": [], "error": f"{type(fault).__name__}: {fault}"}
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
