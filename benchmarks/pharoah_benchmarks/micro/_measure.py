"""The loop that measures: repeats until their time is over, with pauses where it may not work all the time."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

from pharoah_benchmarks.micro._kernel import CheckedKernel, Kernel
from pharoah_benchmarks.micro._order import Answer, MeasureOrder
from pharoah_benchmarks.micro._registry import MICRO_BENCHMARKS


class Timer(NamedTuple):
    """A clock and a way to wait; both in seconds."""

    now: Callable[[], float] = time.perf_counter
    sleep: Callable[[float], object] = time.sleep


def measure(order: MeasureOrder, timer: Timer | None = None) -> Answer:
    """Seconds of each repeat, after one that does not count; fewer when the time of the order is over.

    Raises RegistryError for a micro-benchmark that this node does not have, NotPossible for one that cannot run here,
    and whatever the kernel raises.
    """
    kernel = MICRO_BENCHMARKS[order.benchmark].build(order.place())
    try:
        seconds = _repeated(kernel, order, timer or Timer())
        check = kernel.check() if isinstance(kernel, CheckedKernel) else None
    finally:
        if isinstance(kernel, CheckedKernel):
            kernel.close()
    if check is None:
        return Answer(seconds=seconds)
    return Answer(seconds=seconds if check.correct else (), correct=check.correct, digest=check.digest)


def _repeated(kernel: Kernel, order: MeasureOrder, timer: Timer) -> tuple[float, ...]:
    """The seconds of the repeats. After each piece of work the process sleeps as long as the duty demands."""
    took = _one(kernel, timer)
    seconds: list[float] = []
    worked = 0.0
    while _goes_on(kernel, len(seconds) < order.repeats and worked < order.limit_seconds):
        if order.duty < 1:
            timer.sleep(took * (1 / order.duty - 1))
        took = _one(kernel, timer)
        seconds.append(took)
        worked += took
    return tuple(seconds)


def _goes_on(kernel: Kernel, wanted: bool) -> bool:
    return kernel.goes_on(wanted) if isinstance(kernel, CheckedKernel) else wanted


def _one(kernel: Kernel, timer: Timer) -> float:
    began = timer.now()
    kernel()
    return timer.now() - began
