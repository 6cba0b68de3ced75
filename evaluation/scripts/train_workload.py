"""A training script for evaluations: any campaign workload, or a family no campaign has seen, with hard negatives.

    python evaluation/scripts/train_workload.py gpt '{"length": 128}' --steps 30
    python evaluation/scripts/train_workload.py gpt '{"length": 64}' --seconds 300 --negatives

Hard negatives are what healthy jobs do that looks like a failing node: a checkpoint that stalls the loop, an evaluation
phase, a stretch of longer sequences, data that comes late for some steps, a new shape for which code is compiled. The
last line of the output is the result as JSON.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from pharoah_benchmarks.workloads import build, gpt

NEGATIVE_EVERY_SECONDS = 40.0
LATE_BATCHES, LATE_SECONDS = 3, 1.5
LONGER_SECONDS = 12.0
Step = Callable[[], Tensor]
USUAL, LONGER, OTHER = "usual", "longer", "other"
"""Kinds of steps: steps of two kinds do not take the same time."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workload")
    parser.add_argument("settings", nargs="?", default="{}")
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--seconds", type=float, default=0.0, help="train this long instead")
    parser.add_argument("--negatives", action="store_true", help="of the workload `gpt`, whose settings name `length`")
    parser.add_argument("--durations", help="write every step's end, time and kind here")
    args = parser.parse_args()
    torch.manual_seed(0)
    settings = json.loads(args.settings)
    if settings.get("strategy"):
        torch.distributed.init_process_group("gloo")
    if args.negatives:
        step, longer, model = _two_lengths(settings)
    else:
        step = _family(args.workload) if args.workload in FAMILIES else build(args.workload, settings).step
    seconds: list[float] = []

    def take(step: Step, kind: str = USUAL) -> None:
        """Do one step, of whatever batch, and note how long it took."""
        before = time.perf_counter()
        loss = float(step())
        seconds.append(time.perf_counter() - before)
        if args.durations:
            with Path(args.durations).open("a") as file:
                print(time.time(), seconds[-1], kind, file=file)
        if not math.isfinite(loss):
            raise FloatingPointError

    began, outcome = time.monotonic(), "ok"
    negatives = itertools.cycle(_negatives(step, longer, model, take) if args.negatives else [])
    due = began + NEGATIVE_EVERY_SECONDS
    try:
        while len(seconds) < args.steps or time.monotonic() - began < args.seconds:
            take(step)
            if args.negatives and time.monotonic() > due:
                next(negatives)()
                due = time.monotonic() + NEGATIVE_EVERY_SECONDS
    except FloatingPointError:
        outcome = "nan"
    except RuntimeError as error:
        outcome = "memory" if "can't allocate memory" in str(error) else "error"
    print(json.dumps({"outcome": outcome, "steps": len(seconds), "step_seconds": median(seconds[1:] or [0.0])}))


class LateData(Dataset[int]):
    """Batches that a slow file system delivers late."""

    def __len__(self) -> int:
        return LATE_BATCHES

    def __getitem__(self, index: int) -> int:
        time.sleep(LATE_SECONDS)
        return index


def _two_lengths(settings: dict[str, Any]) -> tuple[Step, Step, torch.nn.Module]:
    """A step of a decoder, one of the same decoder on sequences that are half as long again, and the decoder."""
    usual = gpt.build(**settings)
    long = gpt.build(**{**settings, "length": settings["length"] * 3 // 2})
    optimizer = torch.optim.AdamW(long.model.parameters())

    def step_on(batch: Callable[[], tuple[Tensor, ...]]) -> Tensor:
        loss = long.loss(long.model, batch())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return (lambda: step_on(usual.batch)), (lambda: step_on(long.batch)), long.model


def _negatives(
    step: Step, longer: Step, model: torch.nn.Module, take: Callable[[Step, str], None]
) -> list[Callable[[], None]]:
    head = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.GELU(), torch.nn.Linear(64, 1))
    compiled = torch.compile(head, dynamic=False)
    sizes = itertools.count(2)

    def checkpoint() -> None:
        with tempfile.TemporaryFile() as file:
            torch.save(model.state_dict(), file)
            time.sleep(2.0)  # a slow file system

    def evaluate() -> None:
        until = time.monotonic() + 4.0
        model_inputs = torch.randn(64, 512)
        with torch.no_grad():
            while time.monotonic() < until:
                model_inputs @ model_inputs.T

    def longer_sequences() -> None:
        until = time.monotonic() + LONGER_SECONDS
        while time.monotonic() < until:
            take(longer, LONGER)

    def late_data() -> None:
        batches = iter(DataLoader(LateData()))
        for _ in range(LATE_BATCHES):
            take(lambda: (next(batches), step())[1], OTHER)

    def recompile() -> None:
        """One step with a shape that the compiler has not seen."""
        size = next(sizes)
        torch.compiler.reset()  # it gives up compiling after a few shapes
        take(lambda: (compiled(torch.randn(size, 64)).sum().backward(), step())[1], OTHER)

    return [checkpoint, evaluate, longer_sequences, late_data, recompile]


# Families no campaign file of this repository contains.


def _recurrence() -> tuple[torch.nn.Module, Callable[[torch.nn.Module], Tensor]]:
    model = torch.nn.LSTM(64, 128, 2)
    return model, lambda net: net(torch.randn(32, 8, 64))[0].pow(2).mean()


def _autoencoder() -> tuple[torch.nn.Module, Callable[[torch.nn.Module], Tensor]]:
    nn = torch.nn
    model = nn.Sequential(
        nn.Conv2d(3, 16, 3, 2, 1),
        nn.GroupNorm(4, 16),
        nn.SiLU(),
        nn.ConvTranspose2d(16, 3, 4, 2, 1),
        nn.Sigmoid(),
    )
    return model, lambda net: net(torch.rand(8, 3, 32, 32)).sub(0.5).pow(2).mean()


class _Experts(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gate = torch.nn.Linear(64, 4)
        self.experts = torch.nn.ModuleList(torch.nn.Linear(64, 64) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        weight, chosen = self.gate(x).softmax(-1).topk(2)
        outputs = torch.stack([expert(x).relu() for expert in self.experts], 1)
        mixed: Tensor = (outputs.gather(1, chosen[..., None].expand(-1, -1, 64)) * weight[..., None]).sum(1)
        return mixed


def _experts() -> tuple[torch.nn.Module, Callable[[torch.nn.Module], Tensor]]:
    return _Experts(), lambda net: net(torch.randn(128, 64)).pow(2).mean()


class _Spectral(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = torch.nn.Linear(64, 64), torch.nn.Linear(64, 64)

    def forward(self, x: Tensor) -> Tensor:
        mixed: Tensor = torch.fft.fft(self.first(x)).real
        out: Tensor = self.second(torch.nn.functional.gelu(mixed))
        return out


def _spectral() -> tuple[torch.nn.Module, Callable[[torch.nn.Module], Tensor]]:
    return _Spectral(), lambda net: net(torch.randn(16, 64)).pow(2).mean()


FAMILIES = {"recurrence": _recurrence, "autoencoder": _autoencoder, "experts": _experts, "spectral": _spectral}


def _family(name: str) -> Callable[[], Tensor]:
    model, loss_of = FAMILIES[name]()
    optimizer = torch.optim.AdamW(model.parameters())

    def step() -> Tensor:
        loss = loss_of(model)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step


if __name__ == "__main__":
    main()
