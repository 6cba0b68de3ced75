"""Cells of several ranks: real processes that train together, and their dry runs.

All of it happens in forks of a process that has imported torch and run nothing, as in an agent: a process whose threads
have computed cannot be forked.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from pharoah_archetypes import Fingerprint, rung_tokens
from pharoah_benchmarks.campaign.cell import Cell, CellResult
from pharoah_benchmarks.campaign.cell_runner import run_trial
from pharoah_benchmarks.strategies import STRATEGIES, Strategy
from pharoah_protocol.vocabulary import DeviceKind, Outcome
from tests.harness.torch_server import TorchServer

SMALL = {"width": 32, "batch": 4}
RUN = """
import sys
from pharoah_benchmarks.campaign.cell import Cell
from pharoah_benchmarks.campaign.fork_server import ForkServer
server = ForkServer(0)
for text in sys.argv[1:]:
    print(server.run(Cell.from_json(text)).to_json())
"""
BROKEN = """
import os, signal, sys, time
import torch
from pharoah_benchmarks.campaign import cell_runner
from pharoah_benchmarks.campaign.cell import Cell
def broken(*_):
    rank = os.environ["RANK"]
    {broken}
    time.sleep(60)
cell_runner._train = broken
print(cell_runner.run_trial(Cell.from_json(sys.argv[1])).to_json())
"""
KILLED = """
import os, signal, sys
from pharoah.end_causes import MemoryKills
from pharoah_benchmarks.campaign import cell_runner, fork_server
from pharoah_benchmarks.campaign.cell import Cell, DryCell
counts = {kills}
fork_server.memory_kills = lambda: next(counts)
fork_server.dry_cell = lambda cell: DryCell(reason="not asked here")
cell_runner._train = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
for _ in range(2):
    print(fork_server.ForkServer(0).run(Cell.from_json(sys.argv[1])).outcome)
"""
LEFT = """
import os, sys, time
from pathlib import Path
from pharoah_benchmarks.campaign.ranks import on_ranks
from pharoah_protocol.vocabulary import DeviceKind
folder = Path(sys.argv[1])
def sleep_or_die():
    (folder / str(os.getpid())).touch()
    if os.environ["RANK"] == "2":
        os._exit(7)
    time.sleep(60)
ends = on_ranks(3, DeviceKind.CPU, 20.0, sleep_or_die, lambda _: False, str)
print([(end.rank, end.text, end.status) for end in ends])
"""


@pytest.fixture(scope="module")
def server() -> Iterator[TorchServer]:
    with TorchServer() as server:
        yield server


def cell(strategy: str, ranks: int, workload: str = "mlp", **options: Any) -> Cell:
    own = SMALL if workload == "mlp" else {"batch": 2, "size": 8, "channels": 8}
    settings = {**own, "strategy": strategy, "ranks": ranks}
    return Cell(f"{workload}/{strategy}", workload, settings, steps=2, **options)


def results(server: TorchServer, *cells: Cell) -> list[CellResult]:
    lines = server.run_code(RUN, *(cell.to_json() for cell in cells)).decode().splitlines()
    return [CellResult.from_json(line) for line in lines]


def result_of(server: TorchServer, broken: str, cell: Cell) -> CellResult:
    """The result of a cell whose ranks do this instead of training."""
    return CellResult.from_json(server.run_code(BROKEN.format(broken=broken), cell.to_json()).decode())


@pytest.mark.parametrize("strategy", list(STRATEGIES), ids=lambda strategy: strategy.name)
def test_every_strategy_trains_on_real_ranks_and_computes_on_each_what_one_device_computes(
    strategy: Strategy, server: TorchServer
) -> None:
    alone, spread = results(server, Cell("mlp", "mlp", SMALL, steps=2), cell(strategy.name, strategy.least_ranks))
    assert (spread.outcome, len(spread.step_seconds)) == (Outcome.OK, 2), spread.detail
    here, there = (Fingerprint.from_json(result.fingerprint) for result in (alone, spread))
    assert rung_tokens(here, "one-device") == rung_tokens(there, "one-device")
    assert rung_tokens(there, "collectives") and not rung_tokens(here, "collectives")
    assert there.sizes["ranks"] == strategy.least_ranks


def test_what_a_strategy_sends_does_not_depend_on_the_model(server: TorchServer) -> None:
    found = results(server, *(cell("fsdp2", 2, workload) for workload in ("mlp", "convnet")))
    assert len({rung_tokens(Fingerprint.from_json(one.fingerprint), "collectives") for one in found}) == 1


@pytest.mark.parametrize(
    ("broken", "outcome", "detail"),
    [
        ("if rank == '1': raise RuntimeError('no such instruction')", Outcome.ERROR, "rank 1: no such instruction"),
        (
            "os.kill(os.getpid(), signal.SIGKILL) if rank == '1' else torch.distributed.barrier()",
            Outcome.CRASH,
            "rank 1: exit status -9",
        ),
    ],
)
def test_the_rank_that_fails_decides(broken: str, outcome: Outcome, detail: str, server: TorchServer) -> None:
    result = result_of(server, broken, cell("ddp", 2))
    assert (result.outcome, result.detail) == (outcome, detail)


def test_a_process_that_the_kernel_kills_for_memory_is_no_crash(server: TorchServer) -> None:
    kills = "iter([MemoryKills(4, 0, 9), MemoryKills(4, 0, 9), MemoryKills(4, 0, 9), MemoryKills(5, 1, 10)])"
    code = KILLED.format(kills=kills)
    outcomes = server.run_code(code, cell("ddp", 2).to_json()).decode().split()
    assert outcomes == ["crash", "memory"], "without a kill of the kernel, and with one"


def test_ranks_that_wait_in_vain_hang(server: TorchServer) -> None:
    broken = "if rank == '0': torch.distributed.all_reduce(torch.ones(1))"
    assert result_of(server, broken, cell("ddp", 2, limit_seconds=4)).outcome is Outcome.HANG


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has the device")
def test_a_rank_for_which_there_is_no_device_says_so(server: TorchServer) -> None:
    broken = "raise AssertionError('it must not begin')"
    settings = {**SMALL, "strategy": "ddp", "ranks": 2, "device": "cuda"}
    result = result_of(server, broken, Cell("mlp/ddp", "mlp", settings, steps=2))
    assert (result.outcome, result.device) == (Outcome.ERROR, DeviceKind.CUDA)
    either = {f"rank {rank}: no CUDA device for rank {rank}: torch sees 0" for rank in (0, 1)}
    assert result.detail in either, "the rank that fails first is named, and none waits for another"


def test_no_rank_is_left_when_one_fails(tmp_path: Path, server: TorchServer) -> None:
    ends = json.loads(server.run_code(LEFT, str(tmp_path)).decode().translate(str.maketrans("()'", '[]"')))
    assert ends == [[2, "", 7]]
    assert len(list(tmp_path.iterdir())) == 3
    assert not any(Path("/proc", process.name).exists() for process in tmp_path.iterdir())


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has the device")
def test_a_device_that_is_not_there_is_an_outcome_on_that_device() -> None:
    result = run_trial(Cell("mlp", "mlp", {**SMALL, "device": "cuda"}, steps=1))
    assert CellResult.from_json(result.to_json()).device is DeviceKind.CUDA
    assert result.outcome is Outcome.ERROR and "CUDA" in result.detail
