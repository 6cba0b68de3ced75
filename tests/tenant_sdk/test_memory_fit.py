"""Does a job fit, and what would make it fit? Real dry runs of real scripts."""

from __future__ import annotations

import sys
from array import array
from collections.abc import Sequence
from pathlib import Path

import pytest

from pharoah._errors import UnknownReason
from pharoah._verdict import unknown
from pharoah.cost.advice import advise
from pharoah.cost.findings import memory_finding
from pharoah.cost.memory import peak
from pharoah.cost.memory_fit import MemoryBudget, fit
from pharoah.cost.mitigation import Mitigation
from pharoah.cost.step import Memory, StepCost
from tests.tenant_sdk.conftest import DryRunner
from tests.tenant_sdk.test_cost import ADAM, LOOP, MODEL, SCRIPTS

MIB = 1 << 20
ON_GPU = (
    MODEL
    + "data, model, y = torch.randn(100_000, 200), model.cuda(), y.to('cuda')\n"
    + ADAM
    + LOOP.replace("optimizer.zero_grad()", "x = data[:64].to('cuda', non_blocking=True)\n    optimizer.zero_grad()")
)


def test_on_a_gpu_only_what_is_there_counts(dry_run_script: DryRunner, monkeypatch: pytest.MonkeyPatch) -> None:
    on_cpu = SCRIPTS["foreach"].replace(
        "    optimizer.zero_grad", "    x = torch.randn(64, 200)\n    optimizer.zero_grad"
    )
    expected = peak(dry_run_script(on_cpu).cost.memory, tensors_only=True)
    monkeypatch.setenv("PHAROAH_GPUS", "NVIDIA H100 80GB HBM3")
    assert peak(dry_run_script(ON_GPU).cost.memory).roles == expected.roles


def room(size: int) -> MemoryBudget:
    return MemoryBudget("test", size, inside=True)


def test_a_job_fits_fits_tightly_or_does_not_fit(dry_run_script: DryRunner) -> None:
    cost = dry_run_script(SCRIPTS["adamw"]).cost
    needed = fit(cost, room(1 << 40)).needed
    assert fit(cost, room(needed - 1)).status == "does not fit"
    assert fit(cost, room(needed)).status == "tight"
    assert fit(cost, room(2 * needed)).status == "fits"
    assert fit(cost, MemoryBudget("absolute", 2 * needed)).needed == needed + cost.process_bytes


def test_on_a_gpu_fragmentation_counts() -> None:
    sizes = [30 * MIB, 30 * MIB, -1, 40 * MIB]
    memory = Memory(array("q", sizes), "---")
    cost = StepCost((), (), memory)
    assert peak(memory).bytes == 70 * MIB
    alone = fit(cost, MemoryBudget("a", 1 << 40, on_gpu=True)).needed
    full = fit(cost, MemoryBudget("b", alone - 30 * MIB, on_gpu=True))
    assert full.status == "tight"  # the first segment goes back
    assert fit(cost, MemoryBudget("c", alone - 31 * MIB, on_gpu=True)).status == "does not fit"


LOADED = """
import argparse, torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset
parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, default=64)
class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(256, 1024), nn.Linear(1024, 256)
    def forward(self, x):
        return x + self.down(F.gelu(self.up(x)))
model = nn.Sequential(*[Layer() for _ in range(6)])
loader = DataLoader(TensorDataset(torch.randn(256, 64, 256)), batch_size=parser.parse_args().batch_size)
optimizer = torch.optim.AdamW(model.parameters(), foreach=True)
for (x,) in loader:
    optimizer.zero_grad()
    model(x).pow(2).mean().backward()
    optimizer.step()
"""
"""A job whose memory is mostly activations: few samples of many rows, since a dry run reads samples one by one."""
SMALL = LOADED.replace("default=64", "default=8").replace("(256, 64, 256)", "(256, 1, 256)")
"""The same job with so few rows that its memory is mostly parameters and their states."""


@pytest.mark.parametrize("options", [[], ["--batch-size", "64"], ["--batch-size=64"]])
def test_advice_is_tried_and_fits(dry_run: DryRunner, tmp_path: Path, options: list[str]) -> None:
    script = tmp_path / "train.py"
    script.write_text(LOADED)
    command = [sys.executable, str(script), *options]
    cost = dry_run(command, 60.0).cost
    limit = room(int(fit(cost, room(1 << 40)).needed * 0.75))
    advice = {
        option.what: option
        for option in advise(command, cost, limit, lambda words, change: dry_run(words, 60.0, change=change).cost)
    }
    batch = "--batch-size 32 instead of 64" if options else "1/2 of the loader's batch"
    assert set(advice) == {f"{batch}, gradients of 2 accumulated", "activation checkpointing"}
    for option in advice.values():
        assert option.fit.needed < limit.bytes
    # 12 products forward, 23 backward; each layer's first is done again (the last one is needed for nothing).
    assert advice["activation checkpointing"].work == pytest.approx(41 / 35)
    if options:
        smaller = advice[f"{batch}, gradients of 2 accumulated"]
        assert smaller.command[2:] in {("--batch-size", "32"), ("--batch-size=32",)}
        assert smaller.work == pytest.approx(1.0)


