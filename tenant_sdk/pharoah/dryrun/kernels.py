"""Memory that kernels of a CPU allocate outside of tensors, for the duration of a call or for good.

It is not documented. The numbers are measurements of oneDNN and MKL as torch ships them (`docs/adr/0011-memory.md`,
`evaluation/costs/kernel_memory.py`). oneDNN compiles code for each new shape and reorders data; MKL keeps the buffers
of its largest products.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, NamedTuple

import torch

from pharoah.torch_names import is_amx_tile_supported, key_by_operator, packet_of

_MB = 1_000_000


class Taken(NamedTuple):
    """Bytes that one call allocates besides its results."""

    kept: int = 0
    """Bytes that stay allocated."""
    passing: int = 0
    """Bytes that are freed when the call ends."""


def are_known() -> bool:
    """Whether this torch has the kernels that were measured; torch has other kernels on other processors."""
    return bool(torch.backends.mkl.is_available() and torch.backends.mkldnn.is_available())


class Kernels:
    """Predicts the memory of calls in their order, since later calls use the memory of earlier ones again."""

    def __init__(self) -> None:
        self._known: set[Any] = set()
        self._buffer = 0
        """Bytes of the largest buffer that MKL keeps."""

    def take(self, func: Any, args: Any, result: Any) -> Taken:
        """What a call allocates, given the calls before it."""
        formula = _FORMULAS.get(packet_of(func))
        return formula(self, args, result) if formula else Taken()

    @staticmethod
    def has_formula(func: Any) -> bool:
        """Whether calls of this operator allocate memory besides their results."""
        return packet_of(func) in _FORMULAS

    def code(self, first: int, later: int, *key: Any) -> int:
        """Bytes of code for a shape: none for a known shape, more for the first shape of a kind."""
        if key in self._known:
            return 0
        kind = key[0]
        size = later if kind in self._known else first
        self._known |= {kind, key}
        return size

    def buffer(self, inner: int, columns: int) -> int:
        """Bytes by which the buffer for packed panels of the right side grows."""
        panel = inner // 2 if _PANEL < inner < _TWO_PANELS else min(inner, _PANEL)
        size = _LEFT_PANEL + 4 * columns * panel
        if size <= self._buffer:
            return 0
        self._buffer = size
        return size


_PANEL, _TWO_PANELS, _LEFT_PANEL = 432, 640, 4_650_000
"""Rows of a panel; rows from which on two panels are no longer made equal; bytes of a panel of the left side."""
_NARROW_PANEL = 512
"""Rows of a panel of bfloat16."""
_MIN_COLUMNS, _MIN_ROWS = 256, 256
"""The least columns and rows of a product that MKL packs. It packs a transposed right side for fewer rows, too."""
_MANY_IMAGES = 16
"""Batch size from which on oneDNN computes pointwise float32 convolutions even with one thread."""
_BACKWARD_CODE = {
    (True, False): 1_300_000,
    (True, True): 3_200_000,
    (False, False): 1_600_000,
    (False, True): 2_200_000,
}
"""Bytes of code for a convolution's backward pass, by whether it is in float32 and whether it is strided."""
_GRADIENT_OF_OUTPUT = 10
"""Position among the arguments of `mkldnn_rnn_layer_backward`."""
_TILE_ROWS = 32
"""Rows that two tiles of bfloat16 have together."""
_MERGED_BELOW = 128
"""Batch size below which a recurrent layer multiplies all positions at once in a forward pass."""


def _product(kernels: Kernels, left: torch.Tensor, right: torch.Tensor, result: torch.Tensor) -> Taken:
    (rows, inner), columns = left.shape, right.shape[1]
    if result.dtype == torch.float32:
        packs = columns >= _MIN_COLUMNS and (rows >= _MIN_ROWS or not right.is_contiguous())
        return Taken(kernels.buffer(inner, columns) if packs else 0)
    if result.dtype != torch.bfloat16:
        return Taken()
    call = ("product", left.shape, right.shape, left.stride(), right.stride())
    if _has_tiles():
        return Taken(kernels.code(1_900_000, 1_800_000, *call))
    # Without tiles of bfloat16 in the processor, all sums are held in float32, and a panel is packed besides.
    passing = 4 * result.numel() + 2 * columns * min(inner, _NARROW_PANEL)
    return Taken(kernels.code(3 * _MB, 350_000, *call), passing)


def _mm(kernels: Kernels, args: Any, result: Any) -> Taken:
    return _product(kernels, args[0], args[1], result)


def _addmm(kernels: Kernels, args: Any, result: Any) -> Taken:
    return _product(kernels, args[1], args[2], result)


def _mean(_: Kernels, args: Any, __: Any) -> Taken:
    """A copy in float32 of what has two bytes per number, on every processor."""
    values = args[0]
    return Taken(passing=4 * values.numel() if values.dtype in (torch.bfloat16, torch.float16) else 0)


def _bmm(kernels: Kernels, args: Any, result: Any) -> Taken:
    if result.dtype != torch.bfloat16:
        return Taken()
    first, later = (1_300_000, 1_300_000) if _has_tiles() else (3_600_000, 300_000)
    return Taken(kernels.code(first, later, "bmm", args[0].shape, args[1].shape, args[0].stride()))


def _attention(kernels: Kernels, args: Any, result: Any) -> Taken:
    if result[0].dtype == torch.float32:
        return Taken(kernels.buffer(1, args[0].shape[-2]))
    if _has_tiles():
        return Taken(kernels.code(1_000_000, 1_000_000, "attention", args[0].shape), 4 * args[0].numel())
    return Taken(kernels.code(4_400_000, 4_400_000, "attention", args[0].shape))


