"""A CUDA shim: scripts that are written for a GPU run their dry step on the CPU, unchanged.

Devices are rewritten where torch functions take them. `torch.cuda` answers as the simulated GPUs would, or as on a
machine without GPUs when there are none. Runs in the dry-run child only.
"""

from __future__ import annotations

import contextlib
import copy
import functools
from collections.abc import Iterable
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from pharoah.capture.hardware import list_simulated_gpus
from pharoah.capture.operator_notes import storage_of
from pharoah.dryrun.checkpoints import load_checkpoints_to_cpu
from pharoah.dryrun.data_parallel import run_on_first_gpu
from pharoah.dryrun.device_names import is_gpu, is_host, number, place, to_cpu
from pharoah.dryrun.gpu_answers import accelerator_answers, constant, cuda_answers
from pharoah.dryrun.ledger import AllocationLedger, local
from pharoah.dryrun.saved_tensors import run_hooks_in
from pharoah.torch_names import COMPILED_MODEL, FakeTensor, accelerator, base_of, replace

_POSITIONAL = {
    torch.Tensor.to,
    torch.Tensor.new_empty,
    torch.Tensor.new_zeros,
    torch.Tensor.new_ones,
    torch.Tensor.new_tensor,
}
"""Functions that take a device by its place, too."""
_HANDLED = {torch.Tensor.cuda, torch.Tensor.cpu, torch.Tensor.pin_memory, *_POSITIONAL}
_PLACES = {"device", "pin_memory"}
"""Arguments that say where a tensor is made."""


class CudaToCpu(TorchFunctionMode):
    """Replaces CUDA devices with the CPU, and records in the ledger what the script puts on them and takes off."""

    def __init__(self, ledger: AllocationLedger) -> None:
        super().__init__()
        self._ledger = ledger
        run_hooks_in(self, ledger, self._put)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func not in _HANDLED and (not kwargs or kwargs.keys().isdisjoint(_PLACES)):
            return func(*args, **(kwargs or {}))
        if func is torch.Tensor.cuda:
            return self._put(args[0])
        if func is torch.Tensor.pin_memory:
            return self._keep_on_host(args[0], args)
        kwargs = dict(kwargs or {})
        wanted = [kwargs.get("device"), *(args[1:] if func in _POSITIONAL else ())]
        on_host = bool(kwargs.pop("pin_memory", False)) or func is torch.Tensor.cpu or any(map(is_host, wanted))
        if kwargs.get("device") is not None:
            kwargs["device"] = place(kwargs["device"])
        if func is torch.Tensor.to:
            args = (args[0], *map(place, args[1:]))
        elif func in _POSITIONAL:
            args = (args[0], *map(to_cpu, args[1:]))
        result = func(*args, **kwargs)
        if not isinstance(result, torch.Tensor):
            return result
        if on_host:
            return self._keep_on_host(result, (*args, *kwargs.values()))
        return self._put(result) if any(map(is_gpu, wanted)) else result

    def _put(self, tensor: torch.Tensor) -> torch.Tensor:
        """Record a tensor on the GPU.

        A part of a larger tensor is copied, as only that part would be transferred; and so is what the script keeps in
        the memory of the host, as it stays there. A module has its parameters in one place, so these are moved.
        """
        if isinstance(tensor, torch.nn.Parameter):
            if self._ledger.is_on_host(local(tensor)):
                self._ledger.move(local(tensor))
        elif self._ledger.is_on_host(tensor) or (tensor.is_leaf and base_of(tensor) is not None):
            tensor = tensor.clone()
        self._ledger.place([local(tensor)])
        return tensor

    def _keep_on_host(self, tensor: torch.Tensor, sources: Iterable[Any]) -> torch.Tensor:
        """Record a tensor that the script wants in the memory of the host; a copy of it where it shares the memory of a
        source that is on the GPU.

        Real tensors are data that the script may read, and stay as they are. So do parameters, which modules move.
        """
        if self._ledger.on_gpu is None or not isinstance(tensor, FakeTensor) or isinstance(tensor, torch.nn.Parameter):
            return tensor
        memory = storage_of(tensor)
        is_shared = any(isinstance(source, torch.Tensor) and storage_of(source) == memory for source in sources)
        if is_shared and self._ledger.is_on_gpu(tensor):
            tensor = tensor.clone()
        self._ledger.keep_on_host(tensor)
        return tensor


