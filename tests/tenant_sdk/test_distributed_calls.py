"""Functions of `torch.distributed` in a dry run, called in all forms that torch documents and itself uses."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.harness.torch_server import TorchServer
from tests.tenant_sdk.conftest import DryRunner

FORMS = """
import torch, torch.distributed as dist
dist.init_process_group("nccl")
size, rank = dist.get_world_size(), dist.get_rank()
gathered, collected, scattered, same = [None] * size, [None] * size, [None], ["here"]
dist.all_gather_object(object_list=gathered, obj="a")
dist.gather_object("b", object_gather_list=collected)
dist.broadcast_object_list(object_list=same, src=0)
dist.scatter_object_list(scatter_object_output_list=scattered, scatter_object_input_list=list(range(size)), src=0)
assert (gathered, collected, scattered, same) == (["a"] * size, ["b"] * size, [rank], ["here"])
dist.gather_object(obj="c", object_gather_list=collected, dst=0)
assert collected == ["c"] * size
assert dist.get_backend(group=dist.group.WORLD) is dist.Backend.NCCL
assert (size, dist.get_world_size(dist.new_group([0, 1], None, "nccl", None, False))) == (8, 2)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 8).cuda(), [0], 0)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(3):
    model(torch.randn(4, 8, device="cuda")).sum().backward()
    optimizer.step()
"""


def test_arguments_may_be_given_by_place_or_by_name(dry_run_script: DryRunner) -> None:
    assert dry_run_script(FORMS, nodes=1, processes=8).fingerprint.grammar == "fwd: gemm\nbwd: grad AR"


def test_a_world_may_be_given_by_place(dry_run_script: DryRunner) -> None:
    begin = 'dist.init_process_group("nccl", None, None, 16, 0)\nassert dist.get_world_size() == 16'
    source = FORMS.replace('dist.init_process_group("nccl")', begin).replace("(8, 2)", "(16, 2)")
    assert dry_run_script(source).fingerprint.sizes["ranks"] == 16


CONTRASTIVE = """
import torch, torch.distributed as dist, torch.distributed.nn
dist.init_process_group("nccl")
model = torch.nn.Linear(8, 8)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(3):
    features = model(torch.randn(4, 8))
    everyone = torch.cat(torch.distributed.nn.all_gather(features))
    (features @ everyone.T).logsumexp(1).mean().backward()
    optimizer.step()
"""


def test_features_that_all_ranks_gather_have_gradients(dry_run_script: DryRunner) -> None:
    """torch itself names the arguments of `torch.distributed`, in the backward pass of its collectives."""
    found = dry_run_script(CONTRASTIVE, nodes=1, processes=8)
    forward, backward = found.fingerprint.grammar.splitlines()[:2]
    assert "AG" in forward.split()
    assert "RS" in backward.split()


SAVE = """
import sys, torch, torch.distributed.checkpoint as dcp
dcp.save({"model": torch.nn.Linear(8, 8).state_dict(), "step": 7}, checkpoint_id=sys.argv[1])
"""
RESUME = """
import sys, torch, torch.distributed as dist, torch.distributed.checkpoint as dcp
from torch.distributed.fsdp import fully_shard
dist.init_process_group("nccl")
model = torch.nn.Linear(8, 8).cuda()
trained = WRAP
state = {"model": model.state_dict(), "step": 0}
dcp.load(state, checkpoint_id=sys.argv[1])
assert state["step"] == 7
model.load_state_dict(state["model"])
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(3):
    trained(torch.randn(4, 8, device="cuda")).sum().backward()
    optimizer.step()
"""


@pytest.mark.parametrize(
    ("wrap", "sends"),
    [("torch.nn.parallel.DistributedDataParallel(model)", "AR"), ("fully_shard(model)", "RS")],
)
def test_a_distributed_checkpoint_is_resumed(
    dry_run_script: DryRunner, torch_server: TorchServer, tmp_path: Path, wrap: str, sends: str
) -> None:
    folder = str(tmp_path / "checkpoint")
    torch_server.run_code(SAVE, folder)
    found = dry_run_script(RESUME.replace("WRAP", wrap), folder, nodes=1, processes=4)
    assert sends in found.fingerprint.grammar.split()


HALF = """
import torch, torch.distributed as dist
from torch.distributed.fsdp import FullyShardedDataParallel, MixedPrecision
from torch.distributed.fsdp.sharded_grad_scaler import ShardedGradScaler
dist.init_process_group("nccl")
half = MixedPrecision(param_dtype=torch.float16, reduce_dtype=torch.float16)
model = FullyShardedDataParallel(torch.nn.Linear(64, 64).cuda(), mixed_precision=half, device_id=0)
optimizer = torch.optim.AdamW(model.parameters())
scaler = ShardedGradScaler()
for _ in range(3):
    optimizer.zero_grad()
    scaler.scale(model(torch.randn(4, 64, device="cuda")).pow(2).mean()).backward()
    scaler.unscale_(optimizer)
    scaler.step(optimizer)
    scaler.update()
"""


def test_gradients_of_shards_may_be_scaled(dry_run_script: DryRunner) -> None:
    found = dry_run_script(HALF, nodes=1, processes=4, gpus="4x H100")
    assert found.fingerprint.features["dtype"] == "float16"
    assert not found.assumptions
