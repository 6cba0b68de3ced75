"""A training script that is heavy on one resource: what the signals of a node show of jobs of different kinds.

    python evaluation/scripts/train_heavy.py storage --folder /scratch --seconds 30

`idle` starts as the others do and then computes nothing. `thrashing` reads files at random that are larger than what
the process may keep of them, and needs a control group with a limit of memory.
"""

from __future__ import annotations

import argparse
import mmap
import os
import random
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

READ_BYTES = 16 << 20
"""A shard of data."""
SHARDS = 8
CHECKPOINT_STEPS = 10
TABLE_ROWS, TABLE_WIDTH = 1 << 19, 64
"""128 MiB of weights, as much for gradients, and twice as much for the optimizer."""
LINK_WIDTH = 2048
"""Gradients of 16 MiB in each step."""
MAPPED_BYTES = 512 << 20
Step = Callable[[], None]


def _trained(model: nn.Module, data: Callable[[], torch.Tensor]) -> Step:
    optimizer = torch.optim.Adam(model.parameters())

    def step() -> None:
        model(data()).pow(2).mean().backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def _idle(_: Path) -> Step:
    return lambda: time.sleep(0.1)


def _compute(_: Path) -> Step:
    layers = [part for _ in range(4) for part in (nn.Linear(1024, 1024), nn.ReLU())]
    return _trained(nn.Sequential(*layers), lambda: torch.randn(128, 1024))


def _memory(_: Path) -> Step:
    table = nn.Embedding(TABLE_ROWS, TABLE_WIDTH)
    return _trained(table, lambda: torch.randint(TABLE_ROWS, (1 << 14,)))


def _storage(folder: Path) -> Step:
    shards = [folder / f"shard-{number}" for number in range(SHARDS)]
    for shard in shards:
        shard.write_bytes(random.randbytes(READ_BYTES))
    model, steps = nn.Linear(256, 256), [0]
    train = _trained(model, lambda: _from_disk(random.choice(shards)))

    def step() -> None:
        train()
        steps[0] += 1
        if steps[0] % CHECKPOINT_STEPS == 0:
            with (folder / "checkpoint").open("wb") as file:
                torch.save({"model": model.state_dict(), "buffer": torch.zeros(READ_BYTES // 4)}, file)
                os.fsync(file.fileno())

    return step


def _from_disk(shard: Path) -> torch.Tensor:
    """What was read before is forgotten first."""
    descriptor = os.open(shard, os.O_RDONLY)
    try:
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        content = os.pread(descriptor, READ_BYTES, 0)
    finally:
        os.close(descriptor)
    return torch.frombuffer(bytearray(content), dtype=torch.uint8)[: 256 * 64].reshape(64, 256).float()


def _network(folder: Path) -> Step:
    """This process and a child of it exchange their gradients over loopback."""
    meeting = folder / f"meeting-{os.getpid()}"
    rank = 0 if os.fork() else 1
    torch.distributed.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=2)
    model = DistributedDataParallel(nn.Linear(LINK_WIDTH, LINK_WIDTH))
    return _trained(model, lambda: torch.randn(8, LINK_WIDTH))


def _thrashing(folder: Path) -> Step:
    path = folder / "mapped"
    with path.open("wb") as file:
        for _ in range(MAPPED_BYTES // READ_BYTES):
            file.write(random.randbytes(READ_BYTES))
    with path.open("rb") as file:
        mapped = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
    places = range(0, MAPPED_BYTES, mmap.PAGESIZE)
    return lambda: [mapped[place] for place in random.sample(places, 1024)].clear()


KINDS: dict[str, Callable[[Path], Step]] = {
    "idle": _idle,
    "compute": _compute,
    "memory": _memory,
    "storage": _storage,
    "network": _network,
    "thrashing": _thrashing,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=list(KINDS))
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--ready", type=Path, required=True, help="is made after the first step")
    args = parser.parse_args()
    torch.set_num_threads(1)
    step = KINDS[args.kind](args.folder)
    step()
    args.ready.touch()
    until = time.monotonic() + args.seconds
    while time.monotonic() < until:
        step()


if __name__ == "__main__":
    main()
