"""Attention as the simulated GPU computes it: torch has several kernels there, and none of them is the one of the CPU.

torch chooses when `scaled_dot_product_attention` is called. The rules here are those of its file
aten/src/ATen/native/transformers/cuda/sdp_utils.cpp, for tensors that are not nested; `python -m evaluation gpu`
compares them with torch on a GPU. Runs in the dry-run child only.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional
from torch.nn.attention import SDPBackend

from pharoah.dryrun.gpu_autocast import is_eligible
from pharoah.dryrun.ledger import AllocationLedger
from pharoah.torch_names import (
    DispatchKey,
    DispatchKeySet,
    ExcludeDispatchKeyGuard,
    FakeTensor,
    find_operator,
    sdp_priority_order,
)
from pharoah_archetypes.devices import device_named, usual_device

_HALF = (torch.float16, torch.bfloat16)
_WIDEST_FLASH_HEAD = 256
_WIDEST_CUDNN_HEAD, _WIDEST_CUDNN_HEAD_OF_DATA_CENTRES = 128, 256
"""The second one is for compute capability 9.0 and the generation 10."""
_BIAS_MULTIPLE, _HEAD_MULTIPLE = 16, 8
"""The efficient kernel pads the rows of a mask to such a multiple, the flash kernel the numbers of a head."""
_AUTOCAST = DispatchKeySet(DispatchKey.AutocastCPU) if DispatchKeySet and DispatchKey else None
_RELEASE = tuple(int(part) for part in torch.__version__.split(".")[:2])
_DROPOUT_IN_SIXTEENTHS, _OFFSETS_ALIGNED = (2, 12), (2, 13)
"""Releases from which on cuDNN takes such probabilities of dropout only, and the efficient kernel such tensors only."""
_CUDNN_FIRST = (((2, 10), 91501), ((2, 8), 90900))
"""Releases of torch that take the kernel of cuDNN first on GPUs of the generations 9 and 10, and the version of cuDNN
that they want; the newest release that is not newer counts."""
_NO_KERNEL = "No available kernel. Aborting execution."
"""What torch says when a script has switched off all kernels that could compute a call."""


class Capability(NamedTuple):
    """The compute capability of a GPU."""

    major: int
    minor: int


@dataclass(frozen=True)
class AttentionCall:
    """The arguments of `scaled_dot_product_attention` that a choice depends on."""

    query: Tensor
    key: Tensor
    value: Tensor
    mask: Tensor | None = None
    dropout: float = 0.0
    causal: bool = False
    grouped: bool = False
    """Whether several heads of the queries may share one of the keys."""

    @property
    def inputs(self) -> Sequence[Tensor]:
        return self.query, self.key, self.value

    @property
    def needs_gradient(self) -> bool:
        return torch.is_grad_enabled() and any(tensor.requires_grad for tensor in self.inputs)


def attend_as_gpus_do(gpu: str, ledger: AllocationLedger) -> None:
    """Replace `scaled_dot_product_attention` for tensors that are on a simulated GPU, for the rest of this process."""
    capability = Capability(*(device_named(gpu) or usual_device()).capability)
    original = functional.scaled_dot_product_attention

    @functools.wraps(original)
    def attend(
        query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None, dropout_p: float = 0.0,
        is_causal: bool = False, scale: float | None = None, enable_gqa: bool = False,
    ) -> Any:  # fmt: skip
        if (
            type(query) is not FakeTensor
            or not ledger.is_on_gpu(query)
            or (attn_mask is not None and (is_causal or not _is_accepted(attn_mask, query)))  # torch says what is wrong
        ):
            options = {"enable_gqa": True} if enable_gqa else {}  # torch 2.4 has no such argument
            return original(query, key, value, attn_mask, dropout_p, is_causal, scale=scale, **options)
        call = _cast(AttentionCall(query, key, value, attn_mask, dropout_p, is_causal, enable_gqa))
        with ExcludeDispatchKeyGuard(_AUTOCAST):  # the dtypes are chosen
            return _COMPUTE[choose_kernel(call, capability)](call, scale)

    functional.scaled_dot_product_attention = attend


def choose_kernel(call: AttentionCall, capability: Capability) -> SDPBackend:
    """The kernel that torch takes on a GPU with this compute capability. Raises RuntimeError where torch does."""
    for kernel in _order(capability):
        if kernel in _CAN and _is_enabled(kernel) and _CAN[kernel](call, capability):
            return kernel
    raise RuntimeError(_NO_KERNEL)


def _order(capability: Capability) -> Sequence[SDPBackend]:
    """The order of preference, which scripts can change."""
    order = (
        [SDPBackend(number) for number in sdp_priority_order()]
        if sdp_priority_order
        else [*_USUAL_ORDER, SDPBackend.CUDNN_ATTENTION]
    )
    if order[: len(_USUAL_ORDER)] == [*_USUAL_ORDER] and _prefers_cudnn(capability):
        order = [SDPBackend.CUDNN_ATTENTION, *_USUAL_ORDER]
    return order


def _prefers_cudnn(capability: Capability) -> bool:
    if os.environ.get("TORCH_CUDNN_SDPA_DEPRIORITIZED") == "1":
        return False
    wanted = next((version for since, version in _CUDNN_FIRST if since <= _RELEASE), None)
    if wanted is None or capability not in ((9, 0), (10, 0), (10, 3)):
        return False
    version = torch.backends.cudnn.version()
    return version is None or version >= wanted  # a torch for CPUs stands for the newest one for GPUs


def _is_enabled(kernel: SDPBackend) -> bool:
    switches: dict[SDPBackend, Callable[[], bool]] = {
        SDPBackend.MATH: torch.backends.cuda.math_sdp_enabled,
        SDPBackend.FLASH_ATTENTION: torch.backends.cuda.flash_sdp_enabled,
        SDPBackend.EFFICIENT_ATTENTION: torch.backends.cuda.mem_efficient_sdp_enabled,
        SDPBackend.CUDNN_ATTENTION: torch.backends.cuda.cudnn_sdp_enabled,
    }
    return switches[kernel]()


def _is_fusible(call: AttentionCall) -> bool:
    """What all kernels but the written-out one want: four dimensions, equal batches and heads, dense rows."""
    query, key, value = call.inputs
    if any(tensor.dim() != 4 for tensor in call.inputs) or query.dtype != key.dtype or query.dtype != value.dtype:
        return False
    if not query.shape[0] == key.shape[0] == value.shape[0] or 0 in (query.shape[2], key.shape[2], value.shape[2]):
        return False
    if not _heads_match(call):
        return False
    mask_is_dense = call.mask is None or call.mask.stride(-1) == 1
    return mask_is_dense and all(tensor.stride(-1) == 1 or tensor.shape[-1] == 1 for tensor in call.inputs)


def _heads_match(call: AttentionCall) -> bool:
    query, key, value = (tensor.shape[1] for tensor in call.inputs)
    if call.grouped:
        return bool(key and key == value and query % key == 0)
    return bool(query == key == value)


def _can_flash(call: AttentionCall, capability: Capability) -> bool:
    query, key, value = call.inputs
    width = query.shape[-1]
    return bool(
        _is_fusible(call)
        and call.mask is None
        and capability >= (8, 0)
        and query.dtype in _HALF
        and width == key.shape[-1] == value.shape[-1]
        and width <= _WIDEST_FLASH_HEAD
        and (not call.causal or query.shape[-2] == key.shape[-2])
        and (capability in ((8, 0), (9, 0), (10, 0), (10, 3)) or _small_gpus_have_gradient(call, width))
    )


def _small_gpus_have_gradient(call: AttentionCall, width: int) -> bool:
    """The backward pass of wide heads does not fit into GPUs other than those of data centres."""
    return not call.needs_gradient or width <= 192 or (not call.dropout and width > 224)


def _can_be_efficient(call: AttentionCall, capability: Capability) -> bool:
    query, key, value = call.inputs
    if capability < (8, 0) and query.dtype is torch.bfloat16:
        return False
    multiple = _alignment(query.dtype, capability)
    return bool(
        _is_fusible(call)
        and query.shape[1] == key.shape[1] == value.shape[1]
        and query.dtype in (*_HALF, torch.float32)
        and query.shape[-1] == key.shape[-1] > 0
        and value.shape[-1] > 0
        and query.shape[-1] % multiple == value.shape[-1] % multiple == 0
        and (
            _RELEASE < _OFFSETS_ALIGNED or all(_begins_aligned(tensor, multiple, capability) for tensor in call.inputs)
        )
    )


def _begins_aligned(tensor: Tensor, multiple: int, capability: Capability) -> bool:
    return capability < (8, 0) or tensor.storage_offset() % multiple == 0 or not tensor.numel()


def _alignment(dtype: torch.dtype, capability: Capability) -> int:
    """The numbers of a head come in such multiples: 16 bytes where tensor cores compute."""
    if dtype in _HALF:
        return 8 if capability >= (7, 0) else 1
    return 4 if capability >= (8, 0) else 1


def _can_use_cudnn(call: AttentionCall, capability: Capability) -> bool:
    query, key, value = call.inputs
    in_data_centre = capability == (9, 0) or capability[0] == 10
    widest = _WIDEST_CUDNN_HEAD_OF_DATA_CENTRES if in_data_centre else _WIDEST_CUDNN_HEAD
    return bool(
        _is_fusible(call)
        and capability >= (8, 0)
        and query.dtype in _HALF
        and not torch.are_deterministic_algorithms_enabled()
        and (_RELEASE < _DROPOUT_IN_SIXTEENTHS or (call.dropout * 16) % 1 == 0)
        and max(query.shape[-1], value.shape[-1]) <= widest
        and query.shape[-1] % 8 == value.shape[-1] % 8 == 0
        and key.shape[-2] != 1
        and (not call.dropout or query.shape[-2] != 1)
        and _mask_fits(call)
    )


def _mask_fits(call: AttentionCall) -> bool:
    """A mask has the last two dimensions of the scores, or all four, or ones in their place, and no gradient."""
    if call.mask is None:
        return True
    scores = (*call.query.shape[:3], call.key.shape[2])
    return (
        not call.mask.requires_grad
        and call.mask.dim() in (2, 4)
        and all(size in (1, whole) for size, whole in zip(call.mask.shape[::-1], scores[::-1], strict=False))
    )


def _cast(call: AttentionCall) -> AttentionCall:
    """The call with the dtype of autocast, and a mask that is added to the scores."""
    autocast = torch.is_autocast_enabled("cpu")  # where a dry run has autocast of a GPU
    query, key, value = call.inputs
    if autocast and is_eligible(query):
        query, key, value = (tensor.to(torch.get_autocast_dtype("cpu")) for tensor in call.inputs)
    mask, dtype = call.mask, query.dtype
    if mask is not None and mask.dtype is torch.bool:
        mask = torch.where(mask, 0.0, torch.full((), float("-inf"), dtype=dtype))
    elif mask is not None and autocast:
        mask = mask.to(dtype)
    return AttentionCall(query, key, value, mask, call.dropout, call.causal, call.grouped)


def _is_accepted(mask: Tensor, query: Tensor) -> bool:
    return mask.dtype in (torch.bool, torch.float32, query.dtype)


def _math(call: AttentionCall, scale: float | None) -> Any:
    options = {"enable_gqa": True} if call.grouped else {}
    return find_operator("aten._scaled_dot_product_attention_math")(
        *call.inputs, call.mask, call.dropout, call.causal, None, scale=scale, **options
    )[0]


def _flash(call: AttentionCall, scale: float | None) -> Any:
    width = call.query.shape[-1]
    inputs = call.inputs
    if missing := -width % _HEAD_MULTIPLE:
        inputs = [functional.pad(tensor, (0, missing)) for tensor in inputs]
    scale = width**-0.5 if scale is None else scale
    mixed = find_operator("aten._scaled_dot_product_flash_attention")(
        *inputs, call.dropout, call.causal, False, scale=scale
    )[0]
    return mixed[..., :width] if missing else mixed


def _efficient(call: AttentionCall, scale: float | None) -> Any:
    mask = call.mask
    if mask is not None:
        length = mask.shape[-1]
        if missing := -length % _BIAS_MULTIPLE:
            mask = functional.pad(mask, (0, missing))[..., :length]
        mask = mask.expand(*call.query.shape[:3], call.key.shape[2])
    return find_operator("aten._scaled_dot_product_efficient_attention")(
        *call.inputs, mask, call.needs_gradient, call.dropout, call.causal, scale=scale
    )[0]


def _cudnn(call: AttentionCall, scale: float | None) -> Any:
    return find_operator("aten._scaled_dot_product_cudnn_attention")(
        *call.inputs, call.mask, call.needs_gradient, call.dropout, call.causal, False, scale=scale
    )[0]


_USUAL_ORDER = (SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH)
_CAN: Mapping[SDPBackend, Callable[[AttentionCall, Capability], bool]] = {
    SDPBackend.CUDNN_ATTENTION: _can_use_cudnn,
    SDPBackend.FLASH_ATTENTION: _can_flash,
    SDPBackend.EFFICIENT_ATTENTION: _can_be_efficient,
    SDPBackend.MATH: lambda *_: True,
}
_COMPUTE: Mapping[SDPBackend, Callable[[AttentionCall, float | None], Any]] = {
    SDPBackend.CUDNN_ATTENTION: _cudnn,
    SDPBackend.FLASH_ATTENTION: _flash,
    SDPBackend.EFFICIENT_ATTENTION: _efficient,
    SDPBackend.MATH: _math,
}
