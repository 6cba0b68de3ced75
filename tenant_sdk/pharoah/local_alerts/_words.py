"""Amounts and times in words, for people."""

from __future__ import annotations

_UNITS = ("bytes", "KiB", "MiB", "GiB", "TiB")


def size(amount: float) -> str:
    """`1.5 GiB`, `300 bytes`."""
    for unit in _UNITS:
        if abs(amount) < 1024 or unit == _UNITS[-1]:
            break
        amount /= 1024
    return f"{amount:.3g} {unit}"


def clock_span(seconds: float) -> str:
    """`40 s`, `38 min`, `5.2 h`: two or three digits are enough for a forecast."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
