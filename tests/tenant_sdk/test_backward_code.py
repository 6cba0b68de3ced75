"""Code of a script in the backward pass, in a dry run: it may name GPUs and read values, and is part of the step."""

from __future__ import annotations

import pytest

from tests.tenant_sdk.conftest import DryRunner

GPUS = "1x H100"
JOB = """
import torch
from torch import nn
model = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8)).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
SETUP
for _ in range(3):
    optimizer.zero_grad()
    MODEL(torch.randn(4, 8, device="cuda")).sum().backward()
    optimizer.step()
"""
MASKED = """
for p in model.parameters():
    p.register_hook(lambda gradient: gradient * torch.ones(gradient.shape, device="cuda"))
"""
LOGGED = """
norms = []
for p in model.parameters():
    p.register_hook(lambda gradient: norms.append(gradient.norm().item()))
"""
LOGGED_LATE = """
norms = []
for p in model.parameters():
    p.register_post_accumulate_grad_hook(lambda p: norms.append(float(p.grad.norm())))
"""
OF_A_MODULE = """
def look(module, before, after):
    assert not torch.isnan(after[0]).any()
model.register_full_backward_hook(look)
"""
FUNCTION = """
class Scaled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2
    @staticmethod
    def backward(ctx, gradient):
        return gradient * torch.full((1,), 2.0, device="cuda:0")
"""


def script(setup: str = "", model: str = "model") -> str:
    return JOB.replace("SETUP", setup).replace("MODEL", model)


@pytest.mark.parametrize("hooks", [MASKED, LOGGED, LOGGED_LATE, OF_A_MODULE])
def test_hooks_may_name_gpus_and_read_gradients(hooks: str, dry_run_script: DryRunner) -> None:
    source = script(hooks)
    on_gpu = dry_run_script(source, gpus=GPUS)
    on_cpu = dry_run_script(source.replace("cuda", "cpu"), gpus="")
    assert on_gpu.fingerprint.grammar == on_cpu.fingerprint.grammar
    assert on_gpu.fingerprint.features["optimizer"] == "sgd/foreach"


def test_autograd_functions_may_name_gpus_in_the_backward_pass(dry_run_script: DryRunner) -> None:
    found = dry_run_script(script(FUNCTION, "(lambda x: Scaled.apply(model(x)))"), gpus=GPUS)
    assert not found.assumptions


def test_hooks_that_read_gradients_leave_the_fingerprint_as_it_is(dry_run_script: DryRunner) -> None:
    without = script("hooked = [p.register_hook(lambda gradient: gradient) for p in model.parameters()]")
    reading = script("hooked = [p.register_hook(lambda gradient: print(gradient.shape)) for p in model.parameters()]")
    assert dry_run_script(reading, gpus=GPUS).fingerprint == dry_run_script(without, gpus=GPUS).fingerprint
