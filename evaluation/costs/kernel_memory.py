"""`python -m evaluation kernel_memory`: memory that CPU kernels take besides tensors, and what a dry run counts.

Each call is measured in a process of its own, within a small job: as the first of its kind, and again after a smaller
one. It takes what the address space grows by, at its peak and for good, less its results.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from functools import partial
from itertools import count
from mmap import mmap
from statistics import median
from types import MappingProxyType
from typing import Any, NamedTuple

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from evaluation.figures import Figures
from evaluation.models.forks import address_space, in_fork
from pharoah.dryrun.kernels import Kernels
from pharoah_protocol.node_profile import NodeProfile, environment

BFLOAT16 = torch.bfloat16


def _product(rows: int, inner: int, columns: int, *, transposed: bool = False, dtype: Any = torch.float32) -> None:
    right = torch.zeros(columns, inner, dtype=dtype).t() if transposed else torch.zeros(inner, columns, dtype=dtype)
    torch.zeros(rows, inner, dtype=dtype) @ right


def _mean(rows: int, columns: int, dtype: Any) -> None:
    torch.zeros(rows, columns, dtype=dtype).mean()


def _attention(length: int, dtype: Any) -> None:
    query = torch.zeros(4, 8, length, 64, dtype=dtype, requires_grad=True)
    _back(torch.nn.functional.scaled_dot_product_attention(query, query, query))


def _convolution(size: int, kernel: int, dtype: Any, order: Any = torch.contiguous_format) -> None:
    image, weights = torch.zeros(16, 64, size, size, dtype=dtype), torch.zeros(64, 64, kernel, kernel, dtype=dtype)
    image, weights = (each.to(memory_format=order).requires_grad_() for each in (image, weights))
    _back(torch.nn.functional.conv2d(image, weights, padding=kernel // 2))


def _recurrent(samples: int, positions: int) -> None:
    layer = torch.nn.LSTM(256, 256, batch_first=True)
    _back(layer(torch.zeros(samples, positions, 256))[0])


def _back(result: torch.Tensor) -> None:
    result.backward(torch.zeros_like(result))


class Kind(NamedTuple):
    work: Callable[..., None]
    measured: tuple[Any, ...]
    other: tuple[Any, ...]
    """Small sizes, for what comes before the second of its kind."""
    options: Mapping[str, Any] = MappingProxyType({})


KINDS = {
    "product": Kind(_product, (2048, 1024, 4096), (300, 300, 300)),
    "product, few rows": Kind(_product, (128, 1024, 4096), (64, 300, 300)),
    "product, few rows, transposed": Kind(_product, (128, 1024, 4096), (64, 300, 300), {"transposed": True}),
    "product, narrow": Kind(_product, (4096, 1024, 128), (300, 300, 64)),
    "product, two panels": Kind(_product, (2048, 600, 4096), (300, 300, 300)),
    "product, bfloat16": Kind(_product, (4096, 512, 4096), (64, 64, 64), {"dtype": BFLOAT16}),
    "mean, bfloat16": Kind(_mean, (4096, 4096, BFLOAT16), (64, 64, BFLOAT16)),
    "attention": Kind(_attention, (256, torch.float32), (64, torch.float32)),
    "attention, bfloat16, odd length": Kind(_attention, (197, BFLOAT16), (64, BFLOAT16)),
    "attention, bfloat16": Kind(_attention, (256, BFLOAT16), (64, BFLOAT16)),
    "convolution": Kind(_convolution, (56, 3, torch.float32), (8, 3, torch.float32)),
    "convolution, at points": Kind(_convolution, (56, 1, torch.float32), (8, 1, torch.float32)),
    "convolution, bfloat16": Kind(_convolution, (56, 3, BFLOAT16), (8, 3, BFLOAT16)),
    "convolution, by channels": Kind(
        _convolution, (56, 3, torch.float32, torch.channels_last), (8, 3, torch.float32, torch.channels_last)
    ),
    "recurrent": Kind(_recurrent, (64, 96), (4, 3)),
    "recurrent, many samples": Kind(_recurrent, (256, 32), (130, 3)),
}


def run(arguments: argparse.Namespace) -> int:
    figures = Figures("kernel_memory")
    # A node profile with a memory limit sets this before a process starts: freed memory returns to the system.
    surroundings = {**os.environ, **environment(NodeProfile(memory_limit_bytes=1)), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "evaluation.costs.kernel_memory"]
    print(f"  {'MB, measured (counted)':62} {'at most':>15} {'for good':>15}")
    differences = []
    with subprocess.Popen(command, env=surroundings, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout
        for line in child.stdout:
            row = json.loads(line)
            most, kept = (f"{row[key][0] / 1e6:.1f} ({row[key][1] / 1e6:.1f})" for key in ("most", "kept"))
            print(f"  {row['call']:62} {most:>15} {kept:>15}", flush=True)
            differences.append(abs(row["most"][0] - row["most"][1]))
    if child.returncode:
        raise SystemExit("evaluation kernel_memory: the process that makes the calls has failed, see above")
    figures.add("kernel_calls", len(differences), "printed")
    figures.add("difference_bytes_median", median(differences), "printed")
    figures.add("difference_bytes_worst", max(differences), "printed")
    return figures.finish(arguments)


def main() -> None:
    """A line of JSON for every call, measured and counted."""
    torch.set_num_threads(1)
    for name, kind in KINDS.items():
        for second in (False, True):
            for position in count():
                row = in_fork(partial(_row, kind, second, position))
                if row is None:
                    break
                if isinstance(row, str):
                    raise SystemExit(f"{name}: {row}")
                row["call"] = f"{name}: {row['call']}, {'second' if second else 'first'}"
                print(json.dumps(row), flush=True)


def _row(kind: Kind, second: bool, position: int) -> dict[str, Any] | None:
    """Memory that one of a job's calls takes in this process."""
    watch = Watch(-1)
    if second:
        with watch:
            kind.work(*kind.other, **kind.options)
    watch.position = position
    with watch:
        kind.work(*kind.measured, **kind.options)
    return watch.row


class Watch(TorchDispatchMode):
    """Counts all calls that take memory for themselves, and measures the one at `position`."""

    def __init__(self, position: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.position = position
        self.row: dict[str, Any] | None = None
        self._kernels = Kernels()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if not self._kernels.has_formula(func):
            return func(*args, **(kwargs or {}))
        # The kernel's mark of the highest address space must equal the present size: a mapping that is never touched
        # fills the gap.
        now = address_space()
        filling = mmap(-1, now.peak - now.size) if now.peak > now.size else None
        before = address_space().size
        result = func(*args, **(kwargs or {}))
        after = address_space()
        counted = self._kernels.take(func, args, result)
        if self.position == 0:
            own = sum(leaf.untyped_storage().nbytes() for leaf in tree_leaves(result) if torch.is_tensor(leaf))
            self.row = {
                "call": func._overloadpacket.__name__,
                "most": [after.peak - before - own, sum(counted)],
                "kept": [after.size - before - own, counted.kept],
            }
        self.position -= 1
        if filling:
            filling.close()
        return result


if __name__ == "__main__":
    main()
