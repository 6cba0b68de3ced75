"""Autocast as GPUs have it: which operators compute in which dtype there, although a dry run has tensors on the CPU.

The dispatcher of torch says which operators have a kernel for autocast on which device. What a kernel does stands in
torch's file aten/src/ATen/autocast_mode.h. Runs in the dry-run child only, and is not undone.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterable
from typing import Any

import torch

from pharoah.torch_names import (
    DispatchKey,
    DispatchKeySet,
    ExcludeDispatchKeyGuard,
    find_operator,
    has_kernel,
    operator_names,
    pytree,
    schema_of,
)

_CPU, _GPU = "AutocastCPU", "AutocastCUDA"
_LOWER = {
    "_convolution", "convolution", "addmv", "addr", "mv", "chain_matmul", "einsum", "linalg_multi_dot", "lstm_cell",
    "gru_cell", "rnn_tanh_cell", "rnn_relu_cell", "_thnn_fused_lstm_cell", "_thnn_fused_gru_cell",
    "_scaled_dot_product_flash_attention", "cudnn_convolution", "cudnn_convolution_transpose",
}  # fmt: skip
"""Operators that compute in the dtype of autocast on GPUs only."""
_WIDEST = {
    "addcdiv", "addcmul", "atan2", "bilinear", "cross", "dot", "vdot", "index_put", "tensordot", "scatter_add",
    "grid_sampler",
}  # fmt: skip
"""Operators that compute in the widest dtype of their arguments."""
_DTYPE_AT = {"softmax.int": 2, "log_softmax.int": 2, "sum": 1, "sum.dim_IntList": 3, "cumsum": 2, "cumprod": 2,
             "linalg_vector_norm": 4, "prod": 1, "prod.dim_int": 3}  # fmt: skip
"""Operators that convert while they compute: where their argument for the dtype of the result stands."""
_BANNED = "binary_cross_entropy"
_UNLIKE = (_BANNED, "grid_sampler", "prod", "prod.dim_int")
"""Operators that both devices have a kernel for, and other ones."""
_registered: list[torch.library.Library] = []
"""Registrations end with the object that made them."""

Kernel = Callable[..., Any]


def autocast_as_gpus_do() -> None:
    """Replace the kernels of autocast on the CPU by what those of GPUs do, for the rest of this process."""
    library = torch.library.Library("aten", "IMPL")
    _registered.append(library)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch says that a kernel is replaced
        for name in _only(_CPU, _GPU):
            library.impl(name, torch.library.fallthrough_kernel, _CPU)
        for name in [*_only(_GPU, _CPU), *_UNLIKE]:
            with contextlib.suppress(AttributeError, RuntimeError):  # an operator that Python cannot call here
                library.impl(name, _kernel(name), _CPU)


def _only(having: str, lacking: str) -> list[str]:
    """Operators of torch that have a kernel for one key and none for another one, without the namespace."""
    names: Iterable[str] = (name for name in operator_names() if name.startswith("aten::"))
    chosen = (name for name in names if has_kernel(name, having) and not has_kernel(name, lacking))
    return [name.removeprefix("aten::") for name in chosen]


def _kernel(name: str) -> Kernel:
    packet, _, overload = name.partition(".")
    computed = find_operator(f"aten.{packet}.{overload or 'default'}")
    if name == _BANNED:
        return _refuse

    def kernel(*args: Any, **kwargs: Any) -> Any:
        with ExcludeDispatchKeyGuard(DispatchKeySet(getattr(DispatchKey, _CPU))):
            if (at := _DTYPE_AT.get(name)) is not None:
                args, kwargs = _with_dtype(args, kwargs, at, computed)
            elif (dtype := _dtype(packet, (args, kwargs))) is not None:
                args, kwargs = pytree.tree_map(lambda one: one.to(dtype) if is_eligible(one) else one, (args, kwargs))
            return computed(*args, **kwargs)

    return kernel


def _refuse(*_: Any, **__: Any) -> Any:
    raise RuntimeError(f"{_BANNED} is not allowed under autocast on a GPU; use binary_cross_entropy_with_logits")


def _dtype(packet: str, arguments: Any) -> torch.dtype | None:
    """What the arguments of an operator are converted to; None where they stay as they are."""
    if packet in _LOWER:
        return torch.get_autocast_dtype("cpu")
    if packet not in _WIDEST:
        return torch.float32
    found: list[torch.dtype] = []
    pytree.tree_map(lambda one: found.append(one.dtype) if is_eligible(one) else None, arguments)
    return torch.float32 if torch.float32 in found else None


def _with_dtype(args: Any, kwargs: Any, at: int, called: Any) -> tuple[Any, Any]:
    """Ask for a result in float32, unless the script asks for another one."""
    name = "dtype"
    stated = args[at] if at < len(args) else kwargs.get(name)
    if stated is not None or not is_eligible(args[0]):
        return args, kwargs
    keyword = next(argument.kwarg_only for argument in schema_of(called).arguments if argument.name == name)
    if keyword or at > len(args):
        return args, {**kwargs, name: torch.float32}
    return (*args[:at], torch.float32), kwargs


def is_eligible(value: Any) -> bool:
    """Whether autocast converts a value: tensors of float64 stay what they are."""
    return isinstance(value, torch.Tensor) and value.is_floating_point() and value.dtype is not torch.float64
