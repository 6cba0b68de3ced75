"""A CUDA shim: scripts that are written for a GPU run their dry step on the CPU, unchanged.

Devices are rewritten where torch functions take them. `torch.cuda` answers as the simulated GPUs would, or as on a
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


_PLACES = {"device", "pin_memory"}
"""Arguments that say where a tensor is made."""
_SILENT = (
    "init", "_lazy_init", "set_device", "synchronize", "empty_cache", "ipc_collect", "manual_seed", "manual_seed_all",
    "seed", "seed_all", "set_rng_state", "reset_peak_memory_stats", "reset_max_memory_allocated",
    "set_per_process_memory_fraction", "set_sync_debug_mode",
)  # fmt: skip
"""Functions of `torch.cuda` that do nothing and return None here."""


class CudaToCpu(TorchFunctionMode):
    """Replaces CUDA devices with the CPU, and records in the ledger what the script puts there."""

    def __init__(self, ledger: AllocationLedger) -> None:
        super().__init__()
        self._ledger = ledger

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func not in _POSITIONAL and func not in _SAME and (not kwargs or kwargs.keys().isdisjoint(_PLACES)):
            return func(*args, **(kwargs or {}))
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
        """Record a tensor on the GPU. A part of a larger tensor is copied, as only that part would be transferred."""
        if not tensor.is_leaf or isinstance(tensor, torch.nn.Parameter) or tensor._base is None:
            self._ledger.place([tensor])
            return tensor
        copy = tensor.clone()
        self._ledger.place([copy])
        return copy


def _is_gpu(device: Any) -> bool:
    return type(device) is int or (isinstance(device, (str, torch.device)) and str(device).startswith("cuda"))


def _placed(device: Any) -> Any:
    """The device to use instead of a device argument, where a bare number is the index of a GPU."""
    return "cpu" if type(device) is int else to_cpu(device)


def to_cpu(device: Any) -> Any:
    """The device to use instead: `cpu` for `cuda:1`. Other values are returned unchanged."""
    if isinstance(device, torch.device):
        return torch.device("cpu") if device.type == "cuda" else device
    if isinstance(device, str) and device.partition(":")[0] == "cuda":
        return "cpu"
    return device


def redirect_cuda(ledger: AllocationLedger) -> None:
    """Patch torch for the rest of this process. Enter `CudaToCpu` as well."""
    gpus = simulated_gpus()
    for module, answers in ((torch.cuda, _answers(gpus)), (torch.accelerator, _accelerator_answers(gpus))):
        for name, answer in answers.items():
            if hasattr(module, name):
                setattr(module, name, answer)
    _redirect_device_module(bool(gpus))
    for check in ("_accelerator_graph_capture_health_check", "_cuda_graph_capture_health_check"):
        if hasattr(torch.optim.Optimizer, check):
            setattr(torch.optim.Optimizer, check, _constant(None))  # asks the device
    torch.Tensor.record_stream = _constant(None)  # type: ignore[method-assign]
    for name in ("range_push", "range_pop", "range_start", "range_end", "mark"):
        setattr(torch.cuda.nvtx, name, _constant(None))
    _redirect_generator()
    _redirect_device_numbers()
    torch.set_default_device = _without_cuda(torch.set_default_device, ledger)
    _redirect_autocast()
    _disable_grad_scaler()
    _disable_compile()


def _answers(names: list[str]) -> dict[str, Any]:
    """What the functions of `torch.cuda` return with these GPUs."""
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
        "get_rng_state": lambda *_, **__: torch.get_rng_state(),
        "device": _Context,
        "stream": _Context,
        "Stream": _Idle,
        "Event": _Idle,
        "current_stream": lambda *_, **__: _Idle(),
        "default_stream": lambda *_, **__: _Idle(),
        "memory_stats": lambda *_, **__: defaultdict(int),
        "memory_summary": _constant(""),
        **{
            name: _constant(0)
            for name in ("memory_allocated", "max_memory_allocated", "memory_reserved", "max_memory_reserved")
        },
        **{name: _constant(None) for name in _SILENT},  # one function each: dynamo files every one under its name
    }  # fmt: skip


def _accelerator_answers(names: list[str]) -> dict[str, Any]:
    """What the functions of `torch.accelerator` return with these GPUs."""
    of_cuda = _answers(names)
    shared = ("is_available", "device_count", "memory_stats", "mem_get_info", "current_stream", *_SILENT)
    return {
        **{name: of_cuda[name] for name in shared if name in of_cuda},
        **{name: of_cuda[name] for name in of_cuda if "memory_" in name},
        "current_accelerator": _constant(torch.device("cuda") if names else None),
        "current_device_index": _constant(0),
        "current_device_idx": _constant(0),
        "set_device_index": _constant(None),
        "set_device_idx": _constant(None),
        "set_stream": _constant(None),
        "device_index": _Context,
        "get_memory_info": of_cuda["mem_get_info"],
        "get_device_capability": lambda *_, **__: {"supported_dtypes": set(_DTYPES)},
    }


_DTYPES = (
    torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.complex64, torch.complex128, torch.int64,
    torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool,
)  # fmt: skip
"""What every GPU of the data sheets computes with."""


def _redirect_device_module(gpus: bool) -> None:
    """Let `torch.get_device_module` return the patched `torch.cuda` where a script expects a GPU."""
    original = torch.get_device_module

    @functools.wraps(original)
    def module(device: Any = None) -> Any:
        wanted = "cuda" if device is None and gpus else device
        return torch.cuda if wanted is not None and _is_gpu(wanted) else original(to_cpu(wanted))

    torch.get_device_module = module  # type: ignore[assignment]


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


def _redirect_device_numbers() -> None:
    """Allow `torch.device(0)` and `module.to(0)`, which ask torch for the machine's accelerator."""
    original, to = torch.device, torch.nn.Module.to

    class Kind(type):
        def __call__(cls, *device: Any, **named: Any) -> torch.device:
            return original("cuda", device[0]) if device and type(device[0]) is int else original(*device, **named)

        def __instancecheck__(cls, instance: object) -> bool:
            return isinstance(instance, original)

    @functools.wraps(to)
    def module_to(self: Any, *args: Any, **kwargs: Any) -> Any:
        if type(kwargs.get("device")) is int:
            kwargs["device"] = "cpu"
        return to(self, *map(_placed, args), **kwargs)

    torch.device = Kind("device", (), {})  # type: ignore[assignment, misc]
    torch.nn.Module.to = module_to  # type: ignore[method-assign]


