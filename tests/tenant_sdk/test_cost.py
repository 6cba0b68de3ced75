"""What a dry run says a step costs, against what torch's own tools see in a real one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from array import array
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pharoah._errors import UnknownReason
from pharoah._verdict import unknown
from pharoah.cost import cuda
from pharoah.cost.advice import advise
from pharoah.cost.findings import memory_finding
from pharoah.cost.memory import peak
from pharoah.cost.room import Room, fit
from pharoah.cost.step import Memory, StepCost
from pharoah.dryrun import dry_run
from pharoah.dryrun.changes import Change

# Runs a script for real and prints the most bytes its tensors had at one time.
MEASURED = """
import runpy, sys
from torch.profiler import ProfilerActivity, profile
with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as seen:
    runpy.run_path(sys.argv[1], run_name="__main__")
now = most = 0
events = [(e.start_ns(), e.nbytes()) for e in seen.profiler.kineto_results.events() if e.name() == "[memory]"]
for _, change in sorted(events):
    now += change
    most = max(most, now)
print(most)
"""
# Runs a script of three equal steps for real and prints the floating-point operations of one.
COUNTED = """
import runpy, sys
from torch.utils.flop_counter import FlopCounterMode
with FlopCounterMode(display=False) as mode:
    runpy.run_path(sys.argv[1], run_name="__main__")
print(mode.get_total_flops() // 3)
"""
MODEL = """
import torch
from torch import nn
from torch.nn import functional as F
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(200, 300), nn.ReLU(), nn.Linear(300, 400), nn.GELU(), nn.Linear(400, 10))
x, y = torch.randn(64, 200), torch.arange(64) % 10
"""
LOOP = """
for _ in range(3):
    optimizer.zero_grad()
    F.cross_entropy(model(x), y).backward()
    optimizer.step()
"""
ADAM = "optimizer = torch.optim.AdamW(model.parameters())\n"
SUMMED = """
import torch
class Twice(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2
    @staticmethod
    def backward(ctx, gradient):
        return gradient + gradient.clone()
model = torch.nn.Linear(20, 40000)
x = torch.randn(50, 20)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(3):
    optimizer.zero_grad()
    h = model(x)
    loss = LOSS
    del h
    loss.backward()
    optimizer.step()
"""
SCRIPTS = {
    "adamw": MODEL + ADAM + LOOP,
    "foreach": MODEL + "optimizer = torch.optim.AdamW(model.parameters(), foreach=True)\n" + LOOP,
    "fused": MODEL + "optimizer = torch.optim.AdamW(model.parameters(), fused=True)\n" + LOOP,
    "momentum": MODEL + "optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)\n" + LOOP,
    "adagrad": MODEL + "optimizer = torch.optim.Adagrad(model.parameters())\n" + LOOP,
    "gradients are kept": MODEL + ADAM + LOOP.replace("zero_grad()", "zero_grad(set_to_none=False)"),
    "gradients are freed late": MODEL
    + ADAM
    + """
for _ in range(3):
    loss = F.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
""",
    "accumulation": MODEL
    + ADAM
    + """
for _ in range(3):
    optimizer.zero_grad()
    for part in range(4):
        F.cross_entropy(model(x), y).backward()
    optimizer.step()
""",
    "checkpointing": MODEL
    + ADAM
    + LOOP.replace("model(x)", "torch.utils.checkpoint.checkpoint_sequential(model, 3, x, use_reentrant=False)"),
    "attention": """
import torch
from torch import nn
from torch.nn import functional as F
layer = nn.TransformerEncoderLayer(64, 4, 128, batch_first=True, dropout=0.0)
model = nn.Sequential(nn.Embedding(50, 64), layer, nn.Linear(64, 50), nn.Flatten(0, 1))
x, y = torch.arange(256).view(8, 32) % 50, torch.arange(256) % 50
"""
    + ADAM
    + LOOP,
    "convnet": """
import torch
from torch import nn
from torch.nn import functional as F
layers = nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(392, 10)
model = nn.Sequential(*layers)
x, y = torch.randn(4, 3, 16, 16), torch.arange(4)
"""
    + ADAM
    + LOOP,
    "two optimizers": MODEL
    + """
parts = [torch.optim.AdamW(model[:2].parameters()), torch.optim.SGD(model[2:].parameters(), lr=0.1, momentum=0.9)]
for _ in range(3):
    for part in parts:
        part.zero_grad()
    F.cross_entropy(model(x), y).backward()
    for part in parts:
        part.step()
""",
    "gradients are summed": SUMMED.replace("LOSS", "(h * 2).sum() + (h * 3).sum() + h.flatten().mul(5).sum()"),
    "gradients are summed by hand": SUMMED.replace("LOSS", "Twice.apply(h).mul(3).sum() + (h * 5).sum()"),
    "frozen": MODEL
    + """
model[0].requires_grad_(False)
optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad])
"""
    + LOOP,
}


def cost_of(path: Path, source: str) -> StepCost:
    path.write_text(source)
    return dry_run([sys.executable, str(path)], 60.0).cost


def measured(tool: str, path: Path) -> int:
    done = subprocess.run(
        [sys.executable, "-c", tool, str(path)],
        capture_output=True,
        check=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    return int(done.stdout.split()[-1])


@pytest.mark.parametrize("name", SCRIPTS)
def test_memory_and_work_are_those_of_a_real_run(tmp_path: Path, name: str) -> None:
    script = tmp_path / "train.py"
    cost = cost_of(script, SCRIPTS[name])
    # Scalars of a few bytes live a little longer in one or the other.
    assert peak(cost.memory, tensors_only=True).bytes == pytest.approx(measured(MEASURED, script), abs=256)
    assert not cost.uncounted
    if name != "attention":  # torch's counter has no formula for the CPU's attention kernel
        assert cost.flops == measured(COUNTED, script)


LARGE = """
import torch
{model}
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(3):
    {loss}.backward()
    optimizer.step()
    optimizer.zero_grad()
