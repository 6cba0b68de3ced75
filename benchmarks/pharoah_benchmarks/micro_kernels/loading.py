"""Data loading: workers of a DataLoader that read samples from files."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from pharoah_benchmarks.micro import Check, CheckedKernel
from pharoah_benchmarks.micro_kernels.files import nameless_file
from pharoah_system.parent_process import end_with_parent

_SAMPLE_BYTES = 64 << 10
_WORKERS, _BATCH = 2, 16


class _Samples(Dataset[Tensor]):
    """Samples of one file that has no name: workers inherit its descriptor."""

    def __init__(self, file: int, count: int) -> None:
        self._file, self._count = file, count

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, place: int) -> Tensor:
        content = bytearray(os.pread(self._file, _SAMPLE_BYTES, place * _SAMPLE_BYTES))
        return torch.frombuffer(content, dtype=torch.uint8).float() / 255


class Loading(CheckedKernel):
    """One pass of a DataLoader with two workers over a file in `folder`. Each pass reads it from the disk."""

    def __init__(self, folder: Path, samples: int) -> None:
        self._file = nameless_file(folder, samples * _SAMPLE_BYTES)
        try:
            for place in range(samples):
                os.pwrite(self._file, bytes([place % 251]) * _SAMPLE_BYTES, place * _SAMPLE_BYTES)
            os.fsync(self._file)  # the kernel drops nothing from its cache that is not on the disk
        except BaseException:
            os.close(self._file)
            raise
        self._expected = sum(place % 251 for place in range(samples)) / 255
        self._loader: Any = DataLoader(
            _Samples(self._file, samples),
            batch_size=_BATCH,
            num_workers=_WORKERS,
            persistent_workers=True,
            multiprocessing_context="fork",
            worker_init_fn=partial(_begin, os.getpid()),
        )
        self._right = True

    def __call__(self) -> None:
        # What was written or read before is in the cache of the kernel. All of it is on the disk, so it can be dropped.
        os.posix_fadvise(self._file, 0, 0, os.POSIX_FADV_DONTNEED)
        total = sum(float(batch.mean(1).sum()) for batch in self._loader)
        self._right &= abs(total - self._expected) <= 1e-3 * self._expected

    def check(self) -> Check:
        """All samples of each pass had the numbers that were written."""
        return Check(self._right)

    def close(self) -> None:
        self._loader = None  # ends its workers
        os.close(self._file)


def _begin(parent: int, _: int) -> None:
    """A worker ends when the child that measures does."""
    end_with_parent(parent)
