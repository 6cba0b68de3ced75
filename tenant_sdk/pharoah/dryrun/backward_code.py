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

from torch.overrides import TorchFunctionMode

from pharoah.torch_names import NO_BACKWARD, current_graph_task, function_modes, replace


def run_backward_in(*modes: TorchFunctionMode) -> None:
    """Keep modes on in each backward pass; the last one is asked first."""

    def inside_modes(original: Any) -> Any:
        @functools.wraps(original)
        def run(*args: Any, **kwargs: Any) -> Any:
            with ExitStack() as switched_on:
                for mode in modes:
                    switched_on.enter_context(inside(mode))
                return original(*args, **kwargs)

        return run

    replace("run_backward", inside_modes)


def is_in_backward() -> bool:
    """Whether this thread runs a backward pass."""
    return bool(current_graph_task() != NO_BACKWARD)


def inside(mode: TorchFunctionMode) -> AbstractContextManager[Any]:
    """Switch a mode on, unless it is on: it would handle each call twice."""
    return nullcontext() if mode in function_modes() else mode
