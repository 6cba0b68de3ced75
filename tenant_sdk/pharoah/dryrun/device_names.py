"""Devices as scripts name them: which of them are GPUs, and what a dry run uses instead."""

from __future__ import annotations

from typing import Any

import torch


def is_gpu(device: Any) -> bool:
    """Whether a device argument names a GPU. A bare number is the index of one."""
    return type(device) is int or (isinstance(device, (str, torch.device)) and str(device).startswith("cuda"))


def is_host(device: Any) -> bool:
    """Whether a script asks for the memory of the host.

    Only text shows it. The device of a tensor that would be on a GPU is `torch.device("cpu")` here, and scripts pass it
    on: `torch.zeros(8, device=x.device)`.
    """
    return isinstance(device, str) and device.partition(":")[0] == "cpu"


def number(device: Any) -> Any:
    """The GPU with a number; every other device argument unchanged. torch looks for the number on this machine."""
    return torch.device("cuda", device) if type(device) is int else device


def place(device: Any) -> Any:
    """The device to use instead of a device argument, where a bare number is the index of a GPU."""
    return "cpu" if type(device) is int else to_cpu(device)


def to_cpu(device: Any) -> Any:
    """The device to use instead: `cpu` for `cuda:1`. Other values are returned unchanged."""
    if isinstance(device, torch.device):
        return torch.device("cpu") if device.type == "cuda" else device
    if isinstance(device, str) and device.partition(":")[0] == "cuda":
        return "cpu"
    return device
