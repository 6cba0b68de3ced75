"""Workloads of campaigns: each file is one model with its data and loss, readable by itself."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from pharoah_benchmarks.settings import check


def dtype_of(model: nn.Module) -> torch.dtype:
    """What the parameters are now; a workload draws its inputs in it."""
    return next(model.parameters()).dtype


@dataclass
class Workload:
    """A model and where its batches come from. `loss` takes the model and one batch."""

    model: nn.Module
    batch: Callable[[], tuple[Tensor, ...]]
    loss: Callable[[nn.Module, tuple[Tensor, ...]], Tensor]
    around: list[Callable[[], AbstractContextManager[Any]]] = field(default_factory=list)
    """Contexts the forward pass runs in (attention kernel, autocast)."""


class TrainingStep(NamedTuple):
    """One training step of a workload, ready to be called."""

    step: Callable[[], Tensor]
    """Does the step and returns the loss."""
    optimizer: torch.optim.Optimizer
    """The optimizer inside the step."""


def build(name: str, settings: dict[str, Any]) -> TrainingStep:
    """Make the training step of a workload.

    Common settings: `dtype` (float32, bfloat16 by autocast, float16 parameters) and `optimizer` (adamw or sgd, with an
    implementation: `adamw/foreach`). Raises SettingError.
    """
    check(name, settings)
    settings = dict(settings)
    dtype, kind = settings.pop("dtype", "float32"), settings.pop("optimizer", "adamw/forloop")
    workload: Workload = import_module(f"{__name__}.{name}").build(**settings)
    _apply_dtype(workload, dtype)
    optimizer = _optimizer(kind, workload.model)

    def step() -> Tensor:
        with ExitStack() as stack:
            for context in workload.around:
                stack.enter_context(context())
            loss = workload.loss(workload.model, workload.batch())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return TrainingStep(step=step, optimizer=optimizer)


def _apply_dtype(workload: Workload, dtype: str) -> None:
    if dtype == "bfloat16":
        workload.around.append(lambda: torch.autocast("cpu", torch.bfloat16))
    elif dtype != "float32":
        workload.model.to(getattr(torch, dtype))


def _optimizer(kind: str, model: nn.Module) -> torch.optim.Optimizer:
    family, _, implementation = kind.partition("/")
    flags: dict[str, dict[str, Any]] = {
        "forloop": {"foreach": False},
        "foreach": {"foreach": True},
        "fused": {"fused": True},
    }
    if family == "sgd":
        return torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9, **flags[implementation])
    return torch.optim.AdamW(model.parameters(), lr=1e-3, **flags[implementation])
