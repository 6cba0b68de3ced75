"""`python -m evaluation.distributed.strategies NAME`: one strategy that spreads a small model over ranks.

Started by a launcher (RANK, WORLD_SIZE, ...). On CPU and gloo; what is checked is which collectives run and where.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed import fsdp
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp.wrap import ModuleWrapPolicy
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)

WIDTH, TOKENS, STEPS = 64, 100, 6


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> Any:
        return x + self.down(torch.relu(self.up(self.norm(x))))


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.emb = nn.Embedding(TOKENS, WIDTH)
        self.layers = nn.ModuleList(Block() for _ in range(4))
        self.head = nn.Linear(WIDTH, TOKENS)

    def forward(self, x: torch.Tensor) -> Any:
        x = self.emb(x)
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


class Experts(nn.Module):
    """One expert on each rank; tokens travel there and back."""

    def __init__(self) -> None:
        super().__init__()
        self.router = nn.Linear(WIDTH, dist.get_world_size())
        self.expert = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.ReLU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x: torch.Tensor) -> Any:
        weights, choice = self.router(x).softmax(-1).max(-1)
        order = choice.argsort()
        there = _exchange(x[order])
        back = _exchange(self.expert(there))
        return x + weights[:, None] * back[order.argsort()]


def _exchange(rows: torch.Tensor) -> Any:
    from torch.distributed.nn.functional import all_to_all_single

    rows = rows.contiguous()
    return all_to_all_single(torch.empty_like(rows), rows)


def train(
    model: nn.Module,
    after_backward: Callable[[nn.Module], None] = lambda _: None,
    micro_batches: int = 1,
    optimizer: torch.optim.Optimizer | None = None,
) -> None:
    optimizer = optimizer or torch.optim.AdamW(model.parameters(), foreach=False)
    for _ in range(STEPS):
        for _ in range(micro_batches):
            tokens = torch.randint(0, TOKENS, (dist.get_world_size() if isinstance(model, nn.Sequential) else 4, 16))
            nn.functional.cross_entropy(model(tokens).reshape(-1, TOKENS), tokens.flatten()).backward()
        after_backward(model)
        optimizer.step()
        optimizer.zero_grad()


def ddp(**options: Any) -> None:
    train(nn.parallel.DistributedDataParallel(Net(), **options))


def zero1() -> None:
    """Optimizer states in shards, parameters whole."""
    from torch.distributed.optim import ZeroRedundancyOptimizer

    model = nn.parallel.DistributedDataParallel(Net())
    train(model, optimizer=ZeroRedundancyOptimizer(model.parameters(), torch.optim.AdamW))


def fsdp1() -> None:
    train(
        fsdp.FullyShardedDataParallel(Net(), auto_wrap_policy=ModuleWrapPolicy({Block}), device_id=torch.device("cpu"))
    )


def fsdp2(
    mesh: Any = None, micro_batches: int = 1, after_backward: Callable[[nn.Module], None] = lambda _: None
) -> None:
    model = Net()
    for layer in [*model.layers, model]:
        fsdp.fully_shard(layer, mesh=mesh)
    train(model, after_backward, micro_batches=micro_batches)


def fsdp2_clipped() -> None:
    """The norm of all shards is a collective."""

    def clip(model: nn.Module) -> None:
        nn.utils.clip_grad_norm_(model.parameters(), 1.0).full_tensor()  # type: ignore[attr-defined]

    fsdp2(after_backward=clip)


def hsdp() -> None:
    fsdp2(init_device_mesh("cpu", (2, dist.get_world_size() // 2), mesh_dim_names=("replicate", "shard")))


def tp() -> None:
    model, mesh = Net(), _mesh("tp")
    for layer in model.layers:
        parallelize_module(layer, mesh, {"up": ColwiseParallel(), "down": RowwiseParallel()})
    train(model)


def sp() -> None:
    model, mesh = Net(), _mesh("tp")
    for layer in model.layers:
        plan = {
            "norm": SequenceParallel(),
            "up": ColwiseParallel(input_layouts=Shard(1)),
            "down": RowwiseParallel(output_layouts=Shard(1), use_local_output=False),
        }
        parallelize_module(layer, mesh, plan)
    ends = {
        "emb": RowwiseParallel(input_layouts=Replicate(), output_layouts=Shard(1), use_local_output=False),
        "head": ColwiseParallel(input_layouts=Shard(1), output_layouts=Replicate()),
    }
    parallelize_module(model, mesh, ends)
    train(model)


def tp_fsdp2() -> None:
    mesh = init_device_mesh("cpu", (dist.get_world_size() // 2, 2), mesh_dim_names=("dp", "tp"))
    model = Net()
    for layer in model.layers:
        parallelize_module(layer, mesh["tp"], {"up": ColwiseParallel(), "down": RowwiseParallel()})
    for layer in [*model.layers, model]:
        fsdp.fully_shard(layer, mesh=mesh["dp"])
    train(model)


def ep() -> None:
    train(nn.Sequential(nn.Embedding(TOKENS, WIDTH), nn.Flatten(0, 1), Experts(), nn.Linear(WIDTH, TOKENS)), _average)


def manual() -> None:
    model = Net()
    for parameter in model.parameters():
        dist.broadcast(parameter.data, 0)

    def average_and_clip(model: nn.Module) -> None:
        _average(model)
        norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        dist.all_reduce(norm)

    train(model, average_and_clip)


def zero2() -> None:
    """Gradients and states in shards by hand: each rank updates its part of a flat buffer, and gathers the others."""
    model, size, rank = Net(), dist.get_world_size(), dist.get_rank()
    parameters = list(model.parameters())
    numel = sum(p.numel() for p in parameters)
    whole = -(-numel // size) * size
    shard = nn.Parameter(torch.zeros(whole // size))
    optimizer = torch.optim.AdamW([shard], foreach=False)
    for _ in range(STEPS):
        tokens = torch.randint(0, TOKENS, (4, 16))
        nn.functional.cross_entropy(model(tokens).reshape(-1, TOKENS), tokens.flatten()).backward()
        gradients = torch.cat([p.grad.flatten() for p in parameters if p.grad is not None])
        shard.grad = torch.empty_like(shard)
        dist.reduce_scatter_tensor(shard.grad, nn.functional.pad(gradients, (0, whole - numel)))
        flat = nn.functional.pad(torch.cat([p.data.flatten() for p in parameters]), (0, whole - numel))
        shard.data.copy_(flat.chunk(size)[rank])
        optimizer.step()
        gathered = torch.empty(whole)
        dist.all_gather_into_tensor(gathered, shard.data)
        for p, part in zip(parameters, gathered[:numel].split([p.numel() for p in parameters]), strict=True):
            p.data.copy_(part.view_as(p))
            p.grad = None


class Spread(nn.Module):
    """Attention over a sequence whose parts lie on the ranks; heads are exchanged for positions and back."""

    def __init__(self) -> None:
        super().__init__()
        self.project, self.merge = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> Any:
        q, k, v = (_exchange(part) for part in self.project(x).chunk(3, -1))
        return x + self.merge(_exchange(nn.functional.scaled_dot_product_attention(q, k, v)))


def ulysses() -> None:
    """Sequences in parts, which all-to-alls of heads bring together for attention, beside data parallelism."""
    train(
        nn.parallel.DistributedDataParallel(
            nn.Sequential(nn.Embedding(TOKENS, WIDTH), Spread(), nn.Linear(WIDTH, TOKENS))
        )
    )


class Tables(nn.Module):
    """Embedding tables that live on one rank each, between data-parallel layers."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.EmbeddingBag(TOKENS, WIDTH)
        self.top = nn.parallel.DistributedDataParallel(
            nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 1))
        )

    def forward(self, ids: torch.Tensor) -> Any:
        return self.top(_exchange(self.table(ids)))


