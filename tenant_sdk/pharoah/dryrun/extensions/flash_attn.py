"""FlashAttention: fused attention, also for packed sequences.

https://github.com/Dao-AILab/flash-attention
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pharoah.dryrun.extensions._extension import Extension


def _modules() -> Mapping[str, Mapping[str, Any]]:
    from torch import nn
    from torch.nn import functional

    attention = _attention()
    return {
        "flash_attn": attention,
        "flash_attn.flash_attn_interface": attention,
        "flash_attn.bert_padding": _padding(),
        "flash_attn.layers.rotary": _rotation(),
        "flash_attn.ops.rms_norm": {"RMSNorm": nn.RMSNorm, "rms_norm": lambda x, weight, eps: functional.rms_norm(
            x, weight.shape, weight, eps)},
        "flash_attn.losses.cross_entropy": {"CrossEntropyLoss": nn.CrossEntropyLoss},
    }  # fmt: skip


def _attention() -> Mapping[str, Any]:
    import torch
    from torch import Tensor
    from torch.nn import functional

    def attend(
        q: Tensor, k: Tensor, v: Tensor, dropout_p: float = 0.0, softmax_scale: float | None = None,
        causal: bool = False, **others: Any,
    ) -> Any:  # fmt: skip
        """(batch, positions, heads, width) each; keys and values may have fewer heads."""
        heads = q.shape[2] // k.shape[2]
        keys, values = (x.repeat_interleave(heads, 2) if heads > 1 else x for x in (k, v))
        mixed = functional.scaled_dot_product_attention(
            q.transpose(1, 2), keys.transpose(1, 2), values.transpose(1, 2), None, dropout_p, causal,
            scale=softmax_scale,
        ).transpose(1, 2)  # fmt: skip
        if others.get("return_attn_probs"):
            return mixed, q.new_empty(q.shape[0], q.shape[2], q.shape[1], dtype=torch.float32), None
        return mixed

    def attend_packed(qkv: Tensor, *rest: Any, **options: Any) -> Any:
        """(batch, positions, 3, heads, width)."""
        q, k, v = qkv.unbind(2)
        return attend(q, k, v, *rest, **options)

    def attend_keys_packed(q: Tensor, kv: Tensor, *rest: Any, **options: Any) -> Any:
        k, v = kv.unbind(2)
        return attend(q, k, v, *rest, **options)

    def attend_ragged(
        q: Tensor, k: Tensor, v: Tensor, cu_seqlens_q: Tensor, cu_seqlens_k: Tensor, max_seqlen_q: Any,
        max_seqlen_k: Any, *rest: Any, **options: Any,
    ) -> Any:  # fmt: skip
        """(all positions, heads, width) each, with the places where sequences begin: taken as equally long ones."""
        count = max(1, cu_seqlens_q.shape[0] - 1)
        if q.shape[0] % count or k.shape[0] % count:
            count = 1
        a, b, c = (x.reshape(count, -1, *x.shape[1:]) for x in (q, k, v))
        result = attend(a, b, c, *rest, **options)
        if isinstance(result, tuple):
            return result[0].reshape(q.shape), *result[1:]
        return result.reshape(q.shape)

    def attend_ragged_packed(qkv: Tensor, cu_seqlens: Tensor, max_seqlen: Any, *rest: Any, **options: Any) -> Any:
        q, k, v = qkv.unbind(1)
        return attend_ragged(q, k, v, cu_seqlens, cu_seqlens, max_seqlen, max_seqlen, *rest, **options)

    def attend_ragged_keys_packed(q: Tensor, kv: Tensor, *rest: Any, **options: Any) -> Any:
        k, v = kv.unbind(1)
        return attend_ragged(q, k, v, *rest, **options)

    def attend_with_cache(
        q: Tensor, k_cache: Tensor, v_cache: Tensor, k: Tensor | None = None, v: Tensor | None = None, *_: Any,
        softmax_scale: float | None = None, causal: bool = False, **__: Any,
    ) -> Any:  # fmt: skip
        return attend(q, k_cache, v_cache, softmax_scale=softmax_scale, causal=causal)

    return {
        "flash_attn_func": attend,
        "flash_attn_qkvpacked_func": attend_packed,
        "flash_attn_kvpacked_func": attend_keys_packed,
        "flash_attn_varlen_func": attend_ragged,
        "flash_attn_varlen_qkvpacked_func": attend_ragged_packed,
        "flash_attn_varlen_kvpacked_func": attend_ragged_keys_packed,
        "flash_attn_with_kvcache": attend_with_cache,
    }


def _padding() -> Mapping[str, Any]:
    import torch
    from torch import Tensor

    def unpad(hidden: Tensor, mask: Tensor, unused_mask: Tensor | None = None) -> Any:
        """(batch, positions, ...): all positions count, as if nothing was padded."""
        batch, positions = hidden.shape[:2]
        indices = torch.arange(batch * positions)
        starts = torch.arange(0, (batch + 1) * positions, positions, dtype=torch.int32)
        used = torch.full((batch,), positions, dtype=torch.int32)
        return hidden.reshape(batch * positions, *hidden.shape[2:]), indices, starts, positions, used

    def pad(hidden: Tensor, indices: Tensor, batch: int, seqlen: int) -> Tensor:
        return hidden.reshape(batch, seqlen, *hidden.shape[1:])

    return {"unpad_input": unpad, "pad_input": pad, "index_first_axis": lambda x, indices: x[indices]}


def _rotation() -> Mapping[str, Any]:
    import torch
    from torch import Tensor

    def rotate(
        x: Tensor, cos: Tensor, sin: Tensor, interleaved: bool = False, inplace: bool = False, **_: Any
    ) -> Tensor:
        """(batch, positions, heads, width), with angles of (positions, width / 2)."""
        width = 2 * cos.shape[-1]
        first, second = x[..., :width].chunk(2, -1)
        c, s = cos[: x.shape[1], None], sin[: x.shape[1], None]
        return torch.cat([first * c - second * s, first * s + second * c, x[..., width:]], -1)

    return {"apply_rotary_emb": rotate, "apply_rotary_emb_func": rotate}


EXTENSION = Extension(
    name="flash_attn",
    help="fused attention, also for packed sequences",
    distribution="flash-attn",
    version="2.8.3",
    other_names=("flashattention2",),
    modules=_modules,
)
