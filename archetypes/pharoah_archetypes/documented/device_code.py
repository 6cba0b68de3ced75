"""Which GPUs can run the device code that a build holds: the rules of NVIDIA's CUDA C++ Programming Guide.

*Binary compatibility*: binary code for X.y runs on devices X.z with z >= y, not across major numbers. That holds for
the desktop and the data centre; between them and Tegra, and between Tegra devices, it does not.
*PTX compatibility*: PTX code for X.y can be compiled by the driver for every device of X.y or above. *Architecture
features*: code for `9.0a`, binary or PTX, runs on devices 9.0 alone, and code for `10.0f` on later devices of the same
family.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from pharoah_archetypes.documented.releases import any_of, read_release

_SEPARATORS = re.compile(r"[\s;,]+")
_POINTED = re.compile(r"(\d+)\.(\d)([af]?)(\+PTX)?")
_FLAG = re.compile(r"(sm|compute)_(\d+)(\d)([af]?)")
_NOTE = re.compile(r"\[\d+\]")


class Capability(NamedTuple):
    """A compute capability, which CUDA writes as 9.0."""

    major: int
    minor: int

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}"


TEGRA = frozenset(map(Capability._make, ((3, 2), (5, 3), (6, 2), (7, 2), (8, 7), (11, 0))))
"""Compute capabilities of Tegra devices (developer.nvidia.com/cuda-gpus, Jetson products)."""


class Code(NamedTuple):
    """Device code for one compute capability."""

    capability: Capability
    suffix: str = ""
    """`a` for code with features of this architecture, `f` for those of its family."""
    ptx: bool = False

    def runs_on(self, device: Capability) -> bool | None:
        """Whether a device can run it; None where no document says so."""
        if device == self.capability:
            return True
        if self.suffix == "a" or device < self.capability:
            return False
        if self.suffix == "f":
            return None if device.major == self.capability.major else False
        if self.ptx:
            return True
        if device.major != self.capability.major:
            return False
        return None if {device, self.capability} & TEGRA else True


class DeviceCode(NamedTuple):
    """All device code of one build."""

    codes: tuple[Code, ...]
    text: str

    def __str__(self) -> str:
        return self.text

    @property
    def oldest(self) -> int:
        """The oldest generation that it has code for: the major number of a compute capability."""
        return min(code.capability.major for code in self.codes)

    def allows(self, value: str) -> bool | None:
        """Whether a device runs some of the code, which is all that a build needs; None where that is undecided."""
        device = read_capability(value)
        return any_of(code.runs_on(device) for code in self.codes)

    def above(self, value: str) -> bool:
        """Whether a device is certainly of a later generation than all of the code, without PTX code for it."""
        major = read_capability(value).major
        return all(code.capability.major < major and not (code.ptx and not code.suffix) for code in self.codes)

    def below(self, value: str) -> bool:
        """Whether a device is certainly earlier than all of the code."""
        device = read_capability(value)
        return all(device < code.capability for code in self.codes)


def read_capability(text: str) -> Capability:
    """`9.0` as a compute capability. Raises ValueError for another text."""
    numbers = read_release(text).numbers
    if len(numbers) != 2:
        raise ValueError(f"{text!r} is not a compute capability such as 9.0")
    return Capability(*numbers)


def read_device_code(text: str) -> DeviceCode:
    """`7.0;8.0;9.0a;12.0+PTX`, or flags as torch lists them (`sm_70 compute_120`). Raises ValueError otherwise."""
    codes: list[Code] = []
    for part in filter(None, _SEPARATORS.split(_NOTE.sub("", text))):
        if match := _POINTED.fullmatch(part):
            capability = Capability(int(match[1]), int(match[2]))
            codes.append(Code(capability, match[3]))
            codes += [Code(capability, match[3], ptx=True)] if match[4] else []
        elif match := _FLAG.fullmatch(part):
            codes.append(Code(Capability(int(match[2]), int(match[3])), match[4], ptx=match[1] == "compute"))
        else:
            raise ValueError(f"{part!r} is no device code: write `8.0`, `9.0a`, `12.0+PTX`, `sm_80` or `compute_120`")
    if not codes:
        raise ValueError("no device code is listed")
    return DeviceCode(tuple(codes), text)
