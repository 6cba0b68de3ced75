"""DistributedDataParallel's reducer without values: the same buckets, reduced in the same places.

The real one is C++ that copies gradients into buckets. A communication hook gets the bucket as from the real one.
Everything else of DDP stays as it is.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch

from pharoah.torch_names import execution_engine, first_bucket_bytes


class Bucket:
    """What a communication hook gets: `torch.distributed.GradBucket`, which only C++ can make."""

    def __init__(self, flat: torch.Tensor, parameters: list[torch.nn.Parameter], index: int, *, is_last: bool) -> None:
        self._flat, self._parameters, self._index, self._is_last = flat, parameters, index, is_last

    def buffer(self) -> torch.Tensor:
        return self._flat

    def set_buffer(self, buffer: torch.Tensor) -> None:
        self._flat = buffer

    def parameters(self) -> list[torch.nn.Parameter]:
        return self._parameters

    def gradients(self) -> list[torch.Tensor]:
        parts = self._flat.split([parameter.numel() for parameter in self._parameters])
        return [part.view_as(parameter) for part, parameter in zip(parts, self._parameters, strict=True)]

    def index(self) -> int:
        return self._index

    def is_last(self) -> bool:
        return self._is_last


class Reducer:
    """Reduces a bucket as soon as the gradients in it are there.

    Buckets are those of the second step on (`Reducer::rebuild_buckets` in torch/csrc/distributed/c10d): gradients in
    the order they become ready, a bucket full when it reaches its limit, the first limit smaller than the others, one
    row of buckets for each dtype.
    """

    def __init__(self, parameters: Sequence[torch.nn.Parameter], *positional: Any) -> None:
        _, _, self._group, _, self._most_bytes, *rest = positional
        self._finds_unused, self._grads_are_views = [*map(bool, rest), False, False][:2]
        self._hook: Callable[[Bucket], Any] | None = None
        self._missing: set[int] = set()
        self._parameters = list(parameters)
        self._buckets: dict[torch.dtype, list[torch.nn.Parameter]] = {}
        self._full = 0
        self._memory: list[torch.Tensor] = []
        """The memory of the buckets in the order in which they become full; it is never freed."""
        for parameter in parameters:
            parameter.register_post_accumulate_grad_hook(self._ready)

    def use_hook(self, state: Any, hook: Callable[..., Any]) -> None:
        """Communicate by `hook(state, bucket)`, which returns a future, from now on."""
        self._hook = functools.partial(hook, state)

    def prepare_for_backward(self, _: object) -> None:
        """Gradients of the next backward pass are to be reduced; without this call (`no_sync`) they are not."""
        self._missing = {id(parameter) for parameter in self._parameters}
        self._full = 0

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *_, **__: None  # logging, rebuilding, everything about values

    def _ready(self, parameter: torch.nn.Parameter) -> None:
        if id(parameter) not in self._missing:
            return
        if len(self._missing) == len(self._parameters) and execution_engine is not None:
            execution_engine.queue_callback(self._finish)
        self._missing.discard(id(parameter))
        bucket = self._buckets.setdefault(parameter.dtype, [])
        bucket.append(parameter)
        limit = self._most_bytes if self._full else min(first_bucket_bytes, self._most_bytes)
        if _bytes(bucket) >= limit or not self._missing:
            self._reduce(parameter.dtype)

    def _finish(self) -> None:
        """The backward pass is over; gradients that never came belong to parameters it did not use."""
        for dtype in list(self._buckets):
            self._reduce(dtype)
        if self._finds_unused:
            torch.distributed.all_reduce(torch.zeros(len(self._parameters), dtype=torch.int32), group=self._group)
        self._missing = set()

    def _reduce(self, dtype: torch.dtype) -> None:
        bucket = self._buckets.pop(dtype)
        sizes = [parameter.numel() for parameter in bucket]
        with torch.no_grad():
            if self._full == len(self._memory) or self._memory[self._full].numel() != sum(sizes):
                self._memory[self._full :] = [bucket[0].new_empty(sum(sizes))]
            flat = self._memory[self._full]
            if self._hook is None:
                torch.distributed.all_reduce(flat, group=self._group)
            else:
                changed = self._hook(Bucket(flat, bucket, self._full, is_last=not self._missing)).wait()
                if isinstance(changed, torch.Tensor) and changed is not flat:
                    flat.copy_(changed)
            if self._grads_are_views:
                for parameter, part in zip(bucket, flat.split(sizes), strict=True):
                    parameter.grad = part.view_as(parameter)
        self._full += 1


def _bytes(bucket: list[torch.nn.Parameter]) -> int:
    return sum(parameter.numel() * parameter.element_size() for parameter in bucket)
