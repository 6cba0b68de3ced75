"""Whether a mask keeps positions from attending to later ones, which the values of the mask prove.

A shape proves nothing: padding, windows and relative positions have square masks as well. Two corners of a mask are
enough, since padding covers one of them at most: the first positions of the first sequence and the last positions of
the last one. A mask is causal when the positions of a corner that may attend to themselves attend to earlier ones
and to no later one.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from pharoah.torch_names import disable_current_modes

CORNER = 16
"""Positions on a side of a corner. Shorter corners could be parts of a window; longer ones cost time in a captured
step (0.06 to 0.08 ms for both corners of a mask, timeit)."""
KNOWN_CORNER = "pharoah_corner"
"""The attribute of a fake tensor that holds the values of its first corner (`pharoah.dryrun.mask_corners`)."""
_BLOCKED = -1e4
"""A position with this or less added to its score gets no attention: exp(-1e4) is 0 in every dtype. Public models add
-1e4, the lowest number of a dtype, or minus infinity."""


def is_causal(mask: Any) -> bool:
    """Whether the values of this mask are known and causal. False for everything that is not a square mask."""
    if not isinstance(mask, torch.Tensor) or mask.requires_grad or not is_square(mask) or not disable_current_modes:
        return False
    with disable_current_modes():  # in a dry run, a mode would make the values fake
        return any(_is_triangle(corner) for corner in _corners(mask))


def is_square(tensor: torch.Tensor) -> bool:
    """Whether the last two dimensions are equal, and longer than one."""
    shape = tensor.shape
    return len(shape) >= 2 and type(shape[-1]) is int and shape[-1] == shape[-2] > 1


def first_corner(tensor: torch.Tensor) -> torch.Tensor:
    """The first rows and columns of the first matrix: a view of at most `CORNER` x `CORNER` elements."""
    return tensor[(0,) * (tensor.dim() - 2)][:CORNER, :CORNER]


def _corners(mask: torch.Tensor) -> Iterator[list[list[Any]]]:
    known = getattr(mask, KNOWN_CORNER, None)
    if known is not None:
        yield known.tolist()
    elif type(mask) is torch.Tensor and mask.numel() and not _records_a_cuda_graph(mask):
        yield first_corner(mask).tolist()
        if mask.shape[-1] > CORNER or mask.dim() > 2:
            yield mask[(-1,) * (mask.dim() - 2)][-CORNER:, -CORNER:].tolist()


def _records_a_cuda_graph(mask: torch.Tensor) -> bool:
    """Reading a value from the device ends the recording of a CUDA graph with an error."""
    return mask.is_cuda and torch.cuda.is_current_stream_capturing()


def _is_triangle(corner: list[list[Any]]) -> bool:
    """Whether zeros and ones, or blocked and other scores, form a causal mask; for flags, either value may block."""
    values = {value for row in corner for value in row}
    if values <= {0, 1}:
        return any(_blocks_later([[value == allowed for value in row] for row in corner]) for allowed in (0, 1))
    return _blocks_later([[value > _BLOCKED for value in row] for row in corner])


def _blocks_later(allowed: list[list[bool]]) -> bool:
    """Whether positions see earlier ones and no later ones. Padding does not see itself, and does not count."""
    seen = [at for at, row in enumerate(allowed) if row[at]]
    later = any(allowed[row][column] for row in seen for column in seen if column > row)
    earlier = any(allowed[row][column] for row in seen for column in seen if column < row)
    return earlier and not later
