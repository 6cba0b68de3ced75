"""A random delay for messages that leave at fixed times, so that how late they leave shows little of the machine.

A message that is due leaves a little later, and how much later can depend on what the processors do besides. The mean
of many messages shows it. The delay depends on nothing and makes that mean uncertain: with a delay of at most half a
second and a message each second, by a third of a millisecond after a day. It is drawn from a triangular distribution,
and not from a uniform one, whose edges show as the earliest and the latest of many messages. docs/adr/0060.
"""

from __future__ import annotations

from random import SystemRandom

_RANDOM = SystemRandom()
"""The operating system's numbers: the next ones of a seeded generator could be computed from earlier times."""


def random_delay(longest_seconds: float) -> float:
    """Seconds between zero and `longest_seconds`, half of it on average."""
    return _RANDOM.triangular(0.0, longest_seconds)
