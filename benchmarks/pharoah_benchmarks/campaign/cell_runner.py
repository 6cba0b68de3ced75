"""One cell, inside its own process: trains it and reports its result."""

from __future__ import annotations

import errno
import math
import mmap
import os
import signal
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

import torch
from torch import distributed

from pharoah_benchmarks.campaign.cell import MAX_LOSSES, Cell, CellResult, Degradation
from pharoah_benchmarks.campaign.ranks import RankEnd, on_ranks
from pharoah_benchmarks.campaign.record import Record, Recorder
from pharoah_benchmarks.context import device_model, effective_context
from pharoah_benchmarks.faults import (
    FAULTS,
    NOTHING,
    Between,
    Effect,
    Fault,
    FaultError,
    Place,
    Schedule,
    inject,
    ready,
)
from pharoah_benchmarks.workloads import build
from pharoah_protocol import bounds
from pharoah_protocol.registry import RegistryError
from pharoah_protocol.vocabulary import NO_FAULT, DeviceKind, Outcome
from pharoah_system.text import sanitize_text

WAITING_SHARE = 0.5
"""The part of a cell's time that a rank waits for another one in a collective, before the cell counts as hanging."""
STEPPING_SHARE = 0.75
"""A cell that still makes steps after this part of its time ends there: how many steps fit is no failure of the job.
Only a cell whose steps stop, or never begin, is beyond its limit."""
_LOST_PEER = ("Connection closed by peer", "Connection reset by peer", "recvValue failed")
"""Errors of a rank because another one has failed (gloo)."""
_OUT_OF_MEMORY = (
    "out of memory",
    "can't allocate memory",
    "cannot allocate memory",
    "std::bad_alloc",
    "cublas_status_alloc_failed",
    "cudnn_status_alloc_failed",
)
"""Words of torch, the C library, the C++ library, cuBLAS and cuDNN when they get no memory; in lower case."""
_MAX_MESSAGE_LENGTH = 300
"""Characters of an error that are kept."""


@dataclass
class _Measured:
    """What is known of a cell so far; it stays when the cell fails later."""

    step_seconds: list[float] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)
    device: DeviceKind = DeviceKind.CPU
    device_model: str = ""


class _Together:
    """What the ranks of a cell share. It is made before they are forked."""

    def __init__(self) -> None:
        self.between: Between | None = None
        self._last = mmap.mmap(-1, 8)
        """The number of the last step; zero while the cell goes on."""
        self._stepped = mmap.mmap(-1, 8)
        """When a rank made a step last, steady nanoseconds; zero before the first."""
        self._began = time.monotonic()

    def note_step(self) -> None:
        """A rank has made a step."""
        self._stepped[:] = time.monotonic_ns().to_bytes(8, "little")

    @property
    def seconds_without_a_step(self) -> float:
        """How long no rank has made a step."""
        stepped = int.from_bytes(self._stepped[:], "little") / 1e9
        return time.monotonic() - (stepped or self._began)

    def have_ended(self, cell: Cell, steps: int, elapsed_seconds: float) -> bool:
        """Whether a rank that has done so many steps is done.

        Ranks that stopped by their own clocks would wait for each other in vain. So rank 0 decides, one step before the
        last one: the others cannot have finished that one, because a step ends with all ranks.
        """
        stepping = steps > 0 and not cell.seconds  # a cell that trains for a time has to train for all of it
        late = stepping and time.monotonic() - self._began >= cell.limit_seconds * STEPPING_SHARE
        if cell.ranks == 1:
            return late or (steps >= cell.steps and elapsed_seconds >= cell.seconds)
        last = int.from_bytes(self._last[:], "little")
        enough = steps + 1 >= cell.steps and elapsed_seconds >= cell.seconds
        if not last and distributed.get_rank() == 0 and (late or enough):
            last = steps + 1
            self._last[:] = last.to_bytes(8, "little")
        return 0 < last <= steps


