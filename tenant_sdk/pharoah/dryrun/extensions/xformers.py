"""xFormers: memory-efficient attention with many kinds of masks.

https://facebookresearch.github.io/xformers
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pharoah.dryrun.extensions._extension import Extension


def _modules() -> Mapping[str, Mapping[str, Any]]:
    from torch import Tensor
    from torch.nn import functional

    class Mask:
        """Which positions attend to which; only whether it is causal counts here."""

        is_causal = False

        def __init__(self, *_: Any, **__: Any) -> None: ...

        @classmethod
        def from_seqlens(cls, *_: Any, **__: Any) -> Mask:
            return cls()

        def make_causal(self) -> Mask:
            return CausalMask()

    class CausalMask(Mask):
        is_causal = True

    def attend(
        query: Tensor, key: Tensor, value: Tensor, attn_bias: Any = None, p: float = 0.0,
        scale: float | None = None, **_: Any,
    ) -> Tensor:  # fmt: skip
        """(batch, positions, heads, width) or (batch, positions, width) each."""
        if query.dim() == 3:
            return attend(query[:, :, None], key[:, :, None], value[:, :, None], attn_bias, p, scale)[:, :, 0]
        mask = attn_bias if isinstance(attn_bias, Tensor) else None
        causal = isinstance(attn_bias, Mask) and attn_bias.is_causal
        mixed = functional.scaled_dot_product_attention(
            query.transpose(1, 2), key.transpose(1, 2), value.transpose(1, 2), mask, p, causal, scale=scale
        )
        return mixed.transpose(1, 2)

    masks = {
        "LowerTriangularMask": CausalMask,
        "BlockDiagonalMask": Mask,
        "BlockDiagonalCausalMask": CausalMask,
        "AttentionBias": Mask,
    }
    operators = {"memory_efficient_attention": attend, **masks}
    return {
        "xformers": {},
        "xformers.ops": operators,
        "xformers.ops.fmha": operators,
        "xformers.ops.fmha.attn_bias": masks,
    }


EXTENSION = Extension(
    name="xformers",
    help="memory-efficient attention",
    distribution="xformers",
    version="0.0.35",
    modules=_modules,
)
