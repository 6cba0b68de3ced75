"""The ceilings of a device: from its vendor's data sheet, or measured by the micro-benchmarks."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass

from pharoah_archetypes.devices import Device
from pharoah_archetypes.kinds import computing, kinds
from pharoah_protocol.ceilings import CeilingsError, CurvePoint, MeasuredCeilings

Curve = tuple[CurvePoint, ...]
"""Points in order of the work."""


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
        at = bisect_left(curve, work, key=lambda point: point.work)
        if at == 0:
            return curve[0].seconds if self.measured else curve[0].seconds * work / curve[0].work
        if at == len(curve):
            return curve[-1].seconds * work / curve[-1].work
        left, right = curve[at - 1 : at + 1]
        share = math.log(work / left.work) / math.log(right.work / left.work)
        return left.seconds * math.pow(right.seconds / left.seconds, share)


def read_measured_ceilings(name: str, found: MeasuredCeilings) -> Ceilings:
    """The ceilings that a node has measured. Raises CeilingsError when they lack a kind of operator."""
    for kind in kinds():
        if "float32" not in found.curves.get(kind, {}):
            what = f"curves.{kind} has no float32" if kind in found.curves else f"{kind!r} is missing"
            raise CeilingsError(f"ceilings: {what}; measure again with `pharoah-agent measure`")
    return Ceilings(name, True, found.overhead, found.curves)


def read_device_ceilings(device: Device) -> Ceilings:
    """The ceilings of a data sheet: every operator runs at full speed, and its call costs nothing.

    Products in float32 count as tf32 where the device has it, since the script may allow it.
    """
    flops = {**device.flops, "float32": max(device.flops["float32"], device.flops.get("tf32", 0.0))}
    compute = {dtype: (CurvePoint(work=1.0, seconds=1 / most),) for dtype, most in flops.items()}
    moved = {"float32": (CurvePoint(work=1.0, seconds=1 / device.bytes_per_second),)}
    curves = {kind: compute if kind in computing() else moved for kind in kinds()}
    return Ceilings(device.part, False, 0.0, curves, device.link_bytes_per_second)
