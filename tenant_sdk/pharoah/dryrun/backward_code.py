"""Code of a script that runs in the backward pass: hooks of gradients, backward passes of its own autograd functions,
and what reentrant checkpointing computes again.

torch switches function modes off when it begins a backward pass. Such code would name GPUs that are not there, and read
values that a dry run does not have.

Patches torch for the rest of the process; in the dry-run child only.
"""

from __future__ import annotations

import functools
from contextlib import AbstractContextManager, ExitStack, nullcontext
from typing import Any

import torch
from torch.autograd import graph
from torch.overrides import TorchFunctionMode, _get_current_function_mode_stack


def run_backward_in(*modes: TorchFunctionMode) -> None:
    """Keep modes on in each backward pass; the last one is asked first."""
    original = graph._engine_run_backward

    @functools.wraps(original)
    def run(*args: Any, **kwargs: Any) -> Any:
        with ExitStack() as switched_on:
            for mode in modes:
                switched_on.enter_context(inside(mode))
            return original(*args, **kwargs)

    graph._engine_run_backward = run
    torch.autograd._engine_run_backward = run  # type: ignore[attr-defined]  # it has imported it by its name


def is_in_backward() -> bool:
    """Whether this thread runs a backward pass."""
    return torch._C._current_graph_task_id() != _NO_TASK


_NO_TASK = -1
"""What torch states as the backward pass outside of one."""


def inside(mode: TorchFunctionMode) -> AbstractContextManager[Any]:
    """Switch a mode on, unless it is on: it would handle each call twice."""
    return nullcontext() if mode in _get_current_function_mode_stack() else mode