"""
KERNELS = {
    "gates in float32": LARGE.format(
        model="model, x = torch.nn.LSTM(64, 256, batch_first=True), torch.randn(64, 128, 64)",
        loss="model(x)[0].pow(2).mean()",
    ),
    "sums in float32": LARGE.format(
        model="model, x = torch.nn.Linear(64, 2048, dtype=torch.bfloat16), torch.ones(8192, 64, dtype=torch.bfloat16)",
        loss="model(x).mean()",
    ),
    "an order of its own": LARGE.format(
        model="model, x = torch.nn.Conv2d(3, 64, 3, padding=1), torch.randn(16, 3, 96, 96)",
        loss="model(x).mean()",
    ),
}
"""Jobs whose kernels take tens of megabytes that no tensor shows."""
GROWN = """
import re, sys, torch, torch._dynamo
def kilobytes(name): return int(re.search(name + r":\\s+(\\d+)", open("/proc/self/status").read())[1])
source, before = open(sys.argv[1]).read(), kilobytes("VmSize")
exec(compile(source, sys.argv[1], "exec"))
print(1024 * (kilobytes("VmPeak") - before))
"""


@pytest.mark.parametrize("name", KERNELS)
def test_what_kernels_take_for_themselves_is_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv("MALLOC_MMAP_THRESHOLD_", str(128 << 10))  # as under a memory limit
    script = tmp_path / "train.py"
    cost = cost_of(script, KERNELS[name])
    assert measured(GROWN, script) == pytest.approx(peak(cost.memory).bytes, abs=16 * MIB)


def test_what_cannot_be_counted_is_named_and_stops_nothing(tmp_path: Path) -> None:
    source = """
import torch
model = torch.nn.Embedding(1000, 16, sparse=True)
optimizer = torch.optim.SparseAdam(model.parameters())
for _ in range(3):
    optimizer.zero_grad()
    model(torch.randint(0, 1000, (4, 3))).sum().backward()
    optimizer.step()
