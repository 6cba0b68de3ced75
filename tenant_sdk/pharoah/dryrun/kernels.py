"""Memory that kernels of a CPU take for themselves and that no tensor shows: while they run, and for ever.

Nobody documents it; these are measurements (`docs/adr/0011-memory.md`) of oneDNN and MKL as torch ships them. oneDNN
compiles code for each shape it meets and works in an order of its own; MKL keeps the buffers of its largest products.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, NamedTuple

import torch

aten = torch.ops.aten
_MB = 1_000_000


class Taken(NamedTuple):
    """Bytes of one call besides its results."""

    kept: int = 0
    passing: int = 0


def are_known() -> bool:
    """Whether this torch has the kernels that were measured; on other processors it has others."""
    return bool(torch.backends.mkl.is_available() and torch.backends.mkldnn.is_available())


class Kernels:
    """Told of every call in order, since what was taken once is used again."""

    def __init__(self) -> None:
        self._known: set[Any] = set()
        self._buffer = 0
        """Bytes of the largest that MKL has."""

    def take(self, func: Any, args: Any, result: Any) -> Taken:
        """What this call takes, after those before it."""
        formula = _FORMULAS.get(getattr(func, "_overloadpacket", func))
        return formula(self, args, result) if formula else Taken()

    @staticmethod
    def knows(func: Any) -> bool:
        """Whether a call of this operator takes anything."""
        return getattr(func, "_overloadpacket", func) in _FORMULAS

    def code(self, first: int, later: int, *key: Any) -> int:
        """Bytes of code for a shape: none where it was met before, more for the first of its kind."""
        if key in self._known:
            return 0
        kind = key[0]
        size = later if kind in self._known else first
        self._known |= {kind, key}
        return size

    def buffer(self, inner: int, columns: int) -> int:
        """MKL packs panels of the right side; a buffer that was large enough before will do."""
        panel = inner // 2 if _PANEL < inner < _TWO_PANELS else min(inner, _PANEL)
        size = _LEFT_PANEL + 4 * columns * panel
        if size <= self._buffer:
            return 0
        self._buffer = size
        return size


_PANEL, _TWO_PANELS, _LEFT_PANEL = 432, 640, 4_650_000
"""Rows of a panel, from where on two are not made equal, and the bytes of a panel of the left side."""
_NARROW_PANEL = 512
"""Rows of a panel of bfloat16."""
_FEWEST_COLUMNS, _FEWEST_ROWS = 256, 256
"""Of a product that MKL packs; a transposed right side it packs for fewer rows."""
_MANY_IMAGES = 16
"""From where on float32 convolutions at every point are left to oneDNN on one thread, too."""
_BACKWARD_CODE = {
    (True, False): 1_300_000,
    (True, True): 3_200_000,
    (False, False): 1_600_000,
    (False, True): 2_200_000,
}
"""Bytes of code for a convolution's backward pass: of float32 or not, with strides or without."""
_GRADIENT_OF_OUTPUT = 10
"""Among the arguments of `mkldnn_rnn_layer_backward`."""
_MERGED_BELOW = 128
"""Samples in a batch, up to which all positions of a recurrent layer are multiplied at once in a forward pass."""


def _product(kernels: Kernels, left: torch.Tensor, right: torch.Tensor, result: torch.Tensor) -> Taken:
    (rows, inner), columns = left.shape, right.shape[1]
    if result.dtype == torch.float32:
        packs = columns >= _FEWEST_COLUMNS and (rows >= _FEWEST_ROWS or not right.is_contiguous())
        return Taken(kernels.buffer(inner, columns) if packs else 0)
    if result.dtype != torch.bfloat16:
        return Taken()
    kept = kernels.code(3 * _MB, 350_000, "product", left.shape, right.shape, left.stride(), right.stride())
    # Without tiles of bfloat16 in the processor, all sums are held in float32, and a panel is packed besides.
    return Taken(kept, 0 if _has_tiles() else 4 * result.numel() + 2 * columns * min(inner, _NARROW_PANEL))


def _mm(kernels: Kernels, args: Any, result: Any) -> Taken:
    return _product(kernels, args[0], args[1], result)


def _addmm(kernels: Kernels, args: Any, result: Any) -> Taken:
    return _product(kernels, args[1], args[2], result)


