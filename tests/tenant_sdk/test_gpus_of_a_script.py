"""What scripts ask of GPUs in a dry run: which of them they choose, and what libraries do when there are several."""

from __future__ import annotations

import pytest

from pharoah._verdict import Verdict
from pharoah.cost.findings import cost_findings
from pharoah_protocol.node_profile import NodeProfile
from pharoah_protocol.vocabulary import FindingSeverity, VerdictStatus
from tests.tenant_sdk.conftest import DryRunner

JOB = """
import os, torch
from torch import nn
CHOICE
width = 8 * max(1, torch.cuda.device_count())
model = WRAP(nn.Sequential(nn.Linear(4, width), nn.Tanh(), nn.Linear(width, 1)).cuda())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(3):
    optimizer.zero_grad()
    out = model(torch.randn(10, 4, device="cuda"))
    assert out.shape == (10, 1), out.shape
    out.mean().backward()
    optimizer.step()
"""
LOSS = """
import torch
from torch import nn
class Job(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 1)
    def forward(self, inputs, labels=None):
        return {"loss": (self.layer(inputs) - labels).square().mean(), "logits": self.layer(inputs)}
model = nn.DataParallel(Job().cuda())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(3):
    optimizer.zero_grad()
    out = model(torch.randn(10, 4, device="cuda"), labels=torch.randn(10, 1, device="cuda"))
    assert out["loss"].shape == (4,) and out["logits"].shape == (10, 1)
    out["loss"].mean().backward()
    optimizer.step()
"""


def script(wrap: str = "", choice: str = "") -> str:
    return JOB.replace("WRAP", wrap).replace("CHOICE", choice)


@pytest.mark.parametrize(
    ("choice", "count"),
    [
        ("", 4),
        ("os.environ['CUDA_VISIBLE_DEVICES'] = '0'", 1),
        ("os.environ['CUDA_VISIBLE_DEVICES'] = '2,3'", 2),
        ("os.environ['CUDA_VISIBLE_DEVICES'] = 'GPU-8f0c'", 4),
    ],
)
def test_a_script_that_chooses_gpus_itself_has_those(choice: str, count: int, dry_run_script: DryRunner) -> None:
    dry = dry_run_script(script(choice=choice), gpus="4x H100")
    width = 8 * count
    assert dry.fingerprint.sizes["parameters"] == 4 * (4 * width + width + width + 1)
    assert dry.fingerprint.hardware["gpus"] == str(count)


def test_a_script_that_chooses_another_gpu_gets_its_answers(dry_run_script: DryRunner) -> None:
    choice = "os.environ['CUDA_VISIBLE_DEVICES'] = '1'\nassert torch.cuda.get_device_name() == 'A10'"
    dry = dry_run_script(
        script(choice=choice + "\nassert torch.cuda.get_device_capability() == (8, 6)"), gpus="H100,A10"
    )
    assert dry.fingerprint.hardware["gpu"] == "A10"


def test_a_script_that_hides_all_gpus_has_none(dry_run_script: DryRunner) -> None:
    choice = "os.environ['CUDA_VISIBLE_DEVICES'] = '-1'\nassert not torch.cuda.is_available()"
    source = script(choice=choice).replace(".cuda()", "").replace(', device="cuda"', "")
    assert "gpu" not in dry_run_script(source, gpus="4x H100").fingerprint.hardware


def test_data_parallel_computes_the_first_part_of_the_batch(dry_run_script: DryRunner) -> None:
    """The Trainer of transformers uses it by itself where a script sees several GPUs."""
    alone, one, four = (
        dry_run_script(script(wrap), gpus=gpus)
        for wrap, gpus in (("", "1x H100"), ("nn.DataParallel", "1x H100"), ("nn.DataParallel", "4x H100"))
    )
    assert alone.fingerprint.grammar == one.fingerprint.grammar and not one.cost.uncounted
    assert four.cost.uncounted == ("copies of DataParallel between GPUs",)
    assert dry_run_script(LOSS, gpus="4x H100").fingerprint
    fewer = LOSS.replace("(10, ", "(5, ").replace("(4,)", "(3,)")  # parts of 2, 2 and 1 rows
    assert dry_run_script(fewer, gpus="4x H100").fingerprint


@pytest.mark.parametrize(
    "line",
    [
        "state = torch.cuda.random.get_rng_state(); torch.cuda.random.set_rng_state(state)",
        "states = torch.cuda.random.get_rng_state_all(); torch.cuda.set_rng_state_all(states)",
        "torch.cuda.set_stream(torch.cuda.Stream()); torch.cuda.initial_seed()",
        "torch.cuda.memory.max_memory_allocated(); torch.cuda.memory.reset_peak_memory_stats()",
    ],
)
def test_functions_are_answered_by_every_name_that_they_have(line: str, dry_run_script: DryRunner) -> None:
    assert dry_run_script(script(choice=line), gpus="1x H100").fingerprint


LOOKS_BELOW = """assert sum(1 for _ in model._orig_mod.modules()) == 4
below = model
while hasattr(below, "_orig_mod"):
    below = below._orig_mod
assert len(list(below.parameters())) == 4
optimizer ="""


def test_the_model_below_a_compiled_one_is_there(dry_run_script: DryRunner) -> None:
    source = script("torch.compile").replace("optimizer =", LOOKS_BELOW)
    dry = dry_run_script(source, gpus="1x H100")
    assert dry.fingerprint.features["compiled"] == "yes"


def test_that_a_compiled_job_does_not_fit_is_only_a_warning(dry_run_script: DryRunner) -> None:
    """What compiled code keeps for the backward pass is not modelled: it is less. Its parameters are the same."""
    deep = script().replace("8 * max", "1000 * max").replace("10, ", "2_700_000, ")
    deep = deep.replace("nn.Tanh()", "*(nn.Tanh() for _ in range(12))")
    wide = script().replace("8 * max", "10_000_000_000 * max")
    for job, wrap, severity in (
        (deep, "", FindingSeverity.BLOCK),
        (deep, "torch.compile", FindingSeverity.WARN),
        (wide, "torch.compile", FindingSeverity.BLOCK),
    ):
        source = job.replace("model = (", f"model = {wrap}(")
        dry = dry_run_script(source, gpus="1x H100")
        first = next(iter(cost_findings(dry.fingerprint, dry.cost, NodeProfile(), Verdict(VerdictStatus.UNKNOWN))))
        assert first.severity is severity, first
