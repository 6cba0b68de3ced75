"""Representative sizes: how many elements an operator selects whose result depends on values.

A dry run does not have these values. It takes half of the elements as selected, at least one: the operators that follow
are the same for any number, and a number that is known can be followed through every library.

Runs in the dry-run child only.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from pharoah.torch_names import FakeTensor, unset_fake_temporarily

StandIn = Callable[..., Any]


def representative(elements: int) -> int:
    """How many of so many elements are taken as selected."""
    return max(1, elements // 2) if elements else 0


class RepresentativeSizes:
    """Stand-ins for operators whose result has a size that depends on the values of a fake tensor."""

    def __init__(self, assume: Callable[[str], None]) -> None:
        """`assume` gets a sentence for each number that was made up."""
        self._assume = assume
        self.stand_ins: dict[str, StandIn] = {
            "aten.nonzero.default": self._nonzero,
            "aten.masked_select.default": self._select,
            "aten._unique2.default": self._unique,
            "aten.unique_consecutive.default": self._unique_in_a_row,
            "aten.unique_dim.default": self._unique_along,
            "aten.repeat_interleave.Tensor": self._repeat,
            "aten.bincount.default": self._count,
            "aten._local_scalar_dense.default": _scalar,
            "aten.allclose.default": _agrees,
            "aten.equal.default": _agrees,
            "aten._pack_padded_sequence.default": _pack,
            "aten._pad_packed_sequence.default": _pad,
        }

    def positions(self, index: Any) -> list[torch.Tensor]:
        """The positions that a mask of unknown values selects, one tensor for each dimension of the mask."""
        chosen = self._some(index.numel())
        return [index.new_empty(chosen, dtype=torch.int64) for _ in range(index.dim())]

    def _some(self, elements: int) -> int:
        chosen = representative(elements)
        self._assume(f"{chosen} of {elements} elements were taken as selected")
        return chosen

    def _nonzero(self, _: Any, tensor: torch.Tensor) -> torch.Tensor:
        return tensor.new_empty((self._some(tensor.numel()), tensor.dim()), dtype=torch.int64)

    def _select(self, _: Any, tensor: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        elements = int(torch.broadcast_shapes(tensor.shape, mask.shape).numel())
        return tensor.new_empty(self._some(elements))

    def _unique(self, _: Any, tensor: torch.Tensor, *__: Any, **___: Any) -> tuple[torch.Tensor, ...]:
        chosen = self._some(tensor.numel())
        numbers = tensor.new_empty(chosen, dtype=torch.int64)
        return tensor.new_empty(chosen), torch.empty_like(tensor, dtype=torch.int64), numbers

    def _unique_in_a_row(
        self, _: Any, tensor: torch.Tensor, *options: Any, dim: int | None = None, **__: Any
    ) -> tuple[torch.Tensor, ...]:
        along = options[2] if len(options) > 2 else dim
        if along is not None:
            return self._unique_along(_, tensor, along)
        return self._unique(_, tensor)

    def _unique_along(self, _: Any, tensor: torch.Tensor, dim: int, *__: Any, **___: Any) -> tuple[torch.Tensor, ...]:
        shape = list(tensor.shape)
        elements = shape[dim]
        shape[dim] = self._some(elements)
        numbers = tensor.new_empty(shape[dim], dtype=torch.int64)
        return tensor.new_empty(shape), tensor.new_empty(elements, dtype=torch.int64), numbers

    def _repeat(self, _: Any, repeats: torch.Tensor, *, output_size: int | None = None) -> torch.Tensor:
        if output_size is None:
            self._assume("each element was taken as repeated once")
        return repeats.new_empty(repeats.numel() if output_size is None else output_size, dtype=torch.int64)

    def _count(self, _: Any, tensor: torch.Tensor, weights: Any = None, minlength: int = 0) -> torch.Tensor:
        dtype = torch.float64 if weights is not None else torch.int64
        return tensor.new_empty(max(minlength, self._some(tensor.numel())), dtype=dtype)


def _scalar(_: Any, tensor: torch.Tensor) -> Any:
    """A value that a library reads for itself, such as a check of its arguments; reads of the script are placeholders
    already (`pharoah.dryrun.placeholder_values`)."""
    if tensor.dtype == torch.bool:
        return False
    return 1.0 if tensor.is_floating_point() else 1


def _agrees(*_: Any, **__: Any) -> bool:
    """A library compares tensors to check them. The script's own comparisons are branches."""
    return True


def _pack(_: Any, sequences: torch.Tensor, lengths: torch.Tensor, batch_first: bool) -> tuple[torch.Tensor, ...]:
    """Packed sequences. The batch sizes are real: the layers that read them need their values."""
    number, longest = sequences.shape[:2] if batch_first else (sequences.shape[1], sequences.shape[0])
    known = _read_lengths(lengths) or [longest] * number
    sizes = [sum(length > at for length in known) for at in range(max(known))]
    with unset_fake_temporarily():
        batch_sizes = torch.tensor(sizes, dtype=torch.int64)
    return sequences.new_empty(sum(sizes), *sequences.shape[2:]), batch_sizes


def _pad(
    _: Any, data: torch.Tensor, batch_sizes: torch.Tensor, batch_first: bool, __: float, total_length: int
) -> tuple[torch.Tensor, ...]:
    """Padded sequences again, and their lengths."""
    longest = max(batch_sizes.shape[0], total_length)
    sizes = _read_lengths(batch_sizes) or [int(data.shape[0]) // max(1, longest)] * longest
    shape = (sizes[0], longest) if batch_first else (longest, sizes[0])
    with unset_fake_temporarily():
        lengths = torch.tensor([sum(size > at for size in sizes) for at in range(sizes[0])], dtype=torch.int64)
    return data.new_empty(*shape, *data.shape[1:]), lengths


def _read_lengths(lengths: torch.Tensor) -> list[int]:
    """Values of a real tensor; nothing for a fake one."""
    if isinstance(lengths, FakeTensor):
        return []
    with unset_fake_temporarily():
        return [int(length) for length in lengths.tolist()]