def dlrm() -> None:
    model = Tables()
    optimizer = torch.optim.AdamW(model.parameters(), foreach=False)
    for _ in range(STEPS):
        clicks = torch.randint(0, 2, (4 * dist.get_world_size(), 1)).float()
        ids = torch.randint(0, TOKENS, (len(clicks), 3))
        nn.functional.binary_cross_entropy_with_logits(model(ids), clicks).backward()
        optimizer.step()
        optimizer.zero_grad()


def pp() -> None:
    """As many stages as there are ranks."""
    from torch.distributed.pipelining import PipelineStage, Schedule1F1B

    rank, size = dist.get_rank(), dist.get_world_size()
    stage = nn.Sequential(Block(), Block())
    schedule = Schedule1F1B(
        PipelineStage(stage, rank, size, torch.device("cpu")), n_microbatches=size, loss_fn=nn.functional.mse_loss
    )
    optimizer = torch.optim.AdamW(stage.parameters())
    for _ in range(STEPS):
        batch = torch.randn(2 * size, 8, WIDTH)
        schedule.step(*([batch] if rank == 0 else []), target=batch if rank == size - 1 else None)
        optimizer.step()
        optimizer.zero_grad()


def _mesh(name: str) -> Any:
    """Pairs of ranks."""
    return init_device_mesh("cpu", (dist.get_world_size() // 2, 2), mesh_dim_names=("dp", name))[name]


def _average(model: nn.Module) -> None:
    for parameter in model.parameters():
        if parameter.grad is not None:
            dist.all_reduce(parameter.grad)
            parameter.grad /= dist.get_world_size()


STRATEGIES: dict[str, Callable[[], None]] = {
    "ddp": ddp,
    "ddp_unused": lambda: ddp(find_unused_parameters=True),
    "zero1": zero1,
    "zero2": zero2,
    "fsdp1": fsdp1,
    "fsdp2": fsdp2,
    "fsdp2_accumulated": lambda: fsdp2(micro_batches=3),
    "fsdp2_clipped": fsdp2_clipped,
    "hsdp": hsdp,
    "tp": tp,
    "sp": sp,
    "tp_fsdp2": tp_fsdp2,
    "ep": ep,
    "ulysses": ulysses,
    "dlrm": dlrm,
    "manual": manual,
    "pp": pp,
}


def main() -> None:
    """With a second argument, leave the fingerprint of one captured step in that file."""
    name, *out = sys.argv[1:]
    if out:
        _capture_into(Path(out[0]))
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    STRATEGIES[name]()
    dist.destroy_process_group()


def _capture_into(path: Path) -> None:
    from pharoah._sidecar_link import SidecarLink
    from pharoah.capture import hooks
    from pharoah.capture.clock import StepClock
    from pharoah_protocol.local_messages import Message
    from pharoah_protocol.rank_messages import Capture

    class FileLink(SidecarLink):
        """Writes the fingerprint into the file."""

        def __init__(self) -> None:  # without a sidecar
            pass

        def send(self, message: Message) -> bool:
            if isinstance(message, Capture):
                path.write_text(message.fingerprint)
            return True

    hooks.attach(StepClock(FileLink()))


if __name__ == "__main__":
    main()
