"""What `torch.cuda` and `torch.accelerator` answer in a dry run: what the simulated GPUs would answer."""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import torch

from pharoah.capture.hardware import list_simulated_gpus
from pharoah_archetypes.devices import device_named, usual_device

_SILENT = (
    "init", "_lazy_init", "set_device", "synchronize", "empty_cache", "ipc_collect", "manual_seed", "manual_seed_all",
    "seed", "seed_all", "set_rng_state", "set_rng_state_all", "set_stream", "reset_peak_memory_stats",
    "reset_max_memory_allocated", "set_per_process_memory_fraction", "set_sync_debug_mode",
)  # fmt: skip
"""Functions of `torch.cuda` that do nothing and return None here."""


def cuda_answers(names: list[str]) -> dict[str, Any]:
    """What the functions of `torch.cuda` return with these GPUs, of which the script may still choose some."""
    return {
        "is_available": lambda *_, **__: bool(names and list_simulated_gpus()),
        "is_initialized": constant(bool(names)),
        "device_count": lambda *_, **__: len(list_simulated_gpus()) if names else 0,
        "current_device": constant(0),
        "get_device_name": lambda *_, **__: _properties().name,
        "get_device_capability": lambda *_, **__: (_properties().major, _properties().minor),
        "get_device_properties": lambda *_, **__: _properties(),
        "is_bf16_supported": lambda *_, **__: _properties().major >= 8,
        "mem_get_info": lambda *_, **__: (_properties().total_memory,) * 2,
        "get_rng_state": lambda *_, **__: torch.get_rng_state(),
        "get_rng_state_all": lambda *_, **__: [torch.get_rng_state() for _ in list_simulated_gpus()],
        "initial_seed": lambda *_, **__: torch.initial_seed(),
        "device": _Context,
        "stream": _Context,
        "Stream": _Idle,
        "Event": _Idle,
        "current_stream": lambda *_, **__: _Idle(),
        "default_stream": lambda *_, **__: _Idle(),
        "memory_stats": lambda *_, **__: defaultdict(int),
        "memory_summary": constant(""),
        **{
            name: constant(0)
            for name in ("memory_allocated", "max_memory_allocated", "memory_reserved", "max_memory_reserved")
        },
        **{name: constant(None) for name in _SILENT},  # one function each: dynamo files every one under its name
    }  # fmt: skip


def _properties() -> Any:
    """The properties of the first GPU that the script has chosen."""
    name = next(iter(list_simulated_gpus()), "")
    device = device_named(name) or usual_device()
    return SimpleNamespace(
        name=name,
        total_memory=device.memory_bytes,
        major=device.capability[0],
        minor=device.capability[1],
        multi_processor_count=device.processors,
        warp_size=32,
    )


def accelerator_answers(names: list[str]) -> dict[str, Any]:
    """What the functions of `torch.accelerator` return with these GPUs."""
    of_cuda = cuda_answers(names)
    shared = ("is_available", "device_count", "memory_stats", "mem_get_info", "current_stream", *_SILENT)
    return {
        **{name: of_cuda[name] for name in shared if name in of_cuda},
        **{name: of_cuda[name] for name in of_cuda if "memory_" in name},
        "current_accelerator": constant(torch.device("cuda") if names else None),
        "current_device_index": constant(0),
        "current_device_idx": constant(0),
        "set_device_index": constant(None),
        "set_device_idx": constant(None),
        "set_stream": constant(None),
        "device_index": _Context,
        "get_memory_info": of_cuda["mem_get_info"],
        "get_device_capability": lambda *_, **__: {"supported_dtypes": set(_DTYPES)},
    }


_DTYPES = (
    torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.complex64, torch.complex128, torch.int64,
    torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool,
)  # fmt: skip
"""What every GPU of the data sheets computes with."""


def constant(value: Any) -> Callable[..., Any]:
    """A function that takes any arguments and returns one value."""
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
        return constant(None)
