"""Memory that a script moves from the GPU to the host: it must not count as memory of the GPU."""

from __future__ import annotations

import pytest

from pharoah.cost.memory import peak
from pharoah.cost.step import ACTIVATION, StepCost
from pharoah.dryrun import DryRun
from tests.tenant_sdk.conftest import DryRunner

GPUS = "1x H100"
WIDTH, ROWS, LAYERS = 256, 8192, 8
PARAMETER_BYTES = 4 * (WIDTH * WIDTH + WIDTH) * LAYERS
ACTIVATION_BYTES = 4 * ROWS * WIDTH
"""One of the two activations of each layer."""
JOB = f"""
import copy, torch
from contextlib import nullcontext
from torch import nn
from torch.autograd import graph
model = nn.Sequential(*[nn.Sequential(nn.Linear({WIDTH}, {WIDTH}), nn.Tanh()) for _ in range({LAYERS})]).cuda()
SETUP
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(3):
    optimizer.zero_grad()
    with SAVING:
        loss = model(torch.randn({ROWS}, {WIDTH}, device="cuda")).pow(2).mean()
    loss.backward()
    optimizer.step()
    UPDATED
"""
HOOKS = """
def pack(tensor):
    packed = torch.empty_like(tensor, device="cpu", pin_memory=True)
    packed.copy_(tensor, non_blocking=True)
    return packed
def unpack(packed):
    return packed.to("cuda", non_blocking=True)
"""
"""Hooks as libraries write them to move activations off."""
OFFLOADED = {
    "save_on_cpu": ("", "graph.save_on_cpu()"),
    "save_on_cpu, pinned": ("", "graph.save_on_cpu(pin_memory=True)"),
    "hooks": (HOOKS, "graph.saved_tensors_hooks(pack, unpack)"),
    "hooks in a module": (
        HOOKS + "forward = model.forward\n"
        "def moving(x):\n"
        "    with graph.saved_tensors_hooks(pack, unpack):\n"
        "        return forward(x)\n"
        "model.forward = moving\n",
        "nullcontext()",
    ),
}


def dried(
    dry_run_script: DryRunner, setup: str = "", saving: str = "nullcontext()", updated: str = "pass", gpus: str = GPUS
) -> DryRun:
    source = JOB.replace("SETUP", setup).replace("SAVING", saving).replace("UPDATED", updated)
    return dry_run_script(source, gpus=gpus)


def gpu_bytes(cost: StepCost) -> int:
    return peak(cost.memory).bytes


@pytest.mark.parametrize(("setup", "saving"), OFFLOADED.values(), ids=OFFLOADED)
def test_activations_that_wait_on_the_host_do_not_count(dry_run_script: DryRunner, setup: str, saving: str) -> None:
    kept, moved = dried(dry_run_script), dried(dry_run_script, setup, saving)
    assert moved.fingerprint.grammar == kept.fingerprint.grammar
    assert peak(kept.cost.memory).roles[ACTIVATION] >= LAYERS * ACTIVATION_BYTES
    # In the backward pass of a layer the activation that has come back meets two gradients.
    assert 3 * ACTIVATION_BYTES < gpu_bytes(moved.cost) < 6 * ACTIVATION_BYTES + 2 * PARAMETER_BYTES


@pytest.mark.parametrize("saving", ["graph.save_on_cpu()", "graph.save_on_cpu(pin_memory=True)"])
def test_where_no_gpu_is_simulated_nothing_is_moved(dry_run_script: DryRunner, saving: str) -> None:
    kept, moved = dried(dry_run_script, gpus=""), dried(dry_run_script, saving=saving, gpus="")
    assert gpu_bytes(moved.cost) >= gpu_bytes(kept.cost)


ON_HOST = {
    "an average of the weights": (
        "average = {name: value.detach().cpu() for name, value in model.state_dict().items()}",
        "for name, value in model.state_dict().items(): average[name].lerp_(value.to('cpu'), 0.1)",
    ),
    "a copy of the weights": (
        "copies = [torch.empty_like(p, device='cpu') for p in model.parameters()]",
        "for copied, p in zip(copies, model.parameters()): copied.copy_(p.detach())",
    ),
    "pinned buffers": (
        "buffers = [torch.empty(p.shape).pin_memory() for p in model.parameters()]",
        "for buffer, p in zip(buffers, model.parameters()): buffer.copy_(p.detach())",
    ),
    "a second model": ("second = copy.deepcopy(model).to('cpu')", "pass"),
    "a model that was used": ("second = nn.Linear(1024, 1024).cuda()\nsecond.cpu()", "pass"),
}


@pytest.mark.parametrize(("setup", "updated"), ON_HOST.values(), ids=ON_HOST)
def test_what_the_script_keeps_on_the_host_does_not_count(dry_run_script: DryRunner, setup: str, updated: str) -> None:
    plain, found = dried(dry_run_script), dried(dry_run_script, setup, updated=updated)
    assert gpu_bytes(found.cost) == gpu_bytes(plain.cost)


BACK = {
    "a tensor": "second = torch.zeros(1024, 1024, device='cuda').cpu().cuda()",
    "a tensor of the host": "second = torch.zeros(1024, 1024, device='cpu')\nthere = second.to('cuda')",
    "a module": "second = nn.Linear(1024, 1024, bias=False).cuda().to('cpu').cuda()",
    "a module of the host": "second = nn.Linear(1024, 1024, bias=False, device='cpu').to('cuda')",
}
"""Lines after which 4 MiB more are on the GPU."""


@pytest.mark.parametrize("setup", BACK.values(), ids=BACK)
def test_what_comes_back_to_the_gpu_counts_once(dry_run_script: DryRunner, setup: str) -> None:
    plain, found = dried(dry_run_script), dried(dry_run_script, setup)
    assert gpu_bytes(found.cost) == gpu_bytes(plain.cost) + 4 * 1024 * 1024


def test_a_model_that_has_been_on_the_host_still_steps(dry_run_script: DryRunner) -> None:
    """Scripts save a model from the host, with the optimizer made before."""
    plain = dried(dry_run_script)
    source = JOB.replace("SETUP", "").replace("SAVING", "nullcontext()").replace("UPDATED", "model.cpu(); model.cuda()")
    found = dry_run_script(source, gpus=GPUS)
    assert found.fingerprint.grammar == plain.fingerprint.grammar
    assert not found.assumptions


CHECKPOINTED = f"""
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint
class Layer(nn.Linear):
    def forward(self, x):
        return super().forward(x).tanh() * torch.ones({WIDTH}, device="cuda")
model = nn.Sequential(*[Layer({WIDTH}, {WIDTH}) for _ in range(3)]).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(3):
    x = torch.randn(64, {WIDTH}, device="cuda", requires_grad=True)
    for layer in model:
        x = checkpoint(layer, x, use_reentrant=REENTRANT)
    x.sum().backward()
    optimizer.step()
"""


@pytest.mark.parametrize("reentrant", [False, True])
def test_what_is_computed_again_may_name_a_gpu(reentrant: bool, dry_run_script: DryRunner) -> None:
    assert not dry_run_script(CHECKPOINTED.replace("REENTRANT", str(reentrant)), gpus=GPUS).assumptions