def run_trial(cell: Cell, record: Record | None = None) -> CellResult:
    """Train one cell. Never raises: an error of the workload, or a setting that does not exist, is its outcome.

    `record`: of the caller, which outlives this process; without one, what was recorded is in the result.
    """
    if record is None:
        with Record() as own:
            return own.add_to(run_trial(cell, own))
    together = _Together()
    if cell.ranks == 1:
        return _run_rank(cell, record, together)
    between = None
    try:
        between = together.between = _between_ranks(cell)
        ends = on_ranks(
            cell.ranks,
            cell.ordered_device,
            _wait_seconds(cell),
            lambda: _run_rank(cell, record, together).to_json(),
            lambda text: read_result(cell, text).outcome is not Outcome.OK,
            lambda error: _report_failure(cell, error).to_json(),
            *([between.enter] if between else []),
        )
    except (FaultError, RegistryError) as error:
        return CellResult(cell=cell.id, outcome=Outcome.ERROR, detail=_name(error), device=cell.ordered_device)
    finally:
        if between is not None:
            between.end()
    return _merge_ranks(cell, ends, together.seconds_without_a_step)


def _between_ranks(cell: Cell) -> Between | None:
    """What the fault of a cell puts between its ranks. Raises FaultError and RegistryError."""
    if cell.degradation is None or cell.degradation.fault == NO_FAULT:
        return None
    begin = FAULTS[cell.degradation.fault].between
    return begin(cell.ranks, cell.degradation.rank) if begin else None


def read_result(cell: Cell, text: str) -> CellResult:
    """The result that a process of a cell left. Never raises: a script can write anything into it."""
    try:
        return replace(CellResult.from_json(text), cell=cell.id)
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        detail = sanitize_text(f"its result cannot be read: {error}", _MAX_MESSAGE_LENGTH)
        return CellResult(cell=cell.id, outcome=Outcome.CRASH, detail=detail, device=cell.ordered_device)


def _merge_ranks(cell: Cell, ends: list[RankEnd], waited: float) -> CellResult:
    """The result of the rank that failed first, and that of rank 0 when none did."""
    results = [(end.rank, _report_rank(cell, end, waited)) for end in ends]
    failed = [(rank, result) for rank, result in results if result.outcome is not Outcome.OK]
    if not failed:
        return min(results, key=lambda one: one[0])[1]
    rank, cause = min(failed, key=lambda one: any(words in one[1].detail for words in _LOST_PEER))
    return replace(cause, detail=f"rank {rank}: {cause.detail}"[:_MAX_MESSAGE_LENGTH])


def _report_rank(cell: Cell, end: RankEnd, waited: float) -> CellResult:
    """The result of a rank. `waited`: seconds without a step when the ranks had ended."""
    if end.text:
        return read_result(cell, end.text)
    died, outcome = f"exit status {end.status}", Outcome.CRASH
    if end.status == -signal.SIGABRT and cell.ordered_device is DeviceKind.CUDA and waited >= _wait_seconds(cell):
        # NCCL's watchdog ends a process whose collective has waited for its whole time (ProcessGroupNCCL).
        died, outcome = f"{died} after {waited:.0f} s without a step", Outcome.HANG
    return CellResult(cell=cell.id, outcome=outcome, detail=died, device=cell.ordered_device)


def _wait_seconds(cell: Cell) -> float:
    return cell.limit_seconds * WAITING_SHARE


def _report_failure(cell: Cell, error: Exception) -> CellResult:
    """The result of a rank that could not meet the others."""
    outcome, detail = _outcome_of(error)
    return CellResult(cell=cell.id, outcome=outcome, detail=detail, device=cell.ordered_device)


def _run_rank(cell: Cell, record: Record, together: _Together) -> CellResult:
    """Train a cell as the only rank, or as one of several. Never raises."""
    measured = _Measured(device=cell.ordered_device)
    try:
        torch.manual_seed(cell.repeat)
        outcome, detail = _train(cell, measured, record, together)
    except Exception as error:  # noqa: BLE001 - whatever a workload raises is its outcome
        outcome, detail = _outcome_of(error)
    return CellResult(cell=cell.id, outcome=outcome, detail=detail, context=effective_context(), **vars(measured))


def _outcome_of(error: Exception) -> tuple[Outcome, str]:
    """The outcome of a cell that an exception has ended, and its detail."""
    if isinstance(error, MemoryError):
        return Outcome.MEMORY, "MemoryError"
    if isinstance(error, RuntimeError):
        outcome = Outcome.MEMORY if is_out_of_memory(error) else Outcome.HANG if _has_waited(error) else Outcome.ERROR
        return outcome, _first_line(error)
    return Outcome.MEMORY if _had_no_memory(error) else Outcome.ERROR, _name(error)


