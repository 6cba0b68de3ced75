"""CUDA on a machine without it: scripts written for a GPU run their dry step on the CPU, unchanged.

Devices are rewritten where torch functions take them; `torch.cuda` answers as the GPUs of this machine would, or like a
machine without GPUs when there are none. Runs in the dry-run child only.
"""

from __future__ import annotations

import contextlib
import functools
from collections import defaultdict
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from pharoah.capture.hardware import simulated_gpus
from pharoah.dryrun.ledger import AllocationLedger
from pharoah_archetypes.devices import device_named, usual_device

_SAME = {torch.Tensor.cuda, torch.Tensor.pin_memory}
_POSITIONAL = {
    torch.Tensor.to,
    torch.Tensor.new_empty,
    torch.Tensor.new_zeros,
    torch.Tensor.new_ones,
    torch.Tensor.new_tensor,
}


_SILENT = (
    "init", "_lazy_init", "set_device", "synchronize", "empty_cache", "ipc_collect", "manual_seed", "manual_seed_all",
    "seed", "seed_all", "set_rng_state", "reset_peak_memory_stats", "reset_max_memory_allocated",
    "set_per_process_memory_fraction", "set_sync_debug_mode",
)  # fmt: skip
"""Functions of `torch.cuda` that have nothing to do and nothing to say."""


class CudaToCpu(TorchFunctionMode):
    """Every device that is not there becomes the CPU; the ledger is told what the script puts there."""

    def __init__(self, ledger: AllocationLedger) -> None:
        super().__init__()
        self._ledger = ledger

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        if func in _SAME:
            return self._put(args[0]) if func is torch.Tensor.cuda else args[0]
        wanted = [kwargs.get("device"), *(args[1:] if func in _POSITIONAL else ())]
        if kwargs.get("device") is not None:
            kwargs["device"] = _placed(kwargs["device"])
        kwargs.pop("pin_memory", None)
        if func is torch.Tensor.to:
            args = (args[0], *(_placed(argument) for argument in args[1:]))
        elif func in _POSITIONAL:
            args = (args[0], *(to_cpu(argument) for argument in args[1:]))
        result = func(*args, **kwargs)
        return self._put(result) if any(map(_is_gpu, wanted)) and isinstance(result, torch.Tensor) else result

    def _put(self, tensor: torch.Tensor) -> torch.Tensor:
        """A tensor on the GPU; of a part of a larger one a copy, as only that part travels."""
        if not tensor.is_leaf or isinstance(tensor, torch.nn.Parameter) or tensor._base is None:
            self._ledger.place([tensor])
            return tensor
        copy = tensor.clone()
        self._ledger.place([copy])
        return copy


def _is_gpu(device: Any) -> bool:
    return type(device) is int or (isinstance(device, (str, torch.device)) and str(device).startswith("cuda"))


def _placed(device: Any) -> Any:
    """Where a device is meant, a bare number is the index of one."""
    return "cpu" if type(device) is int else to_cpu(device)


def to_cpu(device: Any) -> Any:
    """The device to use instead: `cuda:1` is `cpu`; what is no device stays as it is."""
    if isinstance(device, torch.device):
        return torch.device("cpu") if device.type == "cuda" else device
    if isinstance(device, str) and device.partition(":")[0] == "cuda":
        return "cpu"
    return device


def redirect(ledger: AllocationLedger) -> None:
    """Patch torch for the rest of this process. Enter `OnCpu` as well."""
    for name, answer in _answers(simulated_gpus()).items():
        if hasattr(torch.cuda, name):
            setattr(torch.cuda, name, answer)
    for check in ("_accelerator_graph_capture_health_check", "_cuda_graph_capture_health_check"):
        if hasattr(torch.optim.Optimizer, check):
            setattr(torch.optim.Optimizer, check, _constant(None))  # asks the device, which is not there
    torch.Tensor.record_stream = _constant(None)  # type: ignore[method-assign]
    for name in ("range_push", "range_pop", "range_start", "range_end", "mark"):
        setattr(torch.cuda.nvtx, name, _constant(None))
    _redirect_generator()
    torch.set_default_device = _without_cuda(torch.set_default_device, ledger)
    _redirect_autocast()
    _disable_grad_scaler()
    _disable_compile()


