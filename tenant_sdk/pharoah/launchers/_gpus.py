"""How many GPUs a launcher sees when it looks: those that the dry run simulates."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pharoah.capture.hardware import list_simulated_gpus


@contextmanager
def torch_counts_simulated_gpus() -> Iterator[None]:
    """While a launcher's own library asks torch how many GPUs there are."""
    import torch

    gpus, before = len(list_simulated_gpus()), (torch.cuda.device_count, torch.cuda.is_available)
    torch.cuda.device_count, torch.cuda.is_available = lambda: gpus, lambda: gpus > 0
    try:
        yield
    finally:
        torch.cuda.device_count, torch.cuda.is_available = before
