"""Floating-point operations of an operator: torch's own formulas, and those it lacks.

A multiplication and an addition are two. torch's formulas are those of `torch.utils.flop_counter`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.utils.flop_counter import flop_registry

from pharoah.torch_names import find_operator, key_by_operator, packet_of

_Formula = Callable[..., int]
_FLASH = "aten._scaled_dot_product_flash_attention"


def formula_of(func: Any) -> _Formula | None:
    """A function of an operator's arguments and its result (`out_val`)."""
    return _FORMULAS.get(packet_of(func))


def _vector_product(matrix: torch.Tensor, *_: Any, **__: Any) -> int:
    return 2 * matrix.numel()


def _add_vector_product(_: torch.Tensor, matrix: torch.Tensor, *__: Any, **___: Any) -> int:
    return 2 * matrix.numel()


def _multiply_grouped(left: torch.Tensor, right: torch.Tensor, *_: Any, **__: Any) -> int:
    """Every row of the left meets one matrix of the right; or every column of both, where both are flat."""
    return 2 * left.numel() * right.shape[-1]


def _recurrent_layer(sequence: torch.Tensor, weights: torch.Tensor, recurrent: torch.Tensor, *_: Any, **__: Any) -> int:
    """One layer and direction: products with the weights of all gates at every position."""
    positions = sequence.numel() // sequence.shape[-1]
    return 2 * positions * (weights.numel() + recurrent.numel())


def _recurrent_layer_backward(*arguments: Any, **options: Any) -> int:
    return 2 * _recurrent_layer(*arguments, **options)


def _as_elsewhere(same: Mapping[str, str]) -> dict[Any, _Formula]:
    """Formulas of operators that compute the same as others, for which torch has one."""
    known = {packet: flop_registry.get(find_operator(other)) for packet, other in key_by_operator(same).items()}
    return {packet: formula for packet, formula in known.items() if formula is not None}


_FORMULAS: dict[Any, _Formula] = {
    **flop_registry,
    **_as_elsewhere(
        {
            f"{_FLASH}_for_cpu": _FLASH,
            f"{_FLASH}_for_cpu_backward": f"{_FLASH}_backward",
        }
    ),
    **key_by_operator(
        {
            "aten.mv": _vector_product,
            "aten.addmv": _add_vector_product,
            "aten._grouped_mm": _multiply_grouped,
            "aten.mkldnn_rnn_layer": _recurrent_layer,
            "aten.mkldnn_rnn_layer_backward": _recurrent_layer_backward,
        }
    ),
}