def _answers(names: list[str]) -> dict[str, Any]:
    """What `torch.cuda` says with these GPUs."""
    device = device_named(names[0] if names else "") or usual_device()
    memory = device.memory_bytes
    properties = SimpleNamespace(
        name=names[0] if names else "",
        total_memory=memory,
        major=device.capability[0],
        minor=device.capability[1],
        multi_processor_count=device.processors,
        warp_size=32,
    )
    return {
        "is_available": _constant(bool(names)),
        "is_initialized": _constant(bool(names)),
        "device_count": _constant(len(names)),
        "current_device": _constant(0),
        "get_device_name": _constant(properties.name),
        "get_device_capability": _constant((properties.major, properties.minor)),
        "get_device_properties": _constant(properties),
        "is_bf16_supported": _constant(properties.major >= 8),
        "mem_get_info": _constant((memory, memory)),
        "get_rng_state": lambda *_: torch.get_rng_state(),
        "device": _Context,
        "stream": _Context,
        "Stream": _Idle,
        "Event": _Idle,
        "current_stream": lambda *_: _Idle(),
        "default_stream": lambda *_: _Idle(),
        "memory_stats": lambda *_: defaultdict(int),
        "memory_summary": _constant(""),
        **{
            name: _constant(0)
            for name in ("memory_allocated", "max_memory_allocated", "memory_reserved", "max_memory_reserved")
        },
        **{name: _constant(None) for name in _SILENT},  # one function each: dynamo files every one under its name
    }  # fmt: skip


def _constant(value: Any) -> Callable[..., Any]:
    return lambda *_, **__: value


class _Context(contextlib.AbstractContextManager[None]):
    """`with torch.cuda.device(0)`, `with torch.cuda.stream(s)`: nothing to switch."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        return None


class _Idle(_Context):
    """A stream or an event on which nothing ever runs."""

    cuda_stream = 0

    def query(self) -> bool:
        return True

    def elapsed_time(self, _: object) -> float:
        return 1.0

    def __getattr__(self, name: str) -> Callable[..., None]:
        if name.startswith("__"):
            raise AttributeError(name)
        return _constant(None)


def _without_cuda(function: Any, ledger: AllocationLedger) -> Any:
    @functools.wraps(function)
    def wrapper(device: Any = None, *args: Any, **kwargs: Any) -> Any:
        if _is_gpu(device):
            ledger.everything_on_gpu()
        return function(to_cpu(device), *args, **kwargs)

    return wrapper


def _redirect_generator() -> None:
    """`torch.Generator("cuda")`; the type stays a type, as scripts ask for it."""
    original = torch.Generator

    class Kind(type):
        def __call__(cls, *device: Any, **named: Any) -> torch.Generator:
            return original(*map(to_cpu, device), **{name: to_cpu(value) for name, value in named.items()})

        def __instancecheck__(cls, instance: object) -> bool:
            return isinstance(instance, original)

    torch.Generator = Kind("Generator", (), {})  # type: ignore[assignment, misc]


def _redirect_autocast() -> None:
    """`autocast("cuda")` computes in half precision here as there; without this, torch switches it off."""
    original = torch.autocast.__init__

    @functools.wraps(original)
    def init(self: Any, device_type: str, dtype: Any = None, *args: Any, **kwargs: Any) -> None:
        if device_type == "cuda":
            device_type, dtype = "cpu", dtype or torch.get_autocast_dtype("cuda")
        original(self, device_type, dtype, *args, **kwargs)

    torch.autocast.__init__ = init  # type: ignore[method-assign]


def _disable_grad_scaler() -> None:
    """Scaling changes values, which fakes have none of; what is left of a scaler is the call of the optimizer."""
    scaler: Any = torch.amp.GradScaler
    scaler.scale = lambda _, outputs: outputs
    scaler.unscale_ = _constant(None)
    scaler.step = lambda _, optimizer, *args, **kwargs: optimizer.step(*args, **kwargs)
    scaler.update = _constant(None)
    scaler.get_scale = _constant(1.0)


_compiled: list[None] = []


def was_compiled() -> bool:
    """Whether the script asked for torch.compile."""
    return bool(_compiled)


def _disable_compile() -> None:
    """What a compiled model computes is what it says in eager mode; that it was to be compiled is noted."""

    def compile(model: Any = None, *_: Any, **__: Any) -> Any:
        _compiled.append(None)
        return model if model is not None else lambda decorated: decorated

    torch.compile = compile
    torch.nn.Module.compile = lambda *_, **__: _compiled.append(None)  # type: ignore[method-assign]
