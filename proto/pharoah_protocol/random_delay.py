"""A random delay for messages that leave at fixed times, so that how late they leave shows little of the machine.

A message that is due leaves some tenths of a millisecond later, and how much later depends on what the processors do
besides: `python -m evaluation privacy --part telemetry`. Whoever receives one message a second could find the mean of
that within minutes. The delay adds noise that is a thousand times as large, and depends on nothing: after a day the
mean is still uncertain by about a third of a millisecond. It is drawn from a triangular distribution, and not from a
uniform one, whose edges show as the earliest and the latest of many messages.
"""

from __future__ import annotations

from random import SystemRandom

_RANDOM = SystemRandom()
"""The operating system's numbers: the next ones of a seeded generator could be computed from earlier times."""


def random_delay(longest_seconds: float) -> float:
    """Seconds between zero and `longest_seconds`, half of it on average."""
    return _RANDOM.triangular(0.0, longest_seconds)
