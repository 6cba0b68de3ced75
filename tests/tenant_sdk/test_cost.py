"""What a dry run says a step costs, against what torch's own tools see in a real one."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pharoah.cost.memory import peak
from pharoah.cost.step import StepCost
from tests.harness.torch_server import TorchServer
from tests.tenant_sdk.conftest import DryRunner

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


@pytest.fixture
def cost_of(dry_run_script: DryRunner) -> Callable[[str], StepCost]:
    return lambda source: dry_run_script(source).cost


@pytest.mark.parametrize("name", SCRIPTS)
def test_memory_and_work_are_those_of_a_real_run(
    torch_server: TorchServer, cost_of: Callable[[str], StepCost], tmp_path: Path, name: str
) -> None:
    cost = cost_of(SCRIPTS[name])
    script = str(tmp_path / "train.py")
    # Scalars of a few bytes live a little longer in one or the other.
    most = int(torch_server.run_code(MEASURED, script).split()[-1])
    assert peak(cost.memory, tensors_only=True).bytes == pytest.approx(most, abs=256)
    assert not cost.uncounted
    if name != "attention":  # torch's counter has no formula for the CPU's attention kernel
        assert cost.flops == int(torch_server.run_code(COUNTED, script).split()[-1])


LARGE = """
import torch
model, x = torch.nn.{model}
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(3):
    {output}.mean().backward()
    optimizer.step()
    optimizer.zero_grad()
"""
KERNELS = {
    "gates in float32": ("LSTM(64, 256, batch_first=True), torch.randn(64, 128, 64)", "model(x)[0].pow(2)"),
    "sums in float32": ("Linear(64, 2048).bfloat16(), torch.ones(8192, 64).bfloat16()", "model(x)"),
    "a mean in float32": ("Linear(64, 2048).bfloat16(), torch.ones(8192, 64).bfloat16()", "model(x).mean(0)"),
    "an order of its own": ("Conv2d(3, 64, 3, padding=1), torch.randn(16, 3, 96, 96)", "model(x)"),
    "at points": ("Sequential(*[torch.nn.Conv2d(64, 64, 1)] * 2), torch.randn(16, 64, 64, 64)", "model(x)"),
    "strided": ("Sequential(*[torch.nn.Conv2d(64, 64, 3, 2, 1)] * 2), torch.randn(16, 64, 96, 96)", "model(x)"),
}
"""Jobs whose kernels take tens of megabytes that no tensor shows."""
GROWN = """
import re, sys
def kilobytes(name): return int(re.search(name + r":\\s+(\\d+)", open("/proc/self/status").read())[1])
source, before = open(sys.argv[1]).read(), kilobytes("VmSize")
exec(compile(source, sys.argv[1], "exec"))
print(1024 * (kilobytes("VmPeak") - before))
"""


@pytest.fixture(scope="module")
def limited_server() -> Iterator[TorchServer]:
    """A server of its own: the C library reads the threshold, which is that of a memory limit, when it starts."""
    with TorchServer({"MALLOC_MMAP_THRESHOLD_": str(128 << 10)}) as server:
        yield server


@pytest.mark.parametrize("name", KERNELS)
def test_memory_that_kernels_allocate_for_themselves_is_counted(
    limited_server: TorchServer, cost_of: Callable[[str], StepCost], tmp_path: Path, name: str
) -> None:
    model, output = KERNELS[name]
    cost = cost_of(LARGE.format(model=model, output=output))
    grown = int(limited_server.run_code(GROWN, str(tmp_path / "train.py")).split()[-1])
    assert grown == pytest.approx(peak(cost.memory).bytes, abs=6 << 20)


def test_what_cannot_be_counted_is_named_and_stops_nothing(cost_of: Callable[[str], StepCost]) -> None:
    source = """
import torch
model = torch.nn.Embedding(1000, 16, sparse=True)
optimizer = torch.optim.SparseAdam(model.parameters())
for _ in range(3):
    optimizer.zero_grad()
    model(torch.randint(0, 1000, (4, 3))).sum().backward()
    optimizer.step()
"""
    cost = cost_of(source)
    assert peak(cost.memory).roles["p"] == 64_000
    assert any("SparseAdam" in name for name in cost.uncounted)


def test_the_peak_is_split_by_role(cost_of: Callable[[str], StepCost]) -> None:
    cost = cost_of(SCRIPTS["adamw"])
    weights = 4 * sum(a * b + b for a, b in ((200, 300), (300, 400), (400, 10)))
    roles = peak(cost.memory).roles
    assert roles["p"] == weights
    assert roles["s"] == 2 * weights + 6 * 4  # two moments, and each parameter's own step counter
    assert sum(roles.values()) == peak(cost.memory).bytes


def test_a_cost_survives_its_file(cost_of: Callable[[str], StepCost]) -> None:
    cost = cost_of(SCRIPTS["accumulation"])
    assert StepCost.from_json(cost.to_json()) == cost
    assert json.loads(cost.to_json())["uncounted"] == []


def test_an_update_in_one_call_counts_its_work_once(cost_of: Callable[[str], StepCost]) -> None:
    loop, foreach = (cost_of(SCRIPTS[name]) for name in ("adamw", "foreach"))
    updates = [[row for row in cost.operations if row.phase == "opt"] for cost in (loop, foreach)]
    assert len(updates[1]) < len(updates[0])
    moved = [sum(row.moved * row.times for row in rows) for rows in updates]
    assert moved[1] == pytest.approx(moved[0], rel=0.1)