def _bmm(kernels: Kernels, args: Any, result: Any) -> Taken:
    if result.dtype != torch.bfloat16:
        return Taken()
    return Taken(kernels.code(3_600_000, 300_000, "bmm", args[0].shape, args[1].shape, args[0].stride()))


def _attention(kernels: Kernels, args: Any, result: Any) -> Taken:
    wide, length = result[0].dtype == torch.float32, args[0].shape[-2]
    return Taken(kernels.buffer(1, length) if wide else kernels.code(4_400_000, 4_400_000, "attention", args[0].shape))


def _convolution(kernels: Kernels, args: Any, result: torch.Tensor) -> Taken:
    """First image and weights, then the result, in oneDNN's own order, besides the code."""
    image, weights, _, stride = args[:4]
    if _is_product(image, weights, stride):
        return Taken(kernels.buffer(*weights.shape[1::-1]) if weights.shape[0] >= _FEWEST_COLUMNS else 0)
    if not _is_reordered(image):
        return Taken(kernels.code(800_000, 500_000, "convolution", *_shape(image, weights)), weights.nbytes)
    kept = kernels.code(1_400_000, 1_100_000, "convolution", *_shape(image, weights))
    return Taken(kept, max(image.nbytes + weights.nbytes, result.nbytes))


def _convolution_backward(kernels: Kernels, args: Any, result: Any) -> Taken:
    """The image and the gradient that came in oneDNN's own order, and the gradient of weights; besides the code."""
    gradient, image, weights, _, stride = args[:5]
    if _is_product(image, weights, stride):
        return Taken()
    wide = image.dtype == torch.float32
    outgoing, strided = result[0] is not None, any(step > 1 for step in stride)
    later = _BACKWARD_CODE[wide, strided] if outgoing else 800_000
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
    """Whether a convolution is left to MKL: float32, at every point, of few images, on one thread."""
    pointwise = all(size == 1 for size in (*weights.shape[2:], *stride))
    small = image.shape[0] < _MANY_IMAGES and torch.get_num_threads() == 1
    return image.dtype == torch.float32 and pointwise and small


def _is_reordered(image: torch.Tensor) -> bool:
    """Images by channels keep their order."""
    return image.is_contiguous() or not (image.dim() == 4 and image.is_contiguous(memory_format=torch.channels_last))


def _recurrent(kernels: Kernels, args: Any, _: Any) -> Taken:
    """Weights in oneDNN's own order, and all gates in float32, of every position where these are computed together."""
    positions, samples = args[0].shape[:2]
    kept = kernels.code(6_500_000, 300_000, "recurrent", *_shape(args[0], args[1]))
    return Taken(kept, _weights(args) + _gates(args) * (positions if samples < _MERGED_BELOW else 1))


def _recurrent_backward(kernels: Kernels, args: Any, _: Any) -> Taken:
    """The weights and their gradients, the gates of every position, and the gradient that came in order."""
    kept = kernels.code(1_200_000, 500_000, "recurrent backward", *_shape(args[0], args[1]))
    gradient = args[_GRADIENT_OF_OUTPUT]
    copied = gradient.nbytes if gradient is not None and not gradient.is_contiguous() else 0
    return Taken(kept, copied + 2 * _weights(args) + _gates(args) * int(args[0].shape[0]))


def _weights(args: Any) -> int:
    return int(args[1].nbytes + args[2].nbytes)


def _gates(args: Any) -> int:
    """Bytes of those of one position (`merge_gemm_layer` in oneDNN)."""
    return 4 * int(args[0].shape[1]) * int(args[1].shape[0])


@cache
def _has_tiles() -> bool:
    """AMX. Processors that only have dot products of bfloat16 (AVX-512 BF16) sum up in float32 all the same."""
    return bool(torch.cpu._is_amx_tile_supported())


_FORMULAS: dict[Any, Callable[[Kernels, Any, Any], Taken]] = {
    aten.mm: _mm,
    aten.addmm: _addmm,
    aten.bmm: _bmm,
    aten._scaled_dot_product_flash_attention_for_cpu: _attention,
    aten.convolution: _convolution,
    aten.convolution_backward: _convolution_backward,
    aten.mkldnn_rnn_layer: _recurrent,
    aten.mkldnn_rnn_layer_backward: _recurrent_backward,
}
