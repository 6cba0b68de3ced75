"""Signals and facts of the GPU: the agent's own commands on an idle GPU, and beside a process that keeps it busy."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from evaluation.figures import Figures
from pharoah_provider.agent.facts.gpus import FACTS
from pharoah_provider.agent.signals import AGENT_SIGNALS, NotOnThisNode
from pharoah_provider.agent.signals._nvml import gpu_processes

HELD_BYTES = 8 << 30
LOAD_SECONDS = 5.0
"""How long the GPU works before its signals are read: the driver averages power over up to a second."""
READ_SECONDS = 5.0
"""How long the signals are read at full rate to see what that costs."""
MAX_CORE_RATIO = 0.02
"""What the whole agent may take of a core."""


def measure(figures: Figures, _: argparse.Namespace) -> None:
    """Read the signals of an idle and of a busy GPU."""
    names = [name for name in AGENT_SIGNALS.entries if name.startswith("gpu_")]
    before = gpu_processes()
    idle, reasons = _listing()
    with _load() as process:
        time.sleep(LOAD_SECONDS)
        busy = _listing()[0]
        users = gpu_processes() - before
    figures.ratio("gpu_signals_read_ratio", sum(name in idle for name in names), len(names))
    figures.add("gpu_processes_are_the_load", users == {process}, "true", users == {process})
    total = torch.cuda.get_device_properties(0).total_memory
    grown = (busy["gpu_memory_used_ratio"] - idle["gpu_memory_used_ratio"]) * total / HELD_BYTES
    figures.add("gpu_memory_grown_over_held_ratio", grown, "1 to 1.25", 1 <= grown <= 1.25)
    more_power = busy["gpu_power_watts"] / idle["gpu_power_watts"]
    figures.add("gpu_power_busy_over_idle_ratio", more_power, ">= 1.5", more_power >= 1.5)
    core = _core_ratio(names)
    figures.add("gpu_signals_core_ratio", core, f"<= {MAX_CORE_RATIO:g}", core <= MAX_CORE_RATIO)
    mine = len(gpu_processes() - before)
    figures.add("processes_on_gpu_from_reading", mine, "0", mine == 0)
    rows = [(f"`{name}`", _shown(idle.get(name)), _shown(busy.get(name)), reasons.get(name, "")) for name in names]
    figures.table("Signals of the GPU, idle and busy:", ("signal", "idle", "busy", "why it has no reading"), rows)
    facts = [(f"`{name}`", text) for name, text in FACTS.read().items()]
    figures.table("Facts of the GPU:", ("fact", "value"), facts)


def _listing() -> tuple[dict[str, float], dict[str, str]]:
    """Values of the first device by signal, and reasons of signals without one, as the agent prints them."""
    command = [sys.executable, "-m", "pharoah_provider.agent.cli", "signals", "-o", "json"]
    data: dict[str, Any] = json.loads(subprocess.check_output(command))
    values: dict[str, float] = {}
    for row in data["readings"]:
        values.setdefault(row["signal"], row["value"])
    return values, {row["signal"]: row["reason"] for row in data["absent"]}


@contextmanager
def _load() -> Iterator[int]:
    """A process that keeps the GPU busy; its id."""
    command = [sys.executable, "-m", "evaluation.gpu.load", str(HELD_BYTES)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout
            if process.stdout.readline() != "ready\n":
                raise SystemExit("evaluation gpu: the process that keeps the GPU busy has ended")
            yield process.pid
        finally:
            process.kill()


def _core_ratio(names: list[str]) -> float:
    """The share of a core that it takes to read each signal as often as the agent's buffer does."""
    signals = [AGENT_SIGNALS[name] for name in names]
    due, began, used = dict.fromkeys(names, 0.0), time.monotonic(), time.process_time()
    while (now := time.monotonic() - began) < READ_SECONDS:
        for signal in signals:
            if now >= due[signal.name]:
                due[signal.name] += signal.period_seconds
                _read(signal)
        time.sleep(max(0.0, min(due.values()) - (time.monotonic() - began)))
    return (time.process_time() - used) / (time.monotonic() - began)


def _read(signal: Any) -> None:
    try:
        list(signal.read())
    except NotOnThisNode:
        return


def _shown(value: float | None) -> str:
    return "-" if value is None else f"{value:.6g}"
