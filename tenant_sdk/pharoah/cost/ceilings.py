"""The ceilings of a device: from its vendor's data sheet, or measured by the micro-benchmarks."""

from __future__ import annotations

import math
from bisect import bisect
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

from pharoah_archetypes.devices import Device
from pharoah_archetypes.kinds import computing, kinds


class CurvePoint(NamedTuple):
    """One measurement of an operator."""

    work: float
    """Floating-point operations for computing kinds, bytes for others."""
    seconds: float


Curve = tuple[CurvePoint, ...]
"""Points in order of the work."""


class CeilingsError(ValueError):
    """Malformed ceilings. The message names the part."""


@dataclass(frozen=True)
class Ceilings:
    """The highest speeds of one device, measured or from its data sheet."""

    name: str
    measured: bool
    overhead: float
    """Seconds that the call of an operator costs in a training step, whatever its size."""
    curves: Mapping[str, Mapping[str, Curve]]
    """Curves by kind of operator and dtype. float32 is always present."""
    link: float = 0.0
    """Bytes per second to the other devices of a node; 0 when it is not known."""

    def seconds(self, kind: str, dtype: str, work: float) -> float:
        """Seconds of one operator. Work is floating-point operations for computing kinds and bytes for others.

        Between points of a curve time is a power of work; beyond the last it grows in proportion, and below the first
        it is constant where it was measured, in proportion on a data sheet.
        """
        curve = self.curves[kind].get(dtype) or self.curves[kind]["float32"]
        if work <= 0:
            return 0.0
        at = bisect(curve, (work,))
        if at == 0:
            return curve[0].seconds if self.measured else curve[0].seconds * work / curve[0].work
        if at == len(curve):
            return curve[-1].seconds * work / curve[-1].work
        (left, least), (right, most) = curve[at - 1 : at + 1]
        return least * math.pow(most / least, math.log(work / left) / math.log(right / left))


def measured(name: str, data: Any) -> Ceilings:
    """Read the JSON that `pharoah-agent measure` prints. Raises CeilingsError."""
    try:
        curves = {
            kind: {dtype: _curve(f"{kind}.{dtype}", points) for dtype, points in data["curves"][kind].items()}
            for kind in kinds()
        }
        overhead = float(data["overhead"])
    except KeyError as missing:
        raise CeilingsError(f"ceilings: {missing} is missing; measure again with `pharoah-agent measure`") from None
    except (TypeError, AttributeError) as fault:
        raise CeilingsError(f"ceilings: {fault}; write what `pharoah-agent measure` prints") from None
    if lacking := [kind for kind, by_dtype in curves.items() if "float32" not in by_dtype]:
        raise CeilingsError(f"ceilings: curves.{lacking[0]} has no float32")
    if not 0 < overhead < 1:
        raise CeilingsError(f"ceilings: overhead is {overhead}, expected seconds of calling one operator")
    return Ceilings(name, True, overhead, curves)


def _curve(name: str, points: Any) -> Curve:
    try:
        curve = tuple(CurvePoint(work=float(work), seconds=float(seconds)) for work, seconds in points)
    except (TypeError, ValueError):
        curve = ()
    if not curve or any(not (0 < number < math.inf) for point in curve for number in point):
        raise CeilingsError(f"ceilings: curves.{name} is not pairs of work and seconds, all above zero")
    if any(left.work >= right.work for left, right in pairwise(curve)):
        raise CeilingsError(f"ceilings: curves.{name} is not in order of work")
    return curve


def of_device(device: Device) -> Ceilings:
    """The ceilings of a data sheet: every operator runs at full speed, and its call costs nothing.

    Products in float32 count as tf32 where the device has it, since the script may allow it.
    """
    flops = {**device.flops, "float32": max(device.flops["float32"], device.flops.get("tf32", 0.0))}
    compute = {dtype: (CurvePoint(work=1.0, seconds=1 / most),) for dtype, most in flops.items()}
    moved = {"float32": (CurvePoint(work=1.0, seconds=1 / device.bytes_per_second),)}
    curves = {kind: compute if kind in computing() else moved for kind in kinds()}
    return Ceilings(device.part, False, 0.0, curves, device.link_bytes_per_second)