"""
    cost = cost_of(tmp_path / "train.py", source)
    assert peak(cost.memory).roles["p"] == 64_000
    assert any("SparseAdam" in name for name in cost.uncounted)


def test_the_peak_is_told_by_role(tmp_path: Path) -> None:
    cost = cost_of(tmp_path / "train.py", SCRIPTS["adamw"])
    weights = 4 * sum(a * b + b for a, b in ((200, 300), (300, 400), (400, 10)))
    roles = peak(cost.memory).roles
    assert roles["p"] == weights
    assert roles["s"] == 2 * weights + 6 * 4  # two moments, and each parameter's own step counter
    assert sum(roles.values()) == peak(cost.memory).bytes


def test_a_cost_survives_its_file(tmp_path: Path) -> None:
    cost = cost_of(tmp_path / "train.py", SCRIPTS["accumulation"])
    assert StepCost.from_json(cost.to_json()) == cost
    assert json.loads(cost.to_json())["uncounted"] == []


def test_an_update_in_one_call_counts_its_work_once(tmp_path: Path) -> None:
    loop, foreach = (cost_of(tmp_path / "train.py", SCRIPTS[name]) for name in ("adamw", "foreach"))
    updates = [[row for row in cost.operations if row.phase == "opt"] for cost in (loop, foreach)]
    assert len(updates[1]) < len(updates[0])
    moved = [sum(row.moved * row.times for row in rows) for rows in updates]
    assert moved[1] == pytest.approx(moved[0], rel=0.1)


# ---- the allocator of CUDA ----

MIB = 1 << 20


@pytest.mark.parametrize(
    ("sizes", "reserved"),
    [
        ([1], 2 * MIB),
        ([MIB] * 2, 2 * MIB),
        ([MIB + 1], 20 * MIB),
        ([9 * MIB, 9 * MIB], 20 * MIB),
        ([10 * MIB], 10 * MIB),
        ([10 * MIB + 1], 12 * MIB),
        ([19 * MIB, 1], 22 * MIB),
    ],
)
def test_segments_have_the_sizes_torch_documents(sizes: list[int], reserved: int) -> None:
    assert cuda.most_reserved(sizes) == reserved


def test_what_is_free_is_joined_and_used_again() -> None:
    assert cuda.most_reserved([8 * MIB, 8 * MIB, -1, -2, 16 * MIB]) == 20 * MIB
    assert cuda.most_reserved([8 * MIB, 8 * MIB, -1, 16 * MIB]) == 36 * MIB


def test_a_full_device_takes_back_what_is_free_before_it_gives_up() -> None:
    assert cuda.most_reserved([30 * MIB, -1, 40 * MIB], capacity=40 * MIB) == 40 * MIB
    with pytest.raises(cuda.OutOfMemory, match="no room for 41,943,040 bytes beside 31,457,280"):
        cuda.most_reserved([30 * MIB, 40 * MIB], capacity=40 * MIB)


@st.composite
def lives(draw: st.DrawFn) -> list[int]:
    events: list[int] = []
    alive: list[int] = []
    made = 0
    for _ in range(draw(st.integers(1, 60))):
        if alive and draw(st.booleans()):
            events.append(-alive.pop(draw(st.integers(0, len(alive) - 1))))
        else:
            made += 1
            alive.append(made)
            events.append(draw(st.integers(1, 40 * MIB)))
    return events


@given(lives())
def test_no_more_is_allocated_than_reserved_and_exactly_that_capacity_does(events: list[int]) -> None:
    sizes, now, most = [0], 0, 0
    for event in events:
        sizes += [event] if event > 0 else []
        now += event if event > 0 else -sizes[-event]
        most = max(most, now)
    reserved = cuda.most_reserved(events)
    assert most <= reserved <= cuda.most_reserved(events, capacity=reserved)


# ---- does it fit? ----

ON_GPU = (
    MODEL
    + "data, model, y = torch.randn(100_000, 200), model.cuda(), y.to('cuda')\n"
    + ADAM
    + LOOP.replace("optimizer.zero_grad()", "x = data[:64].to('cuda', non_blocking=True)\n    optimizer.zero_grad()")
)


def test_on_a_gpu_only_what_is_there_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    on_cpu = SCRIPTS["foreach"].replace(
        "    optimizer.zero_grad", "    x = torch.randn(64, 200)\n    optimizer.zero_grad"
    )
    expected = peak(cost_of(tmp_path / "train.py", on_cpu).memory, tensors_only=True)
    monkeypatch.setenv("PHAROAH_GPUS", "NVIDIA H100 80GB HBM3")
    assert peak(cost_of(tmp_path / "train.py", ON_GPU).memory).roles == expected.roles


def room(size: int) -> Room:
    return Room("test", size, inside=True)


def test_a_job_fits_or_does_not_and_little_room_is_told(tmp_path: Path) -> None:
    cost = cost_of(tmp_path / "train.py", SCRIPTS["adamw"])
    needed = fit(cost, room(1 << 40)).needed
    assert fit(cost, room(needed - 1)).status == "does not fit"
    assert fit(cost, room(needed)).status == "tight"
    assert fit(cost, room(2 * needed)).status == "fits"
    assert fit(cost, Room("absolute", 2 * needed)).needed == needed + cost.process_bytes


def test_on_a_gpu_fragmentation_counts() -> None:
    sizes = [30 * MIB, 30 * MIB, -1, 40 * MIB]
    memory = Memory(array("q", sizes), "---")
    cost = StepCost((), (), memory)
    assert peak(memory).bytes == 70 * MIB
    alone = fit(cost, Room("a", 1 << 40, on_gpu=True)).needed
    full = fit(cost, Room("b", alone - 30 * MIB, on_gpu=True))
    assert full.status == "tight"  # the first segment goes back
    assert fit(cost, Room("c", alone - 31 * MIB, on_gpu=True)).status == "does not fit"


LOADED = """
import argparse, torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset
parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, default=4096)
class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(256, 1024), nn.Linear(1024, 256)
    def forward(self, x):
        return x + self.down(F.gelu(self.up(x)))
