"""What an agent costs its node: processor time and memory of the whole `pharoah-agent run`, connected to a provider.

Only the agent's own process counts. What it starts is counted where it is ordered: the child that reads the facts ends
before the agent connects, and the children for micro-benchmarks and cells start when the provider orders such work.
"""

from __future__ import annotations

import argparse
import os
import re
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from evaluation.figures import Figures
from evaluation.ingest.large_node import GPUS, exporter, large_node
from pharoah_provider.agent.signal_buffer import SignalBuffer
from pharoah_provider.agent.signals import AGENT_SIGNALS
from pharoah_provider.agent.telemetry import Telemetry
from tests.harness.site import Site, running_site

WARM_SECONDS, SPAN_SECONDS = 20.0, 90.0
"""The start is not what a day costs. The span has a minute of the clock, so that features are fed, and the facts."""
MAX_CPU_RATIO = 0.02
"""A share of one core."""
MAX_RESIDENT_BYTES = 80_000_000
LARGE_NODE_SECONDS = 600
"""Seconds of samples that a large node is read for."""
TICKS = os.sysconf("SC_CLK_TCK")


class Cost(NamedTuple):
    """What one process has used."""

    cpu_ratio: float
    """Processor time over the time that has passed."""
    resident_bytes: int
    """At the end."""
    seconds: float


def measure(figures: Figures, arguments: argparse.Namespace) -> None:
    """Measure the agent on this machine, with and without an exporter, and our part of the cost of a large node."""
    del arguments  # there is nothing to draw and nothing to shorten: a shorter span is no minute
    with tempfile.TemporaryDirectory() as folder, _site(Path(folder)) as site:
        _add(figures, "agent", _cost(site.pid("n1")), "signals of this machine")
        site.kill("n1")
        with exporter() as url:
            site.start_agent("n1", "--metrics-from", url)
            _add(figures, "agent_with_exporter", _cost(site.pid("n1")), f"and {GPUS} GPUs from an exporter")
            site.kill("n1")
    with tempfile.TemporaryDirectory() as folder, large_node(Path(folder)):
        _large_node(figures)


@contextmanager
def _site(folder: Path) -> Iterator[Site]:
    """A provider and one agent."""
    profile = {"n1": {"cpus": [min(os.sched_getaffinity(0))], "threads": 1}}
    with running_site(folder, profile) as site:
        yield site


def _add(figures: Figures, name: str, cost: Cost, what: str) -> None:
    span = f"{cost.seconds:.0f} s, {what}"
    figures.add(f"{name}_cpu_ratio", cost.cpu_ratio, f"<= {MAX_CPU_RATIO:g}", cost.cpu_ratio <= MAX_CPU_RATIO, span)
    figures.add(
        f"{name}_rss_bytes",
        cost.resident_bytes,
        f"<= {MAX_RESIDENT_BYTES / 1e6:g} MB",
        cost.resident_bytes <= MAX_RESIDENT_BYTES,
        span,
    )


def _cost(pid: int) -> Cost:
    """The cost of a process over SPAN_SECONDS, after WARM_SECONDS."""
    time.sleep(WARM_SECONDS)
    began, used = time.monotonic(), _cpu_seconds(pid)
    time.sleep(SPAN_SECONDS)
    seconds = time.monotonic() - began
    return Cost((_cpu_seconds(pid) - used) / seconds, _resident_bytes(pid), seconds)


def _cpu_seconds(pid: int) -> float:
    """User and system time of a process, without its children (proc_pid_stat(5))."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def _resident_bytes(pid: int) -> int:
    """VmRSS of a process (proc_pid_status(5))."""
    found = re.search(r"^VmRSS:\s+(\d+) kB$", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    if found is None:
        raise ProcessLookupError(f"process {pid} has ended")
    return 1024 * int(found[1])


def _large_node(figures: Figures) -> None:
    """Our part of reading a large server: a buffer that takes the samples of ten minutes, as fast as it can."""
    now = [float(int(time.time()))]
    buffer = SignalBuffer(Telemetry(lambda: now[0], AGENT_SIGNALS), lambda: now[0])
    began = time.process_time()
    for _ in range(LARGE_NODE_SECONDS):
        buffer.sample()
        now[0] += 1.0
    ratio = (time.process_time() - began) / LARGE_NODE_SECONDS
    series = sum(len(buffer.newest(device)) for device in buffer.devices())
    figures.add("large_node_cpu_ratio", ratio, f"<= {MAX_CPU_RATIO:g}", ratio <= MAX_CPU_RATIO,
                f"{LARGE_NODE_SECONDS} samples of {series} series, without GPUs")  # fmt: skip
    began = time.process_time()
    features = buffer.features()
    seconds = time.process_time() - began
    figures.add("features_seconds", seconds, interval=f"of {len(features)} series")
