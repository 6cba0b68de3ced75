"""`python -m evaluation.scripts.train_zoo gpt2 --batch-size 8 --width 256`: trains one model of the zoo.

The options are what people change when a job does not fit.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

import torch
from torch import nn

from evaluation.models.zoo import BASE, FAMILIES, Family, Variation, training_step
from pharoah.dryrun.mitigations import checkpoint_layers, fuse


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("family", choices=sorted(family.name for family in FAMILIES))
    parser.add_argument("--batch-size", type=int, default=BASE.batch)
    for name in ("length", "width", "heads", "depth", "vocabulary"):
        parser.add_argument(f"--{name}", type=int, default=getattr(BASE, name))
    parser.add_argument("--bf16", action="store_true", help="autocast")
    parser.add_argument("--gradient-checkpointing", action="store_true")
    parser.add_argument("--fused", action="store_true", help="the optimizer's fused implementation")
    parser.add_argument("--micro-batches", type=int, default=1, help="whose gradients are accumulated")
    parser.add_argument("--steps", type=int, default=3)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    add_options(parser)
    train(parser.parse_args())


def family_named(name: str) -> Family:
    return next(family for family in FAMILIES if family.name == name)


def train(arguments: argparse.Namespace, go_on: Callable[[], bool] | None = None) -> None:
    """Train `arguments.steps` steps, or until `go_on` returns False after a step."""
    step, _, _ = prepared(arguments)
    for _ in range(arguments.steps) if go_on is None else iter(go_on, False):
        step()


def prepared(arguments: argparse.Namespace) -> tuple[Callable[[], None], torch.optim.Optimizer, nn.Module]:
    """A function that does one step, its optimizer and its model."""
    step, optimizer, model = training_step(
        family_named(arguments.family), variation_of(arguments), micro_batches=arguments.micro_batches
    )
    if arguments.gradient_checkpointing:
        checkpoint_layers(model)
    if arguments.fused:
        fuse(optimizer)
    return step, optimizer, model


def variation_of(arguments: argparse.Namespace) -> Variation:
    return Variation(
        batch=arguments.batch_size,
        length=arguments.length,
        width=arguments.width,
        heads=arguments.heads,
        depth=arguments.depth,
        vocabulary=arguments.vocabulary,
        autocast=arguments.bf16,
    )


if __name__ == "__main__":
    main()