def is_out_of_memory(error: BaseException) -> bool:
    """Whether torch, or a library below it, raised this error because it got no memory."""
    text = str(error).lower()
    return any(words in text for words in _OUT_OF_MEMORY)


def _had_no_memory(error: Exception) -> bool:
    """Whether the kernel had no memory for a call, such as the fork of a data loader's worker."""
    return isinstance(error, OSError) and error.errno == errno.ENOMEM


def _has_waited(error: RuntimeError) -> bool:
    """Whether a collective has waited for another rank until its time was over."""
    return any(words in str(error) for words in ("Timed out waiting", "timed out"))


def _first_line(error: BaseException) -> str:
    return str(error).strip().partition("\n")[0][:_MAX_MESSAGE_LENGTH]


def _name(error: BaseException) -> str:
    return f"{type(error).__name__}: {_first_line(error)}"


def _train(cell: Cell, measured: _Measured, record: Record, together: _Together) -> tuple[Outcome, str]:
    step, model = build(cell.workload, cell.settings)
    measured.device, measured.device_model = _device(model)
    steps = 0
    with _degrade(cell, model, record, together.between) as (effect, recorder, began):
        while not together.have_ended(cell, steps, time.monotonic() - began):
            before = time.perf_counter()
            effect.before_step()
            loss = float(step())
            effect.after_step()
            seconds = time.perf_counter() - before
            steps += 1
            together.note_step()
            if steps <= bounds.MAX_DURATIONS:  # a result with more would be refused
                measured.step_seconds.append(seconds)
            if recorder is not None:
                recorder.step(seconds, loss)
            if not math.isfinite(loss):
                return Outcome.NAN, f"the result of step {steps} is {loss}"
            if len(measured.losses) < MAX_LOSSES:
                measured.losses.append(loss)
    return Outcome.OK, ""


class _Degraded(NamedTuple):
    effect: Effect
    recorder: Recorder | None
    """None on ranks that record nothing."""
    began: float
    """When the cell began to train, on the clock of `time.monotonic`."""


@contextmanager
def _degrade(cell: Cell, model: torch.nn.Module, record: Record, between: Between | None) -> Iterator[_Degraded]:
    """The fault of a cell on this rank, while the block lasts. Raises FaultError and RegistryError.

    A process that the fault needs beside the rank is there before the cell begins, so that its start is no part of the
    baseline, and all ranks begin together."""
    what = cell.degradation
    if what is None:
        yield _Degraded(NOTHING, None, time.monotonic())
        return
    rank = distributed.get_rank() if cell.ranks > 1 else 0
    fault = _fault_on(cell, what, rank)
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(ignore_cleanup_errors=True))
        beside = stack.enter_context(ready(fault)) if fault else None
        if cell.ranks > 1:
            distributed.barrier()
        place = _place(cell, what, Path(folder), model)
        effect, began = NOTHING, place.schedule.began
        if fault:
            effect = stack.enter_context(inject(fault, place, beside))
            if between is not None:
                between.begin(place.schedule)
        recorder = Recorder(record, place.folder, began, what.onset_seconds) if rank == 0 else None
        yield _Degraded(effect, recorder, began)


def _fault_on(cell: Cell, what: Degradation, rank: int) -> Fault | None:
    """The fault that acts on a rank, if one does. Raises FaultError and RegistryError."""
    if what.fault == NO_FAULT or rank != what.rank:
        return None
    fault = FAULTS[what.fault]
    if lacking := fault.lacks(cell.ordered_device, cell.ranks):
        raise FaultError(lacking)
    return fault


def _place(cell: Cell, what: Degradation, folder: Path, model: torch.nn.Module) -> Place:
    """This rank, which begins to train now."""
    return Place(
        schedule=Schedule(
            dose=what.dose, onset_seconds=what.onset_seconds, ramp_seconds=what.ramp_seconds, began=time.monotonic()
        ),
        pid=os.getpid(),
        folder=folder,
        limit_seconds=cell.limit_seconds,
        seed=cell.repeat,
        model=model,
    )


def _device(model: torch.nn.Module) -> tuple[DeviceKind, str]:
    """Kind and model of the device that the parameters are on. Raises ValueError for a kind that has no name here."""
    device = next(model.parameters()).device
    kind = DeviceKind(device.type)
    return kind, device_model() if kind is DeviceKind.CPU else torch.cuda.get_device_name(device)
