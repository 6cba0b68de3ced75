"""Micro-benchmarks: one resource each, in a child of the agent so that torch never enters the agent itself.

`python -m pharoah_benchmarks.probe` reads orders as JSON lines (`{"benchmark": "gemm", "repeats": 20}`) and answers
with the seconds of each repeat.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable

import torch

from pharoah_protocol.parent_process import end_with_parent

GEMM_SIZE = 640
COPY_BYTES = 64 << 20


def gemm() -> Callable[[], object]:
    """float32 matrix product that stays in cache: measures the core."""
    a, b = torch.ones(GEMM_SIZE, GEMM_SIZE), torch.ones(GEMM_SIZE, GEMM_SIZE)
    out = torch.empty(GEMM_SIZE, GEMM_SIZE)
    return lambda: torch.mm(a, b, out=out)


def memory() -> Callable[[], object]:
    """Copy of a buffer larger than a core's share of the cache: measures memory bandwidth."""
    source, target = torch.ones(COPY_BYTES // 4), torch.zeros(COPY_BYTES // 4)
    return lambda: target.copy_(source)


BENCHMARKS: dict[str, Callable[[], Callable[[], object]]] = {"gemm": gemm, "memory": memory}


def measure(benchmark: str, repeats: int, limit_seconds: float) -> list[float]:
    """Seconds of each repeat, after one that does not count; fewer when the limit is reached.

    Raises KeyError for a benchmark that does not exist.
    """
    run = BENCHMARKS[benchmark]()
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
    torch.set_num_threads(1)
    for line in sys.stdin:
        order = json.loads(line)
        try:
            answer = {
                "seconds": measure(order["benchmark"], order["repeats"], order["limit_seconds"]),
                "error": "",
            }
        except Exception as fault:  # noqa: BLE001 - a failing benchmark is a result
            answer = {"seconds": [], "error": f"{type(fault).__name__}: {fault}"}
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
