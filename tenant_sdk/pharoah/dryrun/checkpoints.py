"""Checkpoints that a script reads: what torch would load to a GPU stays in the memory of the CPU, and counts as there.

Patches torch for the rest of the process; in the dry-run child only.
"""

from __future__ import annotations

import functools
import os
import zipfile
from typing import Any

import torch

from pharoah.capture.hardware import list_simulated_gpus
from pharoah.dryrun.device_names import is_gpu, to_cpu
from pharoah.dryrun.ledger import AllocationLedger
from pharoah.torch_names import unset_fake_temporarily

_BEFORE_TORCH = 5
"""Priority of a deserializer. torch's own, for the CPU and for CUDA, have 10 and 20 (torch/serialization.py)."""


def load_checkpoints_to_cpu(ledger: AllocationLedger) -> None:
    """Let `torch.load` read what was saved on GPUs, with any `map_location`."""
    reader = _CheckpointReader(ledger)
    torch.load = reader.wrap_load(torch.load)
    torch.serialization.register_package(_BEFORE_TORCH, _no_tag, reader.deserialize)
    _move_storages_to_cpu(ledger)


class _CheckpointReader:
    """Reads checkpoints, mapped into memory, and records in the ledger what they bring to the GPU."""

    def __init__(self, ledger: AllocationLedger) -> None:
        self._ledger = ledger
        self._to_gpu = False
        """Whether the script has everything of the checkpoint loaded to a GPU."""

    def wrap_load(self, original: Any) -> Any:
        """The function to use instead of `torch.load`."""

        @functools.wraps(original)
        def load(f: Any, map_location: Any = None, *args: Any, **kwargs: Any) -> Any:
            if isinstance(f, (str, os.PathLike)) and zipfile.is_zipfile(f):
                kwargs.setdefault("mmap", True)
            outer, self._to_gpu = self._to_gpu, is_gpu(map_location)
            try:
                with unset_fake_temporarily():
                    return original(f, to_cpu(map_location), *args, **kwargs)
            finally:
                self._to_gpu = outer

        return load

    def deserialize(self, storage: Any, location: str) -> Any:
        """The storage to use where a checkpoint names a location. None leaves it to torch."""
        if location.startswith("cuda"):
            if list_simulated_gpus():
                torch.serialization.validate_cuda_device(location)  # a real run, too, needs that many GPUs
        elif not self._to_gpu:
            return None
        self._ledger.place_storage(storage)
        return storage


def _no_tag(_: object) -> None:
    """Leave it to torch to name the location of what is saved."""


def _move_storages_to_cpu(ledger: AllocationLedger) -> None:
    """Allow `storage.cuda(0)`, which a function that is given as `map_location` calls."""
    original = torch.UntypedStorage.to

    @functools.wraps(original)
    def to(self: torch.UntypedStorage, *, device: Any, non_blocking: bool = False) -> Any:
        if not is_gpu(device):
            return original(self, device=device, non_blocking=non_blocking)
        ledger.place_storage(self)
        return self

    torch.UntypedStorage.to = to  # type: ignore[method-assign, assignment]
