"""Fake tensors around a script: shapes without memory, until its first optimizer step.

Runs in the dry-run child only: it patches torch in ways a training process must not.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode, unset_fake_temporarily
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook
from torch.utils import data

from pharoah import _capture
from pharoah_archetypes import Fingerprint


class Finished(BaseException):
    """The first optimizer step is over; a BaseException so that no `except Exception` in a script keeps it."""

    def __init__(self, fingerprint: Fingerprint) -> None:
        super().__init__()
        self.fingerprint = fingerprint


@contextmanager
def fake_step() -> Iterator[None]:
    """Inside, tensors are fake and recorded; the first optimizer step raises Finished."""
    recorder = _capture.Recorder()

    def begin(*_: object) -> None:
        recorder.in_optimizer = True

    def end(optimizer: torch.optim.Optimizer, *_: object) -> None:
        records = recorder.records
        raise Finished(_capture.fingerprint(records, _capture.parameter_bytes(optimizer), optimizer))

    register_optimizer_step_pre_hook(begin)
    register_optimizer_step_post_hook(end)
    _load_data_in_this_process()
    _rebind_parameters()
    with FakeTensorMode(shape_env=ShapeEnv(), allow_non_fake_inputs=True), recorder:
        yield


def _load_data_in_this_process() -> None:
    """Loaders without workers and with real indices: samplers draw numbers, which fakes do not have."""
    original = data.DataLoader.__init__

    @functools.wraps(original)
    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        kwargs.update(num_workers=0, multiprocessing_context=None, prefetch_factor=None)
        kwargs.update(persistent_workers=False, pin_memory=False, timeout=0)
        original(self, *args, **kwargs)

    data.DataLoader.__init__ = init  # type: ignore[method-assign]
    iterator = data.dataloader._BaseDataLoaderIter
    iterator.__next__ = _without_fakes(iterator.__next__)  # type: ignore[method-assign]
    data.DataLoader.__iter__ = _without_fakes(data.DataLoader.__iter__)  # type: ignore[method-assign]


def _rebind_parameters() -> None:
    """`model.to(...)` replaces parameters: fakes cannot be swapped in place as torch would do it."""
    # Tied weights stay tied; the old one is kept so that its id is not used again.
    moved: dict[int, tuple[torch.nn.Parameter, torch.nn.Parameter]] = {}

    def rebound(parameter: torch.nn.Parameter, change: Any) -> torch.nn.Parameter:
        if id(parameter) not in moved:
            with torch.no_grad():
                new = torch.nn.Parameter(change(parameter), parameter.requires_grad)
            moved[id(parameter)] = (parameter, new)
        return moved[id(parameter)][1]

    def apply(self: torch.nn.Module, change: Any, recurse: bool = True) -> torch.nn.Module:
        for child in self.children() if recurse else ():
            child._apply(change)
        for name, parameter in self._parameters.items():
            if parameter is not None:
                self._parameters[name] = rebound(parameter, change)
        for name, buffer in self._buffers.items():
            if buffer is not None:
                self._buffers[name] = change(buffer)
        return self

    torch.nn.Module._apply = apply  # type: ignore[method-assign]


def _without_fakes(function: Any) -> Any:
    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        with unset_fake_temporarily():
            return function(*args, **kwargs)

    return wrapper