def _redirect_generator() -> None:
    """Allow `torch.Generator("cuda")`. The replacement is a type as well, for `isinstance` in scripts."""
    original = torch.Generator

    class Kind(type):
        def __call__(cls, *device: Any, **named: Any) -> torch.Generator:
            return original(*map(to_cpu, device), **{name: to_cpu(value) for name, value in named.items()})

        def __instancecheck__(cls, instance: object) -> bool:
            return isinstance(instance, original)

    torch.Generator = Kind("Generator", (), {})  # type: ignore[assignment, misc]


def _redirect_autocast() -> None:
    """Let `autocast("cuda")` compute in half precision; without this, torch switches it off."""
    original = torch.autocast.__init__

    @functools.wraps(original)
    def init(self: Any, device_type: str, dtype: Any = None, *args: Any, **kwargs: Any) -> None:
        if device_type == "cuda":
            device_type, dtype = "cpu", dtype or torch.get_autocast_dtype("cuda")
        original(self, device_type, dtype, *args, **kwargs)

    torch.autocast.__init__ = init  # type: ignore[method-assign]


def _disable_grad_scaler() -> None:
    """Reduce a gradient scaler to the call of the optimizer: scaling changes values only."""
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
    """Run compiled models in eager mode, which computes the same, and note that the script compiles."""

    def compile(model: Any = None, *_: Any, **__: Any) -> Any:
        _compiled.append(None)
        return model if model is not None else lambda decorated: decorated

    torch.compile = compile
    torch.nn.Module.compile = lambda *_, **__: _compiled.append(None)  # type: ignore[method-assign]
