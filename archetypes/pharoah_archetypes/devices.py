"""What accelerators can do at most, read from `devices.toml`."""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any


@dataclass(frozen=True)
class Device:
    """Ceilings from a data sheet."""

    part: str
    """Part of the names of such devices."""
    capability: tuple[int, int]
    processors: int
    memory_bytes: int
    flops: dict[str, float]
    """Dtype, or `tf32` for float32 on tensor cores, to floating-point operations a second."""
    bytes_per_second: float
    link_bytes_per_second: float
    """To the other devices of a node, in one direction."""


_PART_OF_A_GPU = re.compile(r"-[0-9]+[ABCQ][A-Z]*$|\bMIG\b")
"""How a name says that it is that of a part of a GPU: a profile of NVIDIA's vGPU software ends it (`A40-12Q`, and
`A100-1-5CME` on a partition), and the driver adds the profile of a partition (`MIG 1g.10gb`)."""


@cache
def devices() -> tuple[Device, ...]:
    """All known devices; of those whose part is in a name, the first is meant."""
    data = tomllib.loads(resources.files(__package__).joinpath("devices.toml").read_text())
    return tuple(_device(entry) for entry in data["device"])


def device_named(name: str) -> Device | None:
    """`NVIDIA H100 80GB HBM3` as the data file knows it. A part is no part of a longer number: an A4000 is no A40. And
    a laptop's GPU is not the one whose name it has, nor is a part of a GPU, which has less memory and is slower."""
    if _PART_OF_A_GPU.search(name):
        return None
    return next((one for one in devices() if re.search(rf"(?<![0-9]){one.part}(?![0-9]| Laptop)", name)), None)


def usual_device() -> Device:
    """What a device is taken for that nobody knows."""
    return next(device for device in devices() if device.part == "H100")


def _device(entry: dict[str, Any]) -> Device:
    major, _, minor = entry["capability"].partition(".")
    return Device(
        part=entry["part"],
        capability=(int(major), int(minor)),
        processors=entry["processors"],
        memory_bytes=entry["memory"] << 30,
        flops={dtype: value * 1e12 for dtype, value in entry["tera"].items()},
        bytes_per_second=entry["bandwidth"] * 1e9,
        link_bytes_per_second=entry["link"] * 1e9,
    )