model = nn.Sequential(*[Layer() for _ in range(6)])
loader = DataLoader(TensorDataset(torch.randn(16384, 256)), batch_size=parser.parse_args().batch_size)
optimizer = torch.optim.AdamW(model.parameters(), foreach=True)
for (x,) in loader:
    optimizer.zero_grad()
    model(x).pow(2).mean().backward()
    optimizer.step()
"""


@pytest.mark.parametrize("options", [[], ["--batch-size", "4096"], ["--batch-size=4096"]])
def test_advice_is_tried_and_fits(tmp_path: Path, options: list[str]) -> None:
    script = tmp_path / "train.py"
    script.write_text(LOADED)
    command = [sys.executable, str(script), *options]
    cost = dry_run(command, 60.0).cost
    limit = room(int(fit(cost, room(1 << 40)).needed * 0.75))
    advice = {
        option.what: option
        for option in advise(command, cost, limit, lambda words, change: dry_run(words, 60.0, change=change).cost)
    }
    batch = "--batch-size 2048 instead of 4096" if options else "1/2 of the loader's batch"
    assert set(advice) == {f"{batch}, gradients of 2 accumulated", "activation checkpointing"}
    for option in advice.values():
        assert option.fit.needed < limit.bytes
    # 12 products forward, 23 backward; each layer's first is done again (the last one is needed for nothing).
    assert advice["activation checkpointing"].work == pytest.approx(41 / 35)
    if options:
        smaller = advice[f"{batch}, gradients of 2 accumulated"]
        assert smaller.command[2:] in {("--batch-size", "2048"), ("--batch-size=2048",)}
        assert smaller.work == pytest.approx(1.0)


REPLICATED = LOADED.replace(
    "optimizer =",
    "torch.distributed.init_process_group('gloo')\nmodel = nn.parallel.DistributedDataParallel(model)\noptimizer =",
)


def test_shards_in_place_of_replicas_are_advised(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(REPLICATED.replace("4096", "8"))
    command, tried = [sys.executable, str(script)], {}

    def trial(words: Sequence[str], change: Change) -> StepCost:
        if change not in (Change(), Change(sharded=True)):
            raise UnknownReason("another test tries that")
        tried[change] = dry_run(words, 60.0, nodes=1, processes=8, change=change).cost
        return tried[change]

    cost = trial(command, Change())
    limit = room(int(fit(cost, room(1 << 40)).needed * 0.8))
    [advice] = [option for option in advise(command, cost, limit, trial) if option.change.sharded]
    assert advice.what == "FSDP (fully_shard) instead of DDP"
    before, after = peak(cost.memory).roles, peak(tried[Change(sharded=True)].memory).roles
    assert after["s"] == pytest.approx(before["s"] / 8, rel=0.01)
    assert {row.letter for row in tried[Change(sharded=True)].transfers} >= {"AG", "RS"}


def test_shards_are_not_advised_to_an_optimizer_that_would_not_see_them(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    made = "optimizer = torch.optim.AdamW(model.parameters(), foreach=True)\n"
    script.write_text(REPLICATED.replace(made, "").replace("torch.distributed.init", f"{made}torch.distributed.init"))
    with pytest.raises(UnknownReason, match="the optimizer was made before the model was wrapped"):
        dry_run([sys.executable, str(script)], 60.0, nodes=1, processes=8, change=Change(sharded=True))


def test_advice_ends_when_the_batch_is_not_what_takes_the_memory(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(LOADED.replace("4096", "8"))
    command, tried = [sys.executable, str(script)], []
    cost = dry_run(command, 60.0).cost

    def trial(words: Sequence[str], change: Change) -> StepCost:
        tried.append(change)
        return dry_run(words, 60.0, change=change).cost

    limit = room(int(fit(cost, room(1 << 40)).needed * 0.93))
    advice = list(advise(command, cost, limit, trial))
    assert [option.what for option in advice] == ["the fused optimizer (fused=True)"]
    assert len(tried) <= 6


def test_a_finding_names_what_takes_the_memory(tmp_path: Path) -> None:
    cost = cost_of(tmp_path / "train.py", SCRIPTS["adamw"])
    finding = memory_finding(fit(cost, room(10 * MIB)))
    assert finding.severity == "block"
    assert finding.what.startswith("this job does not fit into memory: 0.0")
    assert "optimizer state" in finding.evidence
    verdict = unknown("nobody is asked").with_findings(finding)
    assert verdict.blocking
    assert unknown("").with_findings(memory_finding(fit(cost, room(1 << 40)))).status == "unknown"
