"""Workloads of campaigns: each script builds one model with its data and loss, and each data file names a script."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cache
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from pharoah_benchmarks.micro_kernels.numbers import DTYPES
from pharoah_benchmarks.settings import RANKS, TASK, Task, check
from pharoah_benchmarks.strategies import STRATEGIES, Distributed, OptimizerChoice
from pharoah_benchmarks.workload_files import workload_files
from pharoah_protocol.vocabulary import ENVIRONMENT, DeviceKind


def dtype_of(model: nn.Module) -> torch.dtype:
    """What the parameters are now; a workload draws its inputs in it."""
    return next(model.parameters()).dtype


@dataclass
class Workload:
    """A model and where its batches come from. `loss` and `answer` take the model and one batch."""

    model: nn.Module
    batch: Callable[[], tuple[Tensor, ...]]
    loss: Callable[[nn.Module, tuple[Tensor, ...]], Tensor]
    around: list[Callable[[], AbstractContextManager[Any]]] = field(default_factory=list)
    """Contexts the forward pass runs in (attention kernel, autocast)."""
    answer: Callable[[nn.Module, tuple[Tensor, ...]], Tensor] = lambda model, drawn: model(drawn[0])
    """What the model answers when it serves; by default what it makes of the first tensor of a batch."""


class WorkloadStep(NamedTuple):
    """One step of a workload, ready to be called."""

    step: Callable[[], Tensor]
    """Does the step and returns the loss, or the mean of the answer; not a number where that went wrong."""
    model: nn.Module
    """The model inside the step."""


def build(name: str, settings: dict[str, Any]) -> WorkloadStep:
    """Make the step of a workload.

    Common settings: `task` (train or serve), `dtype` (float32, bfloat16 by autocast, float16 parameters), `optimizer`
    (adamw or sgd, with an implementation: `adamw/foreach`), `device`, and `strategy`, which needs the process group of
    `ranks` ranks. Raises SettingError.
    """
    check(name, settings)
    settings = dict(settings)
    dtype, kind = settings.pop("dtype", "float32"), settings.pop("optimizer", "adamw/forloop")
    device, strategy = settings.pop("device", DeviceKind.CPU), settings.pop("strategy", "")
    settings.pop(RANKS, None)
    settings.pop(ENVIRONMENT, None)  # this process is in it
    task = settings.pop(TASK, Task.TRAIN)
    workload = _make(name, settings, device)
    _apply_dtype(workload, dtype, device)
    if task == Task.SERVE:
        return _serving(workload)
    return _training(workload, _distribute(workload.model, _optimizer(kind), strategy))


def _training(workload: Workload, distributed: Distributed) -> WorkloadStep:
    model, optimizer, after_backward = distributed

    def step() -> Tensor:
        with _around(workload):
            loss = workload.loss(model, workload.batch())
        loss.backward()
        after_backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return WorkloadStep(step, workload.model)


def _serving(workload: Workload) -> WorkloadStep:
    model = workload.model.eval()

    @torch.inference_mode()
    def step() -> Tensor:
        with _around(workload):
            return workload.answer(model, workload.batch()).float().mean()

    return WorkloadStep(step, model)


@contextmanager
def _around(workload: Workload) -> Iterator[None]:
    with ExitStack() as stack:
        for context in workload.around:
            stack.enter_context(context())
        yield


def _make(name: str, settings: dict[str, Any], device: str) -> Workload:
    file = workload_files()[name]
    make: Callable[..., Workload] = _script(file.script).build
    arguments = {**file.defaults, **settings}
    if device == DeviceKind.CPU:
        return make(**arguments)
    with torch.device(device):
        workload = make(**arguments)
    workload.around.append(lambda: torch.device(device))  # batches are made on the device, too
    return workload


@cache
def _script(path: Path) -> Any:
    """The module of a script, wherever it stands."""
    spec = spec_from_file_location(f"pharoah_workload_{path.stem}", path)
    assert spec is not None and spec.loader is not None, "a script is a Python file"
    module = module_from_spec(spec)
    sys.modules[spec.name] = module  # data classes look their module up
    spec.loader.exec_module(module)
    return module


def _distribute(model: nn.Module, optimizer: OptimizerChoice, strategy: str) -> Distributed:
    if strategy:
        return STRATEGIES[strategy].distribute(model, optimizer)
    return Distributed(model, optimizer.make_optimizer(model.parameters()))


def _apply_dtype(workload: Workload, dtype: str, device: str) -> None:
    if dtype == "bfloat16":
        workload.around.append(lambda: torch.autocast(device, torch.bfloat16))
    elif dtype != "float32":
        workload.model.to(DTYPES[dtype])


def _optimizer(kind: str) -> OptimizerChoice:
    family, _, implementation = kind.partition("/")
    flags: dict[str, dict[str, Any]] = {
        "forloop": {"foreach": False},
        "foreach": {"foreach": True},
        "fused": {"fused": True},
    }
    if family == "sgd":
        return OptimizerChoice(torch.optim.SGD, {"lr": 1e-3, "momentum": 0.9, **flags[implementation]})
    return OptimizerChoice(torch.optim.AdamW, {"lr": 1e-3, **flags[implementation]})
