"""Facts of a context as tokens. Standard library only: the agent imports this, and never torch."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pharoah_protocol.vocabulary import DeviceKind

GPU_FACT = "gpu"
"""The fact that names the model of the GPU, on nodes that have one."""
GPU_COUNT_FACT = "gpu_count"
"""The fact that says how many GPUs the driver of a node knows."""


def server_facts(facts: dict[str, Any]) -> list[str]:
    """All facts as `name=value`; a server configuration is the set of them."""
    return sorted(f"{name}={value}" for name, value in facts.items())


def device_facts(facts: dict[str, Any]) -> list[str]:
    """The facts that name the device model."""
    return sorted(f"{name}={facts[name]}" for name in ("device", "isa", GPU_FACT) if name in facts)


def gpu_count(server_facts: Iterable[str]) -> int:
    """How many GPUs a node with these facts has; one where nothing says it."""
    counts = (fact.partition("=")[2] for fact in server_facts if fact.startswith(f"{GPU_COUNT_FACT}="))
    return max((int(count) for count in counts if count.isdecimal()), default=1)


def find_named_device(server_facts: Iterable[str]) -> DeviceKind:
    """The device that a context is about: its GPU if it names one."""
    return DeviceKind.CUDA if DeviceKind.CUDA in device_kinds(server_facts) else DeviceKind.CPU


def device_kinds(server_facts: Iterable[str]) -> frozenset[DeviceKind]:
    """The kinds of devices that a node with these facts has; every node has a CPU."""
    has_gpu = any(fact.startswith(f"{GPU_FACT}=") for fact in server_facts)
    return frozenset({DeviceKind.CPU, DeviceKind.CUDA} if has_gpu else {DeviceKind.CPU})