def _attention_backward(kernels: Kernels, args: Any, _: Any) -> Taken:
    """A float32 number for each element of the queries; with tiles also code, more where lengths do not fit tiles."""
    query, key = args[1], args[2]
    if query.dtype == torch.float32:
        return Taken(passing=4 * query.numel())
    if not _has_tiles():
        return Taken()
    fits = query.shape[-2] % _TILE_ROWS == key.shape[-2] % _TILE_ROWS == 0
    code = 5_300_000 if fits else 13_300_000
    return Taken(kernels.code(code, code, "attention backward", query.shape, key.shape), 4 * query.numel())


def _convolution(kernels: Kernels, args: Any, result: torch.Tensor) -> Taken:
    """Besides the code: image and weights, then the result, in oneDNN's order."""
    image, weights, _, stride = args[:4]
    if _is_product(image, weights, stride):
        return Taken(kernels.buffer(*weights.shape[1::-1]) if weights.shape[0] >= _MIN_COLUMNS else 0)
    if not _is_reordered(image):
        return Taken(kernels.code(800_000, 500_000, "convolution", *_shape(image, weights)), weights.nbytes)
    if image.dtype == torch.bfloat16 and _has_tiles():  # image and result are there in oneDNN's order together
        kept = kernels.code(2_200_000, 1_700_000, "convolution", *_shape(image, weights))
        return Taken(kept, image.nbytes + weights.nbytes + result.nbytes)
    kept = kernels.code(1_400_000, 1_100_000, "convolution", *_shape(image, weights))
    return Taken(kept, max(image.nbytes + weights.nbytes, result.nbytes))


def _convolution_backward(kernels: Kernels, args: Any, result: Any) -> Taken:
    """Besides the code: the image and the incoming gradient in oneDNN's order, and the gradient of the weights."""
    gradient, image, weights, _, stride = args[:5]
    if _is_product(image, weights, stride):
        return Taken()
    wide = image.dtype == torch.float32
    outgoing, strided = result[0] is not None, any(step > 1 for step in stride)
    later = _BACKWARD_CODE[wide, strided] if outgoing else 800_000
    if not wide and _has_tiles():
        later += 900_000
    kept = kernels.code(later + 400_000, later, "convolution backward", *_shape(image, weights))
    if not _is_reordered(image):
        return Taken(kept, 2 * weights.nbytes)
    if not wide:  # sums of the weights' gradient are held in float32
        return Taken(kept, image.nbytes + gradient.nbytes + 2 * weights.nbytes)
    # For an image that was strided over, the gradient that is made takes as much as the image.
    images = image.nbytes + max(gradient.nbytes, image.nbytes if outgoing and strided else 0)
    return Taken(kept, max(images, weights.nbytes))


def _shape(image: torch.Tensor, weights: torch.Tensor) -> tuple[Any, ...]:
    return image.shape, weights.shape, image.dtype


def _is_product(image: torch.Tensor, weights: torch.Tensor, stride: Sequence[int]) -> bool:
    """Whether MKL computes a convolution: float32, pointwise, few images, one thread."""
    pointwise = all(size == 1 for size in (*weights.shape[2:], *stride))
    small = image.shape[0] < _MANY_IMAGES and torch.get_num_threads() == 1
    return image.dtype == torch.float32 and pointwise and small


def _is_reordered(image: torch.Tensor) -> bool:
    """Whether oneDNN reorders an image. It does not reorder channels-last images."""
    return image.is_contiguous() or not (image.dim() == 4 and image.is_contiguous(memory_format=torch.channels_last))


def _recurrent(kernels: Kernels, args: Any, _: Any) -> Taken:
    """Weights in oneDNN's order, and the gates in float32: of all positions where these are computed together."""
    positions, samples = args[0].shape[:2]
    kept = kernels.code(6_500_000, 300_000, "recurrent", *_shape(args[0], args[1]))
    return Taken(kept, _weights(args) + _gates(args) * (positions if samples < _MERGED_BELOW else 1))


def _recurrent_backward(kernels: Kernels, args: Any, _: Any) -> Taken:
    """The weights and their gradients, the gates of every position, and a contiguous copy of the incoming gradient."""
    kept = kernels.code(1_200_000, 500_000, "recurrent backward", *_shape(args[0], args[1]))
    gradient = args[_GRADIENT_OF_OUTPUT]
    copied = gradient.nbytes if gradient is not None and not gradient.is_contiguous() else 0
    return Taken(kept, copied + 2 * _weights(args) + _gates(args) * int(args[0].shape[0]))


def _weights(args: Any) -> int:
    return int(args[1].nbytes + args[2].nbytes)


def _gates(args: Any) -> int:
    """Bytes of the gates of one position (`merge_gemm_layer` in oneDNN)."""
    return 4 * int(args[0].shape[1]) * int(args[1].shape[0])


@cache
def _has_tiles() -> bool:
    """Whether the processor has AMX. With AVX-512 BF16 only, kernels still accumulate in float32."""
    return bool(is_amx_tile_supported())


_FORMULAS: dict[Any, Callable[[Kernels, Any, Any], Taken]] = key_by_operator(
    {
        "aten.mm": _mm,
        "aten.addmm": _addmm,
        "aten.bmm": _bmm,
        "aten.mean": _mean,
        "aten._scaled_dot_product_flash_attention_for_cpu": _attention,
        "aten._scaled_dot_product_flash_attention_for_cpu_backward": _attention_backward,
        "aten.convolution": _convolution,
        "aten.convolution_backward": _convolution_backward,
        "aten.mkldnn_rnn_layer": _recurrent,
        "aten.mkldnn_rnn_layer_backward": _recurrent_backward,
    }
)
