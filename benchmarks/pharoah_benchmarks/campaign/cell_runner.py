"""One cell, inside its own process: train, and say what came of it."""

from __future__ import annotations

import math
import time
from typing import Any

import torch

from pharoah_benchmarks.campaign.cell import Cell, Outcome
from pharoah_benchmarks.campaign.faults import Leak, start_cpu_stressor
from pharoah_benchmarks.context import effective_context
from pharoah_benchmarks.workloads import build
from pharoah_protocol.process_memory import resident_bytes
from pharoah_protocol.reports import RankWindows
from pharoah_protocol.windows import MEMORY_RATIO, STEP_RATIO, Window

CELL_WINDOW_SECONDS = 0.5
CELL_BASELINE_WINDOWS = 4


def run_trial(cell: Cell) -> Outcome:
    """Train one cell. Never raises: what a workload does, or a setting that does not exist, is its outcome."""
    seconds: list[float] = []
    windows: list[Window] = []
    try:
        torch.manual_seed(cell.repeat)
        outcome, detail = _train(cell, seconds, windows)
    except MemoryError:
        outcome, detail = "memory", "MemoryError"
    except RuntimeError as error:
        first = str(error).strip().partition("\n")[0][:300]
        outcome, detail = ("memory" if is_out_of_memory(error) else "error"), first
    except Exception as error:  # noqa: BLE001 - whatever a workload raises is its outcome
        outcome, detail = "error", f"{type(error).__name__}: {str(error).partition(chr(10))[0][:300]}"
    return Outcome(cell.id, outcome, detail, seconds, windows, effective_context())


def is_out_of_memory(error: BaseException) -> bool:
    text = str(error)
    return "out of memory" in text.lower() or "can't allocate memory" in text


def _train(cell: Cell, seconds: list[float], windows: list[Window]) -> tuple[str, str]:
    step, _ = build(cell.workload, cell.settings)
    watcher = _Watcher(cell, windows)
    began = time.perf_counter()
    try:
        while len(seconds) < cell.steps or time.perf_counter() - began < cell.seconds:
            before = time.perf_counter()
            loss = float(step())
            after = time.perf_counter()
            seconds.append(after - before)
            if not math.isfinite(loss):
                return "nan", f"loss is {loss} at step {len(seconds)}"
            watcher.step(after - began, after - before)
    finally:
        watcher.close()
    return "ok", ""


class _Watcher:
    """Degrades a cell and sees it as the provider would see a run: as windows of ratios."""

    def __init__(self, cell: Cell, seen: list[Window]) -> None:
        self._seen = seen
        self._windows = RankWindows(window_seconds=CELL_WINDOW_SECONDS, baseline_windows=CELL_BASELINE_WINDOWS)
        self._stressor: Any = None
        self._leak: Leak | None = None
        self._on = cell.degradation is not None
        if cell.degradation is not None and cell.degradation.kind == "cpu_stressor":
            d = cell.degradation
            self._stressor = start_cpu_stressor(d.start_seconds, d.ramp_seconds, d.strength, cell.limit_seconds)
        elif cell.degradation is not None and cell.degradation.kind == "leak":
            self._leak = Leak(cell.degradation.start_seconds, cell.degradation.strength)

    def step(self, elapsed: float, took: float) -> None:
        if self._leak is not None:
            self._leak.grow(elapsed)
        if self._on:
            for levels in self._windows.add([int(took * 1e9)], resident_bytes()):
                step_ratio, memory_ratio = levels.ratios
                values = {STEP_RATIO: step_ratio, MEMORY_RATIO: memory_ratio}
                self._seen.append(Window(at_seconds=elapsed, values=values))

    def close(self) -> None:
        if self._stressor is not None:
            self._stressor.kill()
            self._stressor.wait()
