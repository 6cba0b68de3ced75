"""What a script has set in torch besides what it computes: precision, determinism, the optimizer's numbers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
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


def settings_of(optimizers: Sequence[torch.optim.Optimizer]) -> dict[str, str]:
    """Names and values as people read them; of optimizers, what their first group says."""
    found = {name: str(read()).removeprefix("torch.") for name, read in _TORCH.items()}
    for optimizer in optimizers:
        kind = type(optimizer).__name__.lower()
        for name, value in optimizer.param_groups[0].items():
            if isinstance(value, (int, float, bool, tuple, list)) and name != "params":
                found[f"{kind} {name}"] = str(value)
    return found