REPLICATED = SMALL.replace(
    "optimizer =",
    "torch.distributed.init_process_group('gloo')\nmodel = nn.parallel.DistributedDataParallel(model)\noptimizer =",
)


def test_shards_in_place_of_replicas_are_advised(dry_run: DryRunner, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(REPLICATED)
    command, tried = [sys.executable, str(script)], {}

    def trial(words: Sequence[str], change: Mitigation) -> StepCost:
        if change not in (Mitigation(), Mitigation(sharded=True)):
            raise UnknownReason("another test tries that")
        tried[change] = dry_run(words, 60.0, nodes=1, processes=8, change=change).cost
        return tried[change]

    cost = trial(command, Mitigation())
    limit = room(int(fit(cost, room(1 << 40)).needed * 0.8))
    [advice] = [option for option in advise(command, cost, limit, trial) if option.change.sharded]
    assert advice.what == "FSDP (fully_shard) instead of DDP"
    before, after = peak(cost.memory).roles, peak(tried[Mitigation(sharded=True)].memory).roles
    assert after["s"] == pytest.approx(before["s"] / 8, rel=0.01)
    assert {row.operator_class for row in tried[Mitigation(sharded=True)].transfers} >= {"AG", "RS"}


def test_shards_are_not_advised_to_an_optimizer_that_would_not_see_them(dry_run: DryRunner, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    made = "optimizer = torch.optim.AdamW(model.parameters(), foreach=True)\n"
    script.write_text(REPLICATED.replace(made, "").replace("torch.distributed.init", f"{made}torch.distributed.init"))
    with pytest.raises(UnknownReason, match="the optimizer was made before the model was wrapped"):
        dry_run([sys.executable, str(script)], 60.0, nodes=1, processes=8, change=Mitigation(sharded=True))


def test_what_the_dry_run_saw_only_in_part_is_not_advised(dry_run: DryRunner, tmp_path: Path) -> None:
    """With a smaller batch this script fails in its second step: the memory of the first one has no optimizer state."""
    script = tmp_path / "train.py"
    failing = "for at, (x,) in enumerate(loader):\n    assert at == 0 or len(x) == 64"
    script.write_text(LOADED.replace("for (x,) in loader:", failing))
    command = [sys.executable, str(script)]
    cost = dry_run(command, 60.0).cost
    limit = room(int(fit(cost, room(1 << 40)).needed * 0.75))
    advice = advise(command, cost, limit, lambda words, change: dry_run(words, 60.0, change=change).cost)
    assert [option.what for option in advice] == ["activation checkpointing"]


def test_advice_ends_when_the_batch_is_not_what_takes_the_memory(dry_run: DryRunner, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(SMALL)
    command, tried = [sys.executable, str(script)], []
    cost = dry_run(command, 60.0).cost

    def trial(words: Sequence[str], change: Mitigation) -> StepCost:
        tried.append(change)
        return dry_run(words, 60.0, change=change).cost

    limit = room(int(fit(cost, room(1 << 40)).needed * 0.93))
    advice = list(advise(command, cost, limit, trial))
    assert [option.what for option in advice] == ["the fused optimizer (fused=True)"]
    assert len(tried) <= 6


def test_a_finding_names_what_takes_the_memory(dry_run_script: DryRunner) -> None:
    cost = dry_run_script(SCRIPTS["adamw"]).cost
    finding = memory_finding(fit(cost, room(10 * MIB)))
    assert finding.severity == "block"
    assert finding.what.startswith("this job does not fit into memory: 0.0")
    assert "optimizer state" in finding.evidence
    verdict = unknown("nobody is asked").with_findings(finding)
    assert verdict.blocking
    assert unknown("").with_findings(memory_finding(fit(cost, room(1 << 40)))).status == "unknown"


def activations(size: int) -> StepCost:
    return StepCost((), (), Memory(array("q", [size]), "a"))


def test_the_parts_of_a_batch_that_are_tried_double_each_time() -> None:
    """40 MiB of the activations stay whatever the batch is, so the first estimate is too small. With 4 MiB for the
    heap, 8 parts need 40 + 64 / 8 + 4 = 52 MiB of 56, and 4 parts need 60."""
    tried: list[int] = []

    def trial(_: Sequence[str], change: Mitigation) -> StepCost:
        if change != Mitigation(batches=change.batches):
            raise UnknownReason("another test tries that")
        tried.append(change.batches)
        return activations(40 * MIB + 64 * MIB // change.batches)

    [advice] = advise(["python", "train.py"], activations(104 * MIB), room(56 * MIB), trial)
    assert tried == [2, 4, 8]
    assert advice.change == Mitigation(batches=8) and advice.fit.needed == 52 * MIB
