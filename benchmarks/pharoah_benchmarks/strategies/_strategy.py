"""The description of a strategy."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import torch
    from torch import nn

_NAME = re.compile("[a-z][a-z0-9_]*")


class OptimizerChoice(NamedTuple):
    """A class of optimizers with its options."""

    kind: type[torch.optim.Optimizer]
    options: dict[str, Any]

    def make_optimizer(self, parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
        """The optimizer of these parameters."""
        return self.kind(parameters, **self.options)


class Distributed(NamedTuple):
    """A model that is trained on all ranks together."""

    model: nn.Module
    optimizer: torch.optim.Optimizer
    after_backward: Callable[[], None] = lambda: None
    """What is left to do between the backward pass and the optimizer."""


@dataclass(frozen=True, kw_only=True)
class Strategy:
    """One strategy. Raises ValueError that names the field that is wrong."""

    name: str
    help: str
    """What is spread over the ranks, and what they send."""
    distribute: Callable[[nn.Module, OptimizerChoice], Distributed]
    """Called on every rank after the process group is there, with the same model on each."""
    least_ranks: int = 2

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise ValueError(f"strategy {self.name!r}: name: write a lower-case word")
        if self.least_ranks < 2:
            raise ValueError(f"strategy {self.name}: least_ranks: a strategy needs at least two ranks")


def units(model: nn.Module) -> list[nn.Module]:
    """The parts of a model that repeat, where it is cut into pieces: the entries of the first container that holds
    blocks of several modules, and of the longest one in a model without blocks."""
    from torch import nn

    containers = [part for part in model.modules() if isinstance(part, (nn.Sequential, nn.ModuleList)) and len(part)]
    longest = max(containers, key=len, default=nn.ModuleList())
    chosen = next((part for part in containers if any(any(True for _ in entry.children()) for entry in part)), longest)
    return [part for part in chosen if any(True for _ in part.parameters())]
