"""Numbers that are the same on every machine, digests of results, and waiting for a device."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from math import prod

import torch
from torch import Tensor

from pharoah_protocol.answer_digests import answer_digest
from pharoah_protocol.vocabulary import DeviceKind

_FACTOR, _OFFSET, _RANGE = 1103515245, 12345, 1 << 31
"""The linear congruential generator that the C standard gives as an example (ISO C99, 7.20.2.2)."""
DTYPES = {name: found for name, found in vars(torch).items() if isinstance(found, torch.dtype)}
"""All kinds of numbers by their names."""
_INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
"""Size of a number in bytes to the integers that have the same bits."""


def same_everywhere(*shape: int, device: str, dtype: str, start: int = 0) -> Tensor:
    """Numbers between -0.5 and 0.5 from integer arithmetic, whose bits no version of torch and no machine changes.

    `start` chooses other numbers. A number of the float32 has 24 bits, so that its conversion is exact.
    """
    make = _values if device == DeviceKind.CPU else _kept_values
    return make(prod(shape), start).reshape(shape).to(device=device, dtype=DTYPES[dtype])


def _values(count: int, start: int) -> Tensor:
    steps = torch.arange(start, start + count, dtype=torch.int64)
    for _ in range(3):  # one round leaves neighbours that differ by a constant
        steps = ((steps ^ (steps >> 13)) * _FACTOR + _OFFSET) % _RANGE
    return (steps >> 7).to(torch.float32) / (1 << 24) - 0.5


_kept_values = lru_cache(maxsize=4)(_values)
"""The same numbers for each GPU of a node: making them takes seconds of a core. The process ends with its order."""


def bits(tensor: Tensor) -> Tensor:
    """The same memory as integers: numbers that are not a number are equal to themselves there."""
    return tensor.contiguous().view(_INTEGERS[tensor.element_size()])


def digest(tensor: Tensor) -> str:
    """The digest of the bits of a tensor, with the version of torch and of the library of its device."""
    libraries = [torch.__version__, torch.backends.cpu.get_cpu_capability()]
    if tensor.is_cuda:
        libraries += [str(torch.version.cuda), str(torch.backends.cudnn.version())]
    return answer_digest(" ".join(libraries), bits(tensor.detach()).cpu().numpy().tobytes())


def waiting(device: str) -> Callable[[], object]:
    """A call that returns when the device has done everything that was queued."""
    return torch.cuda.synchronize if device == DeviceKind.CUDA else lambda: None
