"""Distributed jobs: one rank's dry run against real ranks over gloo, and what cannot be answered from one rank."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from evaluation.distributed.run import environment, real_ranks
from pharoah import PharoahError
from pharoah.dryrun import DryRun, later_stages, parent
from pharoah.dryrun.result import NextStage
from pharoah_archetypes import Archetype, Fingerprint, communication_patterns, parse, pattern_of
from tests.tenant_sdk.conftest import DryRunner

DryFingerprint = Callable[..., Fingerprint]


@pytest.fixture(scope="module")
def dry(dry_run: DryRunner) -> DryFingerprint:
    """The fingerprint of a script or module with its arguments, in a world of `nodes` and `processes`."""
    return lambda arguments, **world: dry_run([sys.executable, *arguments], 60.0, **world).fingerprint


@pytest.mark.parametrize(
    ("name", "sends"),
    [("ddp", "bwd: grad AR"), ("fsdp2_clipped", "bwd: (grad AG)+ (grad RS AG)+ (grad RS)+"), ("manual", "opt: AR")],
)
def test_a_dry_rank_sends_what_real_ranks_send(
    dry: DryFingerprint, name: str, sends: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = real_ranks(name, 2)
    for rank, fingerprint in enumerate(seen):
        assert fingerprint is not None
        assert sends in fingerprint.grammar.splitlines()
        for key, value in environment(rank, 2).items():
            monkeypatch.setenv(key, value)
        assert dry(["-m", "evaluation.distributed.strategies", name]).grammar == fingerprint.grammar


def test_every_stage_of_a_pipeline_is_dry_run_as_its_rank_steps(
    dry_run: DryRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    stages: dict[int, DryRun] = {}

    def noted(first: DryRun, attempt: Callable[[NextStage], DryRun]) -> DryRun:
        stages[0] = first

        def one(stage: NextStage) -> DryRun:
            return stages.setdefault(stage.rank, attempt(stage))

        return later_stages.with_later_stages(first, one)

    monkeypatch.setattr(parent, "with_later_stages", noted)
    arguments = [
        "-m",
        "torch.distributed.run",
        "--nproc-per-node",
        "3",
        "-m",
        "evaluation.distributed.strategies",
        "pp",
    ]
    found = dry_run([sys.executable, *arguments], 120.0)
    real = [fingerprint and fingerprint.grammar for fingerprint in real_ranks("pp", 3)]
    assert [stages[rank].fingerprint.grammar for rank in range(3)] == real
    assert found.fingerprint == stages[0].fingerprint
    assert found.cost in [stage.cost for stage in stages.values()]


@pytest.mark.parametrize("entry", communication_patterns().values(), ids=lambda entry: entry.id)
def test_a_strategy_has_the_communication_pattern_that_names_it(entry: Archetype, dry: DryFingerprint) -> None:
    arguments = ["-m", "torch.distributed.run", "--nproc-per-node", "8", "-m", "evaluation.distributed.strategies"]
    assert pattern_of(parse(dry([*arguments, entry.variants[0]]).grammar)) == entry


SCRIPT = """
import os, torch, torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
dist.init_process_group("nccl")
assert (dist.get_backend(), dist.get_world_size(), dist.is_nccl_available()) == ("nccl", 1024, True)
device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
torch.cuda.set_device(device)
mesh = init_device_mesh("cuda", (128, 8), mesh_dim_names=("dp", "tp"))
assert mesh["tp"].size() == 8
group = dist.new_group(list(range(8)), backend="nccl")
everyone = [None] * 1024
dist.all_gather_object(everyone, {"host": "a"})
assert everyone[1023] == {"host": "a"}
dist.barrier()
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 8).to(device), device_ids=[device.index])
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(3):
    with model.no_sync():
        model(torch.randn(4, 8, device=device)).sum().backward()
    model(torch.randn(4, 8, device=device)).sum().backward()
    optimizer.step()
    loss = torch.ones((), device=device)
    dist.all_reduce(loss, group=group)
    if dist.get_rank() == 0:
        print(loss.item())
"""


def test_a_script_for_a_thousand_gpus_is_fingerprinted_on_a_machine_without_gpus(
    dry: DryFingerprint, tmp_path: Path
) -> None:
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    fingerprint = dry([str(script)], nodes=128, processes=8)
    assert fingerprint.grammar == "fwd: AR gemm\nbwd: grad AR"


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("objects = [None]\ndist.recv_object_list(objects, src=1)", "recv_object_list: this rank waits for an object"),
        ("init_device_mesh('cuda', (3, 3))", "Mesh should not be bigger than default world size"),
    ],
)
def test_what_one_rank_cannot_know_or_torch_refuses_is_the_reason(
    dry: DryFingerprint, body: str, message: str, tmp_path: Path
) -> None:
    script = tmp_path / "train.py"
    head = "import torch.distributed as dist\nfrom torch.distributed.device_mesh import init_device_mesh\n"
    script.write_text(f"{head}dist.init_process_group('gloo')\n{body}\n")
    with pytest.raises(PharoahError, match=message):
        dry([str(script)], nodes=1, processes=8)


@pytest.mark.parametrize(
    "starts",
    [
        "    mp.spawn(main, args=(4,), nprocs=4)\n",
        "    workers = [mp.Process(target=main, args=(rank, 4)) for rank in range(4)]\n"
        "    [worker.start() for worker in workers]\n"
        "    [worker.join() for worker in workers]\n",
    ],
    ids=["spawn", "processes"],
)
def test_spawned_ranks_are_the_first_of_them(dry_run: DryRunner, tmp_path: Path, starts: str) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "import torch, torch.distributed as dist, torch.multiprocessing as mp\n"
        "def main(rank, size):\n"
        "    dist.init_process_group('gloo', rank=rank, world_size=size, init_method='tcp://127.0.0.1:1')\n"
        "    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 8))\n"
        "    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
        "    for _ in range(2):\n"
        "        model(torch.randn(4, 8)).sum().backward()\n"
        "        optimizer.step()\n"
        f"if __name__ == '__main__':\n{starts}"
    )
    found = dry_run([sys.executable, str(script)], 60.0)
    assert found.fingerprint.grammar == "fwd: gemm\nbwd: grad AR"
    assert found.processes == 4


def test_attention_whose_heads_are_spread_over_gpus_is_one_kernel(
    dry: DryFingerprint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PHAROAH_GPUS", "4x A100")
    script = tmp_path / "train.py"
    script.write_text(
        "import torch, torch.nn.functional as F\n"
        "from torch.distributed.device_mesh import init_device_mesh\n"
        "from torch.distributed.tensor import Shard, distribute_tensor\n"
        "mesh = init_device_mesh('cuda', (4,))\n"
        "heads = distribute_tensor(torch.randn(2, 8, 16, 4, device='cuda'), mesh, [Shard(1)]).requires_grad_()\n"
        "optimizer = torch.optim.SGD([heads], lr=0.1)\n"
        "for _ in range(2):\n"
        "    attended = F.scaled_dot_product_attention(heads, heads, heads, is_causal=True)\n"
        "    attended.to_local().sum().backward()\n"
        "    optimizer.step()\n"
    )
    assert dry([str(script)], nodes=1, processes=4).grammar.splitlines()[0] == "fwd: attn"


def test_a_world_can_be_asked_for_on_the_command_line(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    command = ["pharoah", "explain", "-o", "json", "--nnodes", "128", "--nproc-per-node", "8", "--", sys.executable]
    done = subprocess.run([sys.executable, "-m", *command, str(script)], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout)["grammar"] == "fwd: AR gemm\nbwd: grad AR"
