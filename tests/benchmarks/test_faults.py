"""The catalogue of faults, each in a real cell with real ranks."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any, Protocol

import psutil
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pharoah_benchmarks.campaign.cell import Cell, CellResult, Degradation
from pharoah_benchmarks.faults import (
    FAULTS,
    Dose,
    Effect,
    Fault,
    FaultError,
    Place,
    Schedule,
    beside_command,
    inject,
    name_now,
    ready,
)
from pharoah_benchmarks.micro import Resource
from pharoah_protocol.telemetry_samples import CPU_RATIO, DISK_FREE_RATIO, RESIDENT_BYTES, STEP_SECONDS
from pharoah_protocol.vocabulary import Outcome
from pharoah_system.process_family import lives
from tests.harness.torch_server import TorchServer
from tests.harness.until import wait_until

ONSET_SECONDS = 1.6
RUN = """
import sys
from pharoah_benchmarks.campaign.cell import Cell
from pharoah_benchmarks.campaign.fork_server import ForkServer
server = ForkServer(0)
for text in sys.argv[1:]:
    print(server.run(Cell.from_json(text)).to_json())
"""
seconds = st.floats(0, 100)


@pytest.fixture(scope="module")
def server() -> Iterator[TorchServer]:
    with TorchServer() as server:
        yield server


def degraded(name: str, dose: float, limit_seconds: float = 40.0, **options: Any) -> Cell:
    """A cell of some seconds with a fault; with two ranks where the fault needs them."""
    ranks = {"ranks": 2, "strategy": "ddp"} if name in FAULTS and FAULTS[name].least_ranks > 1 else {}
    what = Degradation(fault=name, dose=dose, onset_seconds=ONSET_SECONDS, rank=1 if ranks else 0, **options)
    settings = {"width": 64, "batch": 16, **ranks}
    return Cell(name, "mlp", settings, seconds=4.2, limit_seconds=limit_seconds, degradation=what)


def result_of(server: TorchServer, cell: Cell) -> CellResult:
    return CellResult.from_json(server.run_code(RUN, cell.to_json()).decode())


def around(result: CellResult, name: str) -> tuple[list[float], list[float]]:
    """The values of a signal before the onset, and after it."""
    before = [sample.values[name] for sample in result.telemetry if sample.at_seconds < 0]
    return before, [sample.values[name] for sample in result.telemetry if sample.at_seconds >= 0.5]


def is_slower(result: CellResult, least_seconds: float) -> bool:
    """Whether steps take so much longer from the onset on."""
    before, after = around(result, STEP_SECONDS)
    return result.outcome is Outcome.OK and median(after) - median(before) > least_seconds


def growth(result: CellResult) -> float:
    before, after = around(result, RESIDENT_BYTES)
    return max(after) - median(before)


EFFECTS: dict[str, tuple[float, Callable[[CellResult], bool]]] = {
    "allocator_fragmentation": (160e6, lambda result: growth(result) > 30e6),
    "bit_flip": (1, lambda result: result.outcome is Outcome.NAN),
    "disk_full": (100e6, lambda result: result.detail.startswith("OSError: [Errno 28]")),
    "host_leak": (60e6, lambda result: growth(result) > 60e6),
    "loader_stall": (0.2, lambda result: is_slower(result, 0.1)),
    "nan": (0.0, lambda result: result.outcome is Outcome.NAN),
    "packets_delayed": (0.1, lambda result: is_slower(result, 0.1)),
    "rank_delay": (0.2, lambda result: is_slower(result, 0.1)),
    "rank_killed": (9, lambda result: result.detail == "rank 1: exit status -9"),
    "rank_stopped": (600.0, lambda result: result.outcome is Outcome.HANG),
}
"""Fault to a dose, and what a cell with it shows. The faults that compete for a core are tested below: what they do to
a cell depends on what else this machine does."""


@pytest.mark.parametrize("name", EFFECTS)
def test_a_fault_does_to_a_real_cell_what_it_says(name: str, server: TorchServer) -> None:
    dose, is_visible = EFFECTS[name]
    result = result_of(server, degraded(name, dose, 12.0 if name == "rank_stopped" else 40.0))
    if result.detail.startswith("FaultError: it needs "):
        pytest.skip(result.detail)
    assert is_visible(result), (result.outcome, result.detail, result.telemetry)
    assert result.began_at > time.time() - 60
    times = [sample.at_seconds for sample in result.telemetry]
    assert times == sorted(times) and times[0] < 0, "telemetry begins before the onset, also of a cell that died"


def test_a_disk_that_fills_up_is_seen_before_it_is_full(server: TorchServer) -> None:
    result = result_of(server, degraded("disk_full", 12e6))
    if result.detail.startswith("FaultError: it needs "):
        pytest.skip(result.detail)
    before, after = around(result, DISK_FREE_RATIO)
    assert result.outcome is Outcome.OK
    assert min(before) > 0.9 and after == sorted(after, reverse=True) and 0.3 < after[-1] < 0.8


def test_a_control_run_has_telemetry_and_no_fault(server: TorchServer) -> None:
    result = result_of(server, degraded("none", 0.0))
    before, after = around(result, CPU_RATIO)
    assert result.outcome is Outcome.OK and growth(result) < 30e6
    assert before and after and all(0 <= ratio < 8 for ratio in (*before, *after))


@pytest.mark.parametrize(
    ("cell", "detail"),
    [
        (degraded("quota_low", 1.0), "RegistryError: 'quota_low' is not one of: allocator_fragmentation"),
        (degraded("device_leak", 1e6), "FaultError: it needs a GPU"),
    ],
)
def test_a_fault_that_a_node_does_not_have_is_an_error(cell: Cell, detail: str, server: TorchServer) -> None:
    result = result_of(server, cell)
    assert (result.outcome, result.detail[: len(detail)]) == (Outcome.ERROR, detail)


def place_in(folder: Path, dose: float, ramp_seconds: float = 0.0) -> Place:
    """This process as the rank of a cell that begins now, with a fault from the first moment on."""
    schedule = Schedule(dose=dose, onset_seconds=0.0, ramp_seconds=ramp_seconds, began=time.monotonic())
    return Place(schedule=schedule, pid=os.getpid(), folder=folder, limit_seconds=60.0)


class Start(Protocol):
    def __call__(self, name: str, dose: float, ramp_seconds: float = 0.0) -> psutil.Process: ...


@pytest.fixture
def beside(tmp_path: Path) -> Iterator[Start]:
    """Starts the process that a fault runs beside a cell."""
    with ExitStack() as stack:

        def start(name: str, dose: float, ramp_seconds: float = 0.0) -> psutil.Process:
            command = beside_command(FAULTS[name], place_in(tmp_path, dose, ramp_seconds))
            process = stack.enter_context(subprocess.Popen(command))
            stack.callback(process.kill)
            return psutil.Process(process.pid)

        yield start


def test_a_cpu_stressor_takes_no_more_than_its_share(beside: Start) -> None:
    process, share = beside("cpu_share", 0.3), 0.3
    before = used_by(until_used(process, 0.5))  # its start takes time, too
    began = time.monotonic()
    taken = used_by(until_used(process, before + 0.4)) - before
    assert taken < share * (time.monotonic() - began) + 0.06, "a debt of 20 ms, and a tick of the kernel at each end"


def test_a_cpu_stressor_that_wants_a_whole_core_in_the_end_waits_at_the_beginning_of_its_ramp(beside: Start) -> None:
    process = beside("cpu_share", 1.0, ramp_seconds=3600.0)
    wait_until(lambda: process.num_ctx_switches().voluntary > 200, "a process that gives its core away again and again")


def used_by(process: psutil.Process) -> float:
    return float(sum(process.cpu_times()[:2]))


def until_used(process: psutil.Process, seconds: float) -> psutil.Process:
    while used_by(process) < seconds:
        time.sleep(0.01)
    return process


def test_a_fault_whose_process_fails_was_not_in_force(tmp_path: Path) -> None:
    fault, place = FAULTS["disk_slow"], place_in(tmp_path / "not there", 8.0)
    with (
        pytest.raises(FaultError, match="the process of disk_slow has ended with status 1"),
        ready(fault) as process,
        inject(fault, place, process),
    ):
        assert process is not None
        process.wait()


def test_a_fault_whose_process_has_done_its_work_was_in_force(tmp_path: Path) -> None:
    stopped = subprocess.Popen(["/bin/sleep", "600"])
    place = replace(place_in(tmp_path, 9), pid=stopped.pid)
    with stopped, ready(FAULTS["rank_killed"]) as process, inject(FAULTS["rank_killed"], place, process):
        assert process is not None and process.wait() == 0
        assert stopped.wait() == -9


def test_a_cell_without_the_process_of_its_fault_is_no_degraded_cell(server: TorchServer) -> None:
    cell = degraded("cpu_share", 1.0)
    result = CellResult.from_json(server.run_code(f"import sys; sys.executable = '/bin/false'\n{RUN}", cell.to_json()))
    detail = "FaultError: the process of cpu_share has ended with status 1 before it was ready"
    assert (result.outcome, result.detail, result.began_at) == (Outcome.ERROR, detail, 0.0)


WORKER = """
import os, signal, sys, time
from pathlib import Path
from pharoah_benchmarks.faults import FAULTS, Place, Schedule
from pharoah_system.process_family import children

