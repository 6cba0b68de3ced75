"""Models that a script moves to a GPU, in all ways in which scripts do it: their parameters count there."""

from __future__ import annotations

import pytest

from pharoah.cost.memory import peak
from pharoah.cost.step import PARAMETER
from tests.tenant_sdk.conftest import DryRunner

GPUS = "4x H100"
MOVED = """
import torch
from torch import nn
model = nn.Linear(512, 512)
MOVE
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(3):
    optimizer.zero_grad()
    model(torch.randn(4, 512, device="cuda")).pow(2).mean().backward()
    optimizer.step()
"""
MOVES = [
    "model.to('cuda')",
    "model.to(0)",
    "model.to(device=0)",
    "model.to(device='cuda:0')",
    "model.to(torch.device('cuda', 0), torch.float32)",
    "model = nn.Linear(512, 512, device='cuda')",
    "model.to_empty(device='cuda')",
    "model.to('cuda', torch.bfloat16).float()",
    "model.cuda().half().to(torch.float32)",
]


@pytest.mark.parametrize("move", MOVES)
def test_parameters_count_however_a_model_is_moved(dry_run_script: DryRunner, move: str) -> None:
    """Parameters of another dtype, which the model had for a while, are freed."""
    expected = peak(dry_run_script(MOVED.replace("MOVE", "model.cuda()"), gpus=GPUS).cost.memory)
    assert expected.roles[PARAMETER] == 4 * (512 * 512 + 512)
    assert peak(dry_run_script(MOVED.replace("MOVE", move), gpus=GPUS).cost.memory).roles == expected.roles


def test_tied_weights_stay_tied(dry_run_script: DryRunner) -> None:
    tied = "model = nn.Sequential(nn.Linear(512, 512), nn.Linear(512, 512))\nmodel[1].weight = model[0].weight\n"
    move = f"{tied}model.to('cuda', torch.bfloat16).float()\nassert model[1].weight is model[0].weight"
    assert dry_run_script(MOVED.replace("MOVE", move), gpus=GPUS).fingerprint.sizes["parameters"] == 4 * 512 * 514


SHARDED = """
import torch, torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, fully_shard
dist.init_process_group("nccl")
model = nn.Sequential(*[nn.Linear(512, 512) for _ in range(4)])
WRAP
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(3):
    optimizer.zero_grad()
    model(torch.randn(4, 512, device="cuda")).pow(2).mean().backward()
    optimizer.step()
"""


@pytest.mark.parametrize(
    ("before", "by_itself"),
    [
        ("model = FSDP(model.cuda())", "model = FSDP(model, device_id=torch.cuda.current_device())"),
        ("model = FSDP(model.cuda(), use_orig_params=True)", "model = FSDP(model, device_id=0, use_orig_params=True)"),
        ("fully_shard(model.cuda())", "fully_shard(model)"),
    ],
)
def test_fsdp_moves_the_model_itself(dry_run_script: DryRunner, before: str, by_itself: str) -> None:
    expected, found = (
        peak(dry_run_script(SHARDED.replace("WRAP", wrap), nodes=1, processes=4, gpus=GPUS).cost.memory).roles
        for wrap in (before, by_itself)
    )
    assert found == expected
    assert found[PARAMETER] == 4 * 4 * (512 * 512 + 512) // 4