def redirect_cuda(ledger: AllocationLedger) -> None:
    """Patch torch for the rest of this process. Enter `CudaToCpu` as well."""
    gpus = list_simulated_gpus()
    of_cuda, of_accelerator = cuda_answers(gpus), accelerator_answers(gpus)
    # Libraries call functions of `torch.cuda` also by the modules in which they are defined.
    modules = ((torch.cuda, of_cuda), (torch.cuda.random, of_cuda), (torch.cuda.memory, of_cuda))
    for module, answers in (*modules, (accelerator, of_accelerator)):
        for name, answer in answers.items():
            if hasattr(module, name):
                setattr(module, name, answer)
    _redirect_device_module(bool(gpus))
    for check in ("accelerator_health_check", "cuda_health_check"):
        replace(check, lambda _: constant(None))  # asks the device
    torch.Tensor.record_stream = constant(None)  # type: ignore[method-assign]
    for name in ("range_push", "range_pop", "range_start", "range_end", "mark"):
        setattr(torch.cuda.nvtx, name, constant(None))
    _redirect_generator()
    _redirect_device_numbers()
    _redirect_modules(ledger)
    torch.set_default_device = _without_cuda(torch.set_default_device, ledger)
    _redirect_autocast()
    disable_scaling(torch.amp.GradScaler)
    _disable_compile()
    if gpus:
        run_on_first_gpu(ledger)
    load_checkpoints_to_cpu(ledger)


def _redirect_device_module(gpus: bool) -> None:
    """Let `torch.get_device_module` return the patched `torch.cuda` where a script expects a GPU."""
    original = torch.get_device_module

    @functools.wraps(original)
    def module(device: Any = None) -> Any:
        wanted = "cuda" if device is None and gpus else device
        return torch.cuda if wanted is not None and is_gpu(wanted) else original(to_cpu(wanted))

    torch.get_device_module = module  # type: ignore[assignment]


def _without_cuda(function: Any, ledger: AllocationLedger) -> Any:
    @functools.wraps(function)
    def wrapper(device: Any = None, *args: Any, **kwargs: Any) -> Any:
        if is_gpu(device):
            ledger.everything_on_gpu()
        return function(to_cpu(device), *args, **kwargs)

    return wrapper


def _redirect_device_numbers() -> None:
    """Allow `torch.device(0)`, which asks torch for the machine's accelerator."""
    original = torch.device

    class Kind(type):
        def __call__(cls, *device: Any, **named: Any) -> torch.device:
            return original("cuda", device[0]) if device and type(device[0]) is int else original(*device, **named)

        def __instancecheck__(cls, instance: object) -> bool:
            return isinstance(instance, original)

    torch.device = Kind("device", (), {})  # type: ignore[assignment, misc]


def _redirect_modules(ledger: AllocationLedger) -> None:
    """Allow `module.to(0)`, and record where a script moves modules.

    A GPU stays a GPU here: `CudaToCpu` replaces it, and records the parameters there, when `to` moves each of them.
    """
    to, cpu = torch.nn.Module.to, torch.nn.Module.cpu

    @functools.wraps(to)
    def module_to(self: Any, *args: Any, **kwargs: Any) -> Any:
        if kwargs.get("device") is not None:
            args = (kwargs.pop("device"), *args)  # by its name, the mode would replace it already where it is parsed
        moved = to(self, *map(number, args), **kwargs)
        return _move_off(moved, ledger) if any(map(is_host, args)) else moved

    @functools.wraps(cpu)
    def module_cpu(self: Any) -> Any:
        return _move_off(cpu(self), ledger)

    torch.nn.Module.to = module_to  # type: ignore[method-assign]
    torch.nn.Module.cpu = module_cpu  # type: ignore[method-assign]


def _move_off(module: torch.nn.Module, ledger: AllocationLedger) -> torch.nn.Module:
    """The module, whose parameters and buffers are in the memory of the host from now on."""
    if ledger.on_gpu is not None:
        for tensor in map(local, (*module.parameters(), *module.buffers())):
            if ledger.is_on_gpu(tensor):
                ledger.move(tensor)
            if isinstance(tensor, FakeTensor):
                ledger.keep_on_host(tensor)
    return module


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


def disable_scaling(scaler: Any) -> None:
    """Reduce a class of gradient scalers to the call of the optimizer: scaling changes values only."""
    scaler.scale = lambda _, outputs: outputs
    scaler.unscale_ = constant(None)
    scaler.step = lambda _, optimizer, *args, **kwargs: optimizer.step(*args, **kwargs)
    scaler.update = constant(None)
    scaler.get_scale = constant(1.0)


_compiled: list[None] = []


def was_compiled() -> bool:
    """Whether the script asked for torch.compile."""
    return bool(_compiled)


def _disable_compile() -> None:
    """Run compiled models in eager mode, which computes the same, and note that the script compiles."""

    def compile(model: Any = None, *_: Any, **__: Any) -> Any:
        _compiled.append(None)
        if isinstance(model, torch.nn.Module):
            with contextlib.suppress(Exception):  # a model that cannot be copied
                # Scripts reach the model itself by it, and look for it there again; it shares all parts of the model.
                object.__setattr__(model, COMPILED_MODEL, copy.copy(model))
        return model if model is not None else lambda decorated: decorated

    torch.compile = compile
    torch.nn.Module.compile = lambda *_, **__: _compiled.append(None)  # type: ignore[method-assign]
