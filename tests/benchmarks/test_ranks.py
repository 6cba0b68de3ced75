"""Cells of several ranks: real processes that train together, and their dry runs."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest
import torch

from pharoah_archetypes import Fingerprint, rung_tokens
from pharoah_benchmarks.campaign.cell import Cell, CellResult
from pharoah_benchmarks.campaign.cell_runner import run_trial
from pharoah_benchmarks.campaign.fork_server import ForkServer
from pharoah_benchmarks.campaign.ranks import on_ranks
from pharoah_benchmarks.strategies import STRATEGIES, Strategy
from pharoah_protocol.vocabulary import DeviceKind, Outcome

SMALL = {"width": 32, "batch": 4}


def cell(strategy: str, ranks: int, workload: str = "mlp", **settings: object) -> Cell:
    own = SMALL if workload == "mlp" else {"batch": 2, "size": 8, "channels": 8}
    return Cell(f"{workload}/{strategy}", workload, {**own, "strategy": strategy, "ranks": ranks, **settings}, steps=2)


@pytest.mark.parametrize("strategy", list(STRATEGIES), ids=lambda strategy: strategy.name)
def test_every_strategy_trains_on_real_ranks_and_computes_on_each_what_one_device_computes(strategy: Strategy) -> None:
    server = ForkServer(0)
    distributed = server.run(cell(strategy.name, strategy.least_ranks))
    assert (distributed.outcome, len(distributed.step_seconds)) == (Outcome.OK, 2), distributed.detail
    alone = server.run(Cell("mlp", "mlp", SMALL, steps=2))
    here, there = (Fingerprint.from_json(result.fingerprint) for result in (alone, distributed))
    assert rung_tokens(here, "one-device") == rung_tokens(there, "one-device")
    assert rung_tokens(there, "collectives") and not rung_tokens(here, "collectives")
    assert there.sizes["ranks"] == strategy.least_ranks


def test_what_a_strategy_sends_does_not_depend_on_the_model() -> None:
    server = ForkServer(0)
    texts = [server.run(cell("fsdp2", 2, workload)).fingerprint for workload in ("mlp", "convnet")]
    assert len({rung_tokens(Fingerprint.from_json(text), "collectives") for text in texts}) == 1


def test_the_rank_that_fails_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    import pharoah_benchmarks.campaign.cell_runner as runner

    def fail_on_rank_one(*_: object) -> tuple[Outcome, str]:
        if os.environ["RANK"] == "1":
            raise RuntimeError("no such instruction")
        time.sleep(60)
        return Outcome.OK, ""

    monkeypatch.setattr(runner, "_train", fail_on_rank_one)
    result = run_trial(cell("ddp", 2))
    assert (result.outcome, result.detail) == (Outcome.ERROR, "rank 1: no such instruction")


def test_a_rank_that_dies_ends_the_cell(monkeypatch: pytest.MonkeyPatch) -> None:
    import pharoah_benchmarks.campaign.cell_runner as runner

    def die_on_rank_one(*_: object) -> tuple[Outcome, str]:
        import torch.distributed

        if os.environ["RANK"] == "1":
            os.kill(os.getpid(), signal.SIGKILL)
        torch.distributed.barrier()
        return Outcome.OK, ""

    monkeypatch.setattr(runner, "_train", die_on_rank_one)
    result = run_trial(cell("ddp", 2))
    assert (result.outcome, result.detail) == (Outcome.CRASH, "rank 1: exit status -9")


def test_ranks_that_wait_in_vain_hang(monkeypatch: pytest.MonkeyPatch) -> None:
    import pharoah_benchmarks.campaign.cell_runner as runner

    def wait_on_rank_zero(*_: object) -> tuple[Outcome, str]:
        import torch
        import torch.distributed

        if os.environ["RANK"] == "0":
            torch.distributed.all_reduce(torch.ones(1))
        time.sleep(60)
        return Outcome.OK, ""

    monkeypatch.setattr(runner, "_train", wait_on_rank_zero)
    short = Cell("mlp", "mlp", {**SMALL, "strategy": "ddp", "ranks": 2}, limit_seconds=4)
    assert run_trial(short).outcome is Outcome.HANG


def test_no_rank_is_left_when_one_fails(tmp_path: Path) -> None:
    ends = on_ranks(3, DeviceKind.CPU, 20.0, lambda: _sleep_or_die(tmp_path), lambda _: False)
    assert [(end.rank, end.text, end.status) for end in ends] == [(2, "", 7)]
    assert len(list(tmp_path.iterdir())) == 3
    assert not any(Path("/proc", process.name).exists() for process in tmp_path.iterdir())


def _sleep_or_die(folder: Path) -> str:
    (folder / str(os.getpid())).touch()
    if os.environ["RANK"] == "2":
        os._exit(7)
    time.sleep(60)
    return "not reached"


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has the device")
def test_a_device_that_is_not_there_is_an_outcome_on_that_device() -> None:
    result = run_trial(Cell("mlp", "mlp", {**SMALL, "device": "cuda"}, steps=1))
    assert CellResult.from_json(result.to_json()).device is DeviceKind.CUDA
    assert result.outcome is Outcome.ERROR and "CUDA" in result.detail
