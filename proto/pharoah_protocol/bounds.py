"""Bounds of the numbers and texts that other machines send: what lies outside was not measured, and is refused where it
arrives. Within them, means, variances, logarithms and products of all that is kept are finite.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import isfinite
from typing import TypeGuard

MIN_SECONDS, MAX_SECONDS = 1e-9, 1e5
"""A duration that was measured: clocks of machines count nanoseconds, and no step or repeat of ours lasts a day."""
MAX_DURATIONS = 100_000
"""Durations in one list: an hour of steps of 36 ms."""
MAX_WINDOWS = 2_000
"""Windows of one degraded cell: a quarter of an hour of windows of half a second (`record.CELL_WINDOW_SECONDS`)
is 1,800. Making features of them takes time that grows with their square."""
MAX_WINDOW_VALUES = 64
"""Signals in one window; there are two now, and plug-ins may add more."""
MAX_RATIO = 1e6
"""A measurement over its own baseline."""
MAX_MEMORY_BYTES = 1 << 50
"""A petabyte: more than any machine has."""
MAX_CLOCK_DIFFERENCE_SECONDS = 86_400.0
"""How far the clock of an honest machine may be off: a day covers every time zone that was set as if it were UTC."""
MAX_INPUT_BYTES = 0xFFFF
"""The canonical input of a row: RFC 9497 limits the input of the VOPRF to 2^16 - 1 bytes."""
MAX_TABLE_BYTES = 1_000_000
"""A portable table: the provider receives no larger message."""
MAX_FINGERPRINT_BYTES = 1 << 18
"""A fingerprint as JSON, from an agent or from a tenant that reveals a job."""


def check_durations(name: str, seconds: Iterable[object]) -> None:
    """Raise ValueError that names the field, unless all of these are durations that can have been measured."""
    for count, value in enumerate(seconds, 1):
        if not is_number(value) or not MIN_SECONDS <= value <= MAX_SECONDS:
            shown = repr(value)[:40]
            raise ValueError(f"{name}: {shown} is not a time between {MIN_SECONDS:g} and {MAX_SECONDS:g} s")
        if count > MAX_DURATIONS:
            raise ValueError(f"{name}: more than {MAX_DURATIONS} values")


def check_time(name: str, at: float, now: float) -> None:
    """Raise ValueError that names the field, unless `at` is within a day of `now`; both in unix seconds."""
    if not isfinite(at) or abs(at - now) > MAX_CLOCK_DIFFERENCE_SECONDS:
        raise ValueError(f"{name}: not a time of the last or the next day; is the clock of the machine right?")


def is_number(value: object) -> TypeGuard[float]:
    """Whether a value from JSON or a database is a finite number; truth values are none."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    try:
        return isfinite(value)
    except OverflowError:  # an integer that is too large for a float
        return False
