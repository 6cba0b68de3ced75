"""Digests of what operators compute, and what their bits depend on. It imports torch."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cache, reduce
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from pharoah.capture import hardware
from pharoah.replay.step_file import CPU_VARIABLES, FLAGS, FLUSH_DENORMAL, GPU_VARIABLES, NodeClass, Switches

_WORDS = 1 << 20
"""Words of eight bytes that are added up at once."""
_MASK = (1 << 64) - 1
_FACTOR = 0x9E3779B97F4A7C15
"""Odd, so that multiplying by it loses no bit."""
DENORMAL = 1e-40
"""A 32-bit number that is 0 where such small ones are flushed (`torch.set_flush_denormal`, which has no way to ask)."""


def digest_of(results: Iterable[Tensor]) -> str:
    """The digest of the bits of some tensors: sums of their words, each times an odd number of its own, modulo 2^64.

    A change within one word always changes it; other changes by accident once in 10^19. It is computed where the
    tensors are, and faster than a cryptographic hash, which nobody needs here: no one attacks it.
    """
    found = 0
    for tensor in results:
        flat = tensor.detach().contiguous().view(-1)
        if flat.storage_offset() * flat.element_size() % 8:
            flat = flat.clone()  # words begin at multiples of their size
        content = flat.view(torch.uint8)
        whole = content.numel() // 8 * 8
        for words in (*content[:whole].view(torch.int64).split(_WORDS), content[whole:].to(torch.int64)):
            added = int((words * _factors(words.device)[: words.numel()]).sum())
            found = (found * _FACTOR + added + words.numel()) & _MASK
    return f"{found:016x}"


@cache
def _factors(device: torch.device) -> Tensor:
    """Odd numbers that look random: SplitMix64 (G. Steele and others, OOPSLA 2014) of 0, 1, 2, and so on."""
    with np.errstate(over="ignore"):
        mixed = np.arange(1, _WORDS + 1, dtype=np.uint64) * np.uint64(_FACTOR)
        for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
            mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
    mixed = (mixed ^ (mixed >> np.uint64(31))) | np.uint64(1)
    return torch.from_numpy(mixed.view(np.int64)).to(device)


def node_class(on_gpu: bool) -> NodeClass:
    """The class of this node, for a step that uses a GPU or does not."""
    cpu = f"{hardware.cpu_field('model name')} {torch.backends.cpu.get_cpu_capability()}".strip()
    gpu = ""
    if on_gpu:
        libraries = f"CUDA {torch.version.cuda}, cuDNN {torch.backends.cudnn.version()}"
        gpu = f"{torch.cuda.get_device_name()}, {libraries}"
    names = CPU_VARIABLES + (GPU_VARIABLES if on_gpu else ())
    return NodeClass(torch.__version__, cpu, gpu, {name: os.environ[name] for name in names if name in os.environ})


def switches() -> Switches:
    """As they are now."""
    flags = {name: bool(getattr(*_place(name))) for name in FLAGS if hasattr(*_place(name))}
    flags[FLUSH_DENORMAL] = float(torch.tensor(DENORMAL) * 1) == 0
    return Switches(
        torch.get_num_threads(),
        torch.get_float32_matmul_precision(),
        torch.are_deterministic_algorithms_enabled(),
        flags,
    )


@contextmanager
def switch(wanted: Switches) -> Iterator[None]:
    """Inside, they are as wanted."""
    before = switches()
    _switch(wanted)
    try:
        yield
    finally:
        _switch(before)


def _switch(to: Switches) -> None:
    torch.set_num_threads(to.threads)
    torch.set_float32_matmul_precision(to.matmul_precision)
    torch.use_deterministic_algorithms(to.deterministic, warn_only=True)
    now = switches().flags
    for name, value in to.flags.items():
        if now.get(name) == value:
            continue  # torch may refuse to set a flag, and reading it harms nothing
        if name == FLUSH_DENORMAL:
            torch.set_flush_denormal(value)
        else:
            setattr(*_place(name), value)


class _Place(NamedTuple):
    """Where a flag of `torch.backends` is."""

    module: Any
    name: str


def _place(flag: str) -> _Place:
    *modules, name = flag.split(".")
    return _Place(reduce(getattr, modules, torch.backends), name)
