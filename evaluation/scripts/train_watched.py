"""A training script for the evaluation of alerts: it trains a small model, alone or in ranks, and can fall ill.

    python evaluation/scripts/train_watched.py --seconds 300 --alerts a.jsonl --trigger go --illness leak --dose 2e6

The illness begins when the trigger file exists. Alerts are written as JSON lines. Under torchrun the ranks train one
model together (DDP over gloo).
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, IterableDataset

import pharoah

WIDTH, BATCH = 768, 64
CHECKPOINT_BYTES = 1 << 20
KEPT: list[Tensor] = []


class Batches(IterableDataset[Tensor]):
    """Random batches, one every so often; later by `pause` seconds once the trigger exists."""

    def __init__(self, args: argparse.Namespace) -> None:
        self._trigger, self._pause = args.trigger, args.dose if args.illness == "loader" else 0.0
        self._shape, self._device = (args.batch, args.width), args.device

    def __iter__(self) -> Iterator[Tensor]:
        while True:
            if self._pause and self._trigger.exists():
                time.sleep(self._pause)
            yield torch.rand(self._shape, device=self._device)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=300.0)
    parser.add_argument("--alerts", type=Path, required=True)
    parser.add_argument("--trigger", type=Path, required=True)
    parser.add_argument("--illness", choices=list(ILLNESSES), default="none")
    parser.add_argument("--dose", type=float, default=0.0, help="see the illness")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--width", type=int, default=WIDTH)
    parser.add_argument("--batch", type=int, default=BATCH)
    parser.add_argument("--durations", type=Path, help="write the end and the seconds of each step here")
    parser.add_argument("--checkpoints", type=Path, help="write and sync 1 MiB here after each step")
    args = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    distributed = "RANK" in os.environ
    if distributed:
        torch.distributed.init_process_group("gloo")
    session = pharoah.register()
    if not distributed or torch.distributed.get_rank() == 0:
        session.on_alert(lambda alert: _write(args.alerts, json.dumps(asdict(alert), default=str)))
    _train(args, distributed)


def _train(args: argparse.Namespace, distributed: bool) -> None:
    width = args.width
    model: nn.Module = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(),
                                     nn.Linear(width, 1)).to(args.device)  # fmt: skip
    if distributed:
        model = nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    loader = DataLoader(Batches(args), batch_size=None, num_workers=1 if args.illness == "loader" else 0)
    illness, before, began = ILLNESSES[args.illness], time.monotonic(), time.monotonic()
    durations: list[str] = []
    for batch in loader:
        for _ in range(4):  # some steps of 20 to 50 ms
            model(batch).pow(2).mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        if args.device == "cuda":
            torch.cuda.synchronize()
        now = time.monotonic()
        if args.checkpoints:
            _checkpoint(args.checkpoints)
        if args.trigger.exists():
            illness(args.dose, now - before, args.device)
        if args.durations:
            durations.append(f"{time.time()} {now - before}")
            if len(durations) >= 20:
                _write(args.durations, "\n".join(durations))
                durations = []
        before = now
        if _over(now - began > args.seconds, distributed):
            return


def _over(mine: bool, distributed: bool) -> bool:
    """Ranks end together."""
    if not distributed:
        return mine
    flag = torch.tensor([float(mine)])
    torch.distributed.all_reduce(flag, op=torch.distributed.ReduceOp.MAX)
    return bool(flag.item())


def _leak(dose: float, seconds: float, device: str) -> None:
    """Keep `dose` bytes per second."""
    KEPT.append(torch.ones(max(1, int(dose * seconds / 4)), device=device))


def _nothing(dose: float, seconds: float, device: str) -> None:
    """What happens, happens elsewhere."""


ILLNESSES: dict[str, Callable[[float, float, str], None]] = {
    "none": _nothing,
    "loader": _nothing,
    "leak": _leak,
}


def _checkpoint(folder: Path) -> None:
    with (folder / f"checkpoint-{os.getpid()}").open("wb") as file:
        file.write(b"x" * CHECKPOINT_BYTES)
        file.flush()
        os.fsync(file.fileno())


def _write(path: Path, line: str) -> None:
    with path.open("a") as file:
        print(line, file=file, flush=True)


if __name__ == "__main__":
    main()
