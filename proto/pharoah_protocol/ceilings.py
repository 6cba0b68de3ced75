"""Reading the ceilings of a node: the JSON that `pharoah-agent measure` prints, checked and bounded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from pharoah_system.text import render_value

MAX_CURVES = 256
"""Kinds of operators times dtypes; `pharoah-agent measure` makes about twenty."""
MAX_POINTS = 1024
"""Points of all curves together, so that ceilings fit into one local message; `pharoah-agent measure` makes about a
hundred."""
MAX_NAME_LENGTH = 64
MAX_WORK = 1e18
"""Operations or bytes of one operator: an hour of the fastest device."""
MIN_SECONDS = 1e-12
"""No operator is faster than a clock cycle."""
MAX_SECONDS = 1e5
"""No benchmark takes longer than a day."""


_HINT = "write what `pharoah-agent measure` prints"


class CeilingsError(ValueError):
    """Malformed ceilings. The message names the part."""


@dataclass(frozen=True)
class CurvePoint:
    """One measurement of an operator."""

    work: float
    """Floating-point operations for computing kinds, bytes for others."""
    seconds: float


@dataclass(frozen=True)
class MeasuredCeilings:
    """What a node can do at most, as `pharoah-agent measure` has found out."""

    overhead: float
    """Seconds that the call of an operator costs in a training step."""
    curves: dict[str, dict[str, tuple[CurvePoint, ...]]] = field(default_factory=dict)
    """Points in order of the work, by kind of operator and dtype."""

    def to_dict(self) -> dict[str, Any]:
        """What `read_ceilings` reads again."""
        curves = {
            kind: {dtype: [[point.work, point.seconds] for point in curve] for dtype, curve in by_dtype.items()}
            for kind, by_dtype in self.curves.items()
        }
        return {"overhead": self.overhead, "curves": curves}


def read_ceilings(data: object) -> MeasuredCeilings:
    """The ceilings in a JSON value. Raises CeilingsError."""
    if not isinstance(data, Mapping):
        raise CeilingsError(f"ceilings: an object was expected, not {render_value(data)}; {_HINT}")
    for name in ("curves", "overhead"):
        if name not in data:
            raise CeilingsError(f"ceilings: {name!r} is missing; measure again with `pharoah-agent measure`")
    curves = {
        _name(kind): {_name(dtype): _curve(f"{kind}.{dtype}", points) for dtype, points in _read_pairs(by_dtype)}
        for kind, by_dtype in _read_pairs(data["curves"])
    }
    if sum(map(len, curves.values())) > MAX_CURVES:
        raise CeilingsError(f"ceilings: more than {MAX_CURVES} curves")
    if sum(len(curve) for by_dtype in curves.values() for curve in by_dtype.values()) > MAX_POINTS:
        raise CeilingsError(f"ceilings: more than {MAX_POINTS} points")
    overhead = _number(data["overhead"])
    if not 0 < overhead < 1:
        raise CeilingsError(f"ceilings: overhead is {overhead}, expected seconds of calling one operator")
    return MeasuredCeilings(overhead, curves)


def _read_pairs(value: object) -> list[tuple[object, object]]:
    if not isinstance(value, Mapping) or len(value) > MAX_CURVES:
        raise CeilingsError(f"ceilings: curves by name were expected, not {render_value(value)}; {_HINT}")
    return list(value.items())


def _name(value: object) -> str:
    if not isinstance(value, str) or not value.isprintable() or len(value) > MAX_NAME_LENGTH:
        raise CeilingsError(f"ceilings: {render_value(value)} is not the name of a kind or of a dtype")
    return value


def _number(value: object) -> float:
    if type(value) not in (int, float):
        raise CeilingsError(f"ceilings: a float was expected, not {render_value(value)}; {_HINT}")
    try:
        return float(value)  # type: ignore[arg-type]
    except OverflowError:
        raise CeilingsError(f"ceilings: {render_value(value)} is too large") from None


def _curve(name: str, points: object) -> tuple[CurvePoint, ...]:
    if not isinstance(points, list) or not 0 < len(points) <= MAX_POINTS:
        raise CeilingsError(f"ceilings: curves.{name} is not pairs of work and seconds; {_HINT}")
    curve = tuple(_point(name, point) for point in points)
    if any(left.work >= right.work for left, right in pairwise(curve)):
        raise CeilingsError(f"ceilings: curves.{name} is not in order of work")
    return curve


def _point(name: str, pair: object) -> CurvePoint:
    if not isinstance(pair, list) or len(pair) != 2:
        raise CeilingsError(f"ceilings: curves.{name} is not pairs of work and seconds; {_HINT}")
    work, seconds = _number(pair[0]), _number(pair[1])
    if not (0 < work <= MAX_WORK and MIN_SECONDS <= seconds <= MAX_SECONDS):
        raise CeilingsError(
            f"ceilings: curves.{name} is not pairs of work and seconds, all above zero and below {MAX_WORK:g} and "
            f"{MAX_SECONDS:g}"
        )
    return CurvePoint(work, seconds)
