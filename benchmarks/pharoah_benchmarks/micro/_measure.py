"""The loop that measures: repeats until their time is over, with pauses where it may not work all the time."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from statistics import median
from typing import NamedTuple

from pharoah_benchmarks.micro._benchmark import MicroBenchmark
from pharoah_benchmarks.micro._kernel import CheckedKernel, Kernel
from pharoah_benchmarks.micro._order import Answer, MeasureOrder
from pharoah_benchmarks.micro._place import Place
from pharoah_benchmarks.micro._registry import MICRO_BENCHMARKS
from pharoah_protocol.answer_digests import join_digests
from pharoah_protocol.vocabulary import DeviceKind

BURST_SECONDS = 0.1
"""How long it works at a stretch where it may not work all the time. A scheduler lets a process that wakes up have its
first time slice at once (3 ms, sched(7)): only longer work meets what else runs on the core, as a job does."""


class Timer(NamedTuple):
    """A clock and a way to wait; both in seconds."""

    now: Callable[[], float] = time.perf_counter
    sleep: Callable[[float], object] = time.sleep


class KeptKernels:
    """The kernels that a process keeps from one order to the next (`MicroBenchmark.keeps_inputs`)."""

    def __init__(self) -> None:
        self._kernels: dict[str, Kernel] = {}

    def prepare(self) -> None:
        """Make all of them, and run each once, because memory is first used in the first run."""
        for benchmark in MICRO_BENCHMARKS.entries.values():
            if benchmark.keeps_inputs and benchmark.name not in self._kernels:
                self.get_kernel(benchmark, Place())()

    def get_kernel(self, benchmark: MicroBenchmark, place: Place) -> Kernel:
        """The kernel that was kept, or a new one."""
        if benchmark.name in self._kernels:
            return self._kernels[benchmark.name]
        kernel = benchmark.build(place)
        if benchmark.keeps_inputs:
            self._kernels[benchmark.name] = kernel
        return kernel


def measure(order: MeasureOrder, timer: Timer | None = None, kept: KeptKernels | None = None) -> Answer:
    """Seconds of each repeat, after one that does not count; fewer when the time of the order is over.

    On a node with several GPUs each of them is measured, for an equal share of the time. A node is as its worst GPU:
    one that gives a wrong answer, or else the slowest one.

    Raises RegistryError for a micro-benchmark that this node does not have, NotPossible for one that cannot run here,
    and whatever the kernel raises.
    """
    benchmark, answers = MICRO_BENCHMARKS[order.benchmark], list[Answer]()
    devices = _devices(benchmark, order)
    part = replace(order, limit_seconds=order.limit_seconds / len(devices))
    for device in devices:
        with device:
            answers.append(_measure(benchmark, part, timer or Timer(), kept or KeptKernels()))
    return _worst(answers)


def _devices(benchmark: MicroBenchmark, order: MeasureOrder) -> Sequence[AbstractContextManager[object]]:
    """A context for each GPU that this process sees, in which it is the current one; one context for the CPU. With a
    partner, each process has one GPU."""
    if benchmark.device is not DeviceKind.CUDA or order.peer is not None:
        return [nullcontext()]
    import torch

    return [torch.cuda.device(number) for number in range(torch.cuda.device_count())] or [nullcontext()]


def _measure(benchmark: MicroBenchmark, order: MeasureOrder, timer: Timer, kept: KeptKernels) -> Answer:
    """The answer of the current device."""
    kernel = kept.get_kernel(benchmark, order.place())
    try:
        seconds = _repeat(kernel, order, timer)
        check = kernel.check() if isinstance(kernel, CheckedKernel) else None
    finally:
        if isinstance(kernel, CheckedKernel):
            kernel.close()
    if check is None:
        return Answer(seconds=seconds)
    return Answer(seconds=seconds if check.correct else (), correct=check.correct, digest=check.digest)


def _worst(answers: Sequence[Answer]) -> Answer:
    """One answer for the node. GPUs that have computed different numbers give a digest that no other node has."""
    if (wrong := next((answer for answer in answers if answer.correct is False), None)) is not None:
        return wrong
    slowest = max(answers, key=lambda answer: median(answer.seconds))
    return replace(slowest, digest=join_digests([answer.digest for answer in answers]))


def _repeat(kernel: Kernel, order: MeasureOrder, timer: Timer) -> tuple[float, ...]:
    """The seconds of the repeats. After each burst of work the process sleeps as long as the duty demands; also after
    the last one, because another benchmark may follow."""
    burst = _one(kernel, timer)
    seconds: list[float] = []
    worked = 0.0
    while _goes_on(kernel, len(seconds) < order.repeats and worked < order.limit_seconds):
        if burst >= BURST_SECONDS:
            burst = _rest(burst, order.duty, timer)
        took = _one(kernel, timer)
        seconds.append(took)
        worked, burst = worked + took, burst + took
    _rest(burst, order.duty, timer)
    return tuple(seconds)


def _rest(worked: float, duty: float, timer: Timer) -> float:
    """Sleep for what was worked; the work that is left to sleep for."""
    if duty < 1:
        timer.sleep(worked * (1 / duty - 1))
    return 0.0


def _goes_on(kernel: Kernel, wanted: bool) -> bool:
    return kernel.goes_on(wanted) if isinstance(kernel, CheckedKernel) else wanted


def _one(kernel: Kernel, timer: Timer) -> float:
    began = timer.now()
    kernel()
    return timer.now() - began
