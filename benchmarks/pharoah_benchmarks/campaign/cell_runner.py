"""One cell, inside its own process: trains it and reports its result."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from pharoah_benchmarks.campaign.cell import MOST_LOSSES, Cell, CellResult
from pharoah_benchmarks.campaign.faults import Leak, start_cpu_stressor
from pharoah_benchmarks.campaign.ranks import RankEnd, on_ranks
from pharoah_benchmarks.context import device_model, effective_context
from pharoah_benchmarks.workloads import build
from pharoah_protocol.process_memory import resident_bytes
from pharoah_protocol.reports import RankWindows
from pharoah_protocol.vocabulary import DeviceKind, Fault, Outcome
from pharoah_protocol.windows import MEMORY_RATIO, STEP_RATIO, Window

CELL_WINDOW_SECONDS = 0.5
CELL_BASELINE_WINDOWS = 4
"""Shorter and fewer windows than a run has: a degraded cell lasts for seconds."""
WAITING_SHARE = 0.5
"""The part of a cell's time that a rank waits for another one in a collective, before the cell counts as hanging."""
_LOST_PEER = ("Connection closed by peer", "Connection reset by peer", "recvValue failed")
"""Errors of a rank because another one has failed (gloo)."""
_LONGEST_MESSAGE = 300
"""Characters of an error that are kept."""


@dataclass
class _Measured:
    """What is known of a cell so far; it stays when the cell fails later."""

    step_seconds: list[float] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)
    windows: list[Window] = field(default_factory=list)
    device: DeviceKind = DeviceKind.CPU
    device_model: str = ""


def run_trial(cell: Cell) -> CellResult:
    """Train one cell. Never raises: an error of the workload, or a setting that does not exist, is its outcome."""
    if cell.ranks == 1:
        return _run_rank(cell)
    return _of_ranks(
        cell,
        on_ranks(
            cell.ranks,
            cell.ordered_device,
            cell.limit_seconds * WAITING_SHARE,
            lambda: _run_rank(cell).to_json(),
            lambda text: CellResult.from_json(text).outcome is not Outcome.OK,
        ),
    )


def _of_ranks(cell: Cell, ends: list[RankEnd]) -> CellResult:
    """The result of the rank that failed first, and that of rank 0 when none did."""
    results = [(end.rank, _of_rank(cell, end)) for end in ends]
    failed = [(rank, result) for rank, result in results if result.outcome is not Outcome.OK]
    if not failed:
        return min(results, key=lambda one: one[0])[1]
    rank, cause = min(failed, key=lambda one: any(words in one[1].detail for words in _LOST_PEER))
    return replace(cause, detail=f"rank {rank}: {cause.detail}"[:_LONGEST_MESSAGE])


def _of_rank(cell: Cell, end: RankEnd) -> CellResult:
    if end.text:
        return CellResult.from_json(end.text)
    died = f"exit status {end.status}"
    return CellResult(cell=cell.id, outcome=Outcome.CRASH, detail=died, device=cell.ordered_device)


def _run_rank(cell: Cell) -> CellResult:
    """Train a cell as the only rank, or as one of several. Never raises."""
    measured = _Measured(device=cell.ordered_device)
    try:
        torch.manual_seed(cell.repeat)
        outcome, detail = _train(cell, measured)
    except MemoryError:
        outcome, detail = Outcome.MEMORY, "MemoryError"
    except RuntimeError as error:
        outcome = Outcome.MEMORY if is_out_of_memory(error) else Outcome.HANG if _waited(error) else Outcome.ERROR
        detail = _first_line(error)
    except Exception as error:  # noqa: BLE001 - whatever a workload raises is its outcome
        outcome, detail = Outcome.ERROR, f"{type(error).__name__}: {_first_line(error)}"
    return CellResult(cell=cell.id, outcome=outcome, detail=detail, context=effective_context(), **vars(measured))


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an allocator of torch raised this error."""
    text = str(error)
    return "out of memory" in text.lower() or "can't allocate memory" in text


def _waited(error: RuntimeError) -> bool:
    """Whether a collective has waited for another rank until its time was over."""
    return any(words in str(error) for words in ("Timed out waiting", "timed out"))


def _first_line(error: BaseException) -> str:
    return str(error).strip().partition("\n")[0][:_LONGEST_MESSAGE]


def _train(cell: Cell, measured: _Measured) -> tuple[Outcome, str]:
    step, model = build(cell.workload, cell.settings)
    measured.device, measured.device_model = _device(model)
    seconds = measured.step_seconds
    watcher = _Watcher(cell, measured.windows)
    began = time.perf_counter()
    try:
        while len(seconds) < cell.steps or time.perf_counter() - began < cell.seconds:
            before = time.perf_counter()
            loss = float(step())
            after = time.perf_counter()
            seconds.append(after - before)
            if not math.isfinite(loss):
                return Outcome.NAN, f"the result of step {len(seconds)} is {loss}"
            if len(measured.losses) < MOST_LOSSES:
                measured.losses.append(loss)
            watcher.step(after - began, after - before)
    finally:
        watcher.close()
    return Outcome.OK, ""


def _device(model: torch.nn.Module) -> tuple[DeviceKind, str]:
    """Kind and model of the device that the parameters are on. Raises ValueError for a kind that has no name here."""
    device = next(model.parameters()).device
    kind = DeviceKind(device.type)
    return kind, device_model() if kind is DeviceKind.CPU else torch.cuda.get_device_name(device)


class _Watcher:
    """Degrades a cell, and sees it as the provider would see a run: as windows of ratios."""

    def __init__(self, cell: Cell, seen: list[Window]) -> None:
        self._seen = seen
        self._windows = RankWindows(window_seconds=CELL_WINDOW_SECONDS, baseline_windows=CELL_BASELINE_WINDOWS)
        self._stressor: Any = None
        self._leak: Leak | None = None
        self._on = cell.degradation is not None
        if cell.degradation is not None and cell.degradation.kind is Fault.CPU_STRESSOR:
            d = cell.degradation
            self._stressor = start_cpu_stressor(d.start_seconds, d.ramp_seconds, d.strength, cell.limit_seconds)
        elif cell.degradation is not None and cell.degradation.kind is Fault.LEAK:
            self._leak = Leak(cell.degradation.start_seconds, cell.degradation.strength)

    def step(self, elapsed: float, step_seconds: float) -> None:
        """One step ended, `elapsed` seconds after the cell began."""
        if self._leak is not None:
            self._leak.grow(elapsed)
        if self._on:
            for levels in self._windows.add([int(step_seconds * 1e9)], resident_bytes()):
                step_ratio, memory_ratio = levels.ratios
                values = {STEP_RATIO: step_ratio, MEMORY_RATIO: memory_ratio}
                self._seen.append(Window(at_seconds=elapsed, values=values))

    def close(self) -> None:
        if self._stressor is not None:
            self._stressor.kill()
            self._stressor.wait()