def stalled(dose):
    schedule = Schedule(dose=dose, onset_seconds=0.0, ramp_seconds=0.0, began=time.monotonic())
    return FAULTS["loader_stall"].inside(
        Place(schedule=schedule, pid=os.getpid(), folder=Path("/"), limit_seconds=60.0))
"""
KILLED_RANK = """
if (rank := os.fork()) == 0:
    effect = stalled(600.0)
    print(*children(os.getpid()), flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
os.waitpid(rank, 0)
"""


def test_the_worker_of_a_stalled_loader_ends_with_its_rank(server: TorchServer) -> None:
    worker = int(server.run_code(WORKER + KILLED_RANK))
    wait_until(lambda: not lives(worker), "the worker to end, which sleeps for ten minutes")


def test_a_stalled_loader_does_not_depend_on_how_a_script_starts_processes(server: TorchServer) -> None:
    code = "import multiprocessing; multiprocessing.set_start_method('spawn'); stalled(0.01).before_step(); print('ok')"
    assert server.run_code(WORKER + code) == b"ok\n"


def test_memory_is_copied_on_the_last_core(beside: Start) -> None:
    process = beside("memory_bandwidth", 100.0)
    last = max(os.sched_getaffinity(0))
    until_used(process, 0.5)
    assert process.cpu_affinity() == [last] and process.memory_info().rss > 100e6


def test_a_busy_disk_gets_files_that_do_not_grow(beside: Start, tmp_path: Path) -> None:
    began = time.monotonic()
    process = beside("disk_slow", 8.0)
    while process.io_counters().write_bytes < 12e6:
        time.sleep(0.02)
    assert process.io_counters().write_bytes < 8e6 * (time.monotonic() - began) + 8 * (2 << 20)
    files = list(tmp_path.iterdir())
    assert len(files) == 8 and all(file.stat().st_size <= 8 << 20 for file in files)


@given(onset=seconds, ramp=seconds, dose=st.floats(0.01, 1e6), now=seconds)
def test_the_amount_of_a_fault_is_the_integral_of_its_dose(onset: float, ramp: float, dose: float, now: float) -> None:
    schedule = Schedule(dose=dose, onset_seconds=onset, ramp_seconds=ramp, began=10.0)
    points = [10.0 + now * (at + 0.5) / 2000 for at in range(2000)]
    integral = sum(dose * schedule.share(point) for point in points) * now / 2000
    assert schedule.amount(10.0 + now) == pytest.approx(integral, rel=0.01, abs=dose * now / 1000 + 1e-6)
    assert 0 <= schedule.share(10.0 + now) <= 1
    assert schedule.share(10.0 + onset + ramp + 1e-6) == pytest.approx(1.0)


@given(bit=st.integers(0, 15), number=st.floats(width=16, allow_nan=False, allow_infinity=False))
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64])
def test_flipping_the_same_bit_twice_gives_the_number_back(dtype: torch.dtype, bit: int, number: float) -> None:
    model = torch.nn.Linear(1, 1, bias=False, dtype=dtype)
    with torch.no_grad():
        model.weight.fill_(number)
    before = model.weight.detach().clone()

    def flip() -> None:
        schedule = Schedule(dose=bit, onset_seconds=0.0, ramp_seconds=0.0, began=0.0)
        place = Place(schedule=schedule, pid=0, folder=Path(), limit_seconds=1.0, model=model)
        begin = FAULTS["bit_flip"].inside
        assert begin is not None
        effect = begin(place)
        effect.before_step()
        effect.before_step()  # once is enough

    flip()
    changed = model.weight.detach().clone()
    if bit == 0:
        assert torch.equal(torch.signbit(changed), ~torch.signbit(before))
        assert torch.equal(changed.abs(), before.abs())
    else:
        assert not torch.equal(changed, before)
    flip()
    assert torch.equal(model.weight, before)


def test_every_fault_says_what_it_is() -> None:
    assert len(FAULTS.entries) == 14
    for fault in FAULTS:
        assert len(fault.dose.examples) == 2 and fault.dose.unit and len(fault.help) > 20
    assert (name_now("cpu_stressor"), name_now("leak"), name_now("nan")) == ("cpu_share", "host_leak", "nan")
    assert name_now("cpu_stressor") in FAULTS and name_now("leak") in FAULTS


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"name": "none"}, "name"),
        ({"name": "A"}, "name"),
        ({"help": ""}, "help"),
        ({"resource": "compute"}, "resource"),
        ({"least_ranks": 0}, "least_ranks"),
        ({"inside": None}, "between"),
    ],
)
def test_a_fault_that_cannot_be_names_the_field(changes: dict[str, Any], named: str) -> None:
    good: dict[str, Any] = {
        "name": "ours",
        "help": "nothing happens",
        "resource": Resource.COMPUTE,
        "dose": Dose(unit="nothing", least=0, most=1, examples=(1,)),
        "inside": lambda _: Effect(),
    }
    assert Fault(**good).name == "ours"
    with pytest.raises(ValueError, match=f": {named}: "):
        Fault(**{**good, **changes})
