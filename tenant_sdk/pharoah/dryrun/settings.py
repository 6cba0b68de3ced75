"""Settings of a script that its operators do not show: precision, determinism, numbers of optimizers and loaders."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

_TORCH: dict[str, Callable[[], Any]] = {
    "float32 products": torch.get_float32_matmul_precision,
    "tf32 in convolutions": lambda: torch.backends.cudnn.allow_tf32,
    "cudnn benchmark": lambda: torch.backends.cudnn.benchmark,
    "deterministic": torch.are_deterministic_algorithms_enabled,
    "default dtype": torch.get_default_dtype,
    "flash attention": torch.backends.cuda.flash_sdp_enabled,
    "memory-efficient attention": torch.backends.cuda.mem_efficient_sdp_enabled,
    "written-out attention": torch.backends.cuda.math_sdp_enabled,
    "anomaly detection": torch.is_anomaly_enabled,
}
LOADER_SETTINGS = "_pharoah_settings"
"""Attribute of loaders: the arguments of the script, since a dry run constructs loaders with other ones."""


def settings_of(optimizers: Sequence[torch.optim.Optimizer], loaders: Sequence[Any]) -> dict[str, str]:
    """Settings as text, by name. Those of an optimizer are the settings of its first parameter group."""
    found = {name: str(read()).removeprefix("torch.") for name, read in _TORCH.items()}
    for optimizer in optimizers:
        kind = type(optimizer).__name__.lower()
        for name, value in optimizer.param_groups[0].items():
            if isinstance(value, (int, float, bool, tuple, list)) and name != "params":
                found[f"{kind} {name}"] = str(value)
    for number, loader in enumerate(loaders, 1):
        which = f"loader {number}" if number > 1 else "loader"
        found |= {f"{which} {name}": value for name, value in getattr(loader, LOADER_SETTINGS, {}).items()}
    return found


def loader_settings(arguments: Mapping[str, Any]) -> dict[str, str]:
    """The numbers and flags among the arguments of a loader, and the classes of its samplers."""
    numbers = {name: str(value) for name, value in arguments.items() if isinstance(value, (bool, int, float))}
    samplers = {name: arguments.get(name) for name in ("sampler", "batch_sampler")}
    return numbers | {name: type(sampler).__name__ for name, sampler in samplers.items() if sampler is not None}
