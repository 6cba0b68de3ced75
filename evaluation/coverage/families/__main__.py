"""Trains one tiny model of a public library on random data, as users of that library write it.

`python families LIBRARY NAME [--steps N] [--batch N] [--length N] [--optimizer NAME] [--seed N] [--sizes NAME=N]`

Without a name it prints all names of the library, one per line. It imports nothing but torch and that library, because
the interpreter that has the libraries may have nothing else.
"""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Callable
from typing import Any

LIBRARIES = ("torchvision", "timm", "transformers")


def main() -> None:
    arguments = _arguments()
    library: Any = importlib.import_module(f"{arguments.library}_models")
    names = library.names()
    if not arguments.name:
        print("\n".join(names))
    elif arguments.name in names:
        train(library.build, arguments)
    else:
        raise SystemExit(f"{arguments.library} has no model named {arguments.name} here; run without a name for a list")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser("families", description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("library", choices=LIBRARIES)
    parser.add_argument("name", nargs="?", help="a name from the list that is printed when this is left out")
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--batch", type=int, default=2, help="samples of one step")
    parser.add_argument("--length", type=int, default=32, help="tokens of one text")
    parser.add_argument("--optimizer", choices=("adamw", "sgd"), default="adamw")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--sizes", nargs="*", default=[], metavar="NAME=SIZE", help="other sizes (transformers)")
    parser.add_argument("--autocast", action="store_true", help="compute in bfloat16 where torch does")
    parser.add_argument("--checkpointing", action="store_true", help="compute activations again (transformers)")
    return parser.parse_args()


def train(
    build: Callable[[str, argparse.Namespace], tuple[Any, Callable[[], Any]]], arguments: argparse.Namespace
) -> None:
    """The plain training loop. `build` makes the model and a function from a new random batch to its loss."""
    import torch

    torch.manual_seed(arguments.seed)
    arguments.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model, loss_of_new_batch = build(arguments.name, arguments)
    if arguments.optimizer == "adamw":
        optimizer: torch.optim.Optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    else:
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
    model.train()
    if arguments.checkpointing:
        model.gradient_checkpointing_enable()
    for step in range(arguments.steps):
        optimizer.zero_grad()
        with torch.autocast(arguments.device.type, torch.bfloat16, enabled=arguments.autocast):
            loss = loss_of_new_batch()
        loss.backward()
        optimizer.step()
        print(f"step {step}: loss {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    main()
