"""Pauses between attempts to reach a peer that does not answer.

Needs the standard library only: it runs beside the training process as well as in the agent.
"""

from __future__ import annotations

import random as random_numbers

GROWTH = 2.0
"""Each pause is at most this many times as long as the one before."""
SMALLEST_FRACTION = 0.5
"""A pause is drawn between this fraction of its length and the whole length. After a restart of the provider thousands
of peers are disconnected at the same moment; drawn pauses spread their attempts over time."""


class Backoff:
    """Pauses that grow exponentially until `longest_seconds`; each owner keeps one, and resets it on success."""

    def __init__(
        self, first_seconds: float, longest_seconds: float, random: random_numbers.Random | None = None
    ) -> None:
        """`random` draws the pauses; by default each instance has its own generator, seeded by the system.

        Raises ValueError unless 0 < first_seconds <= longest_seconds.
        """
        if not 0 < first_seconds <= longest_seconds:
            raise ValueError(f"backoff: first {first_seconds} s and longest {longest_seconds} s do not fit together")
        self._first_seconds, self._longest_seconds = first_seconds, longest_seconds
        self._random = random or random_numbers.Random()
        self._limit_seconds = first_seconds

    def next_pause(self) -> float:
        """Seconds to wait before the next attempt."""
        limit = self._limit_seconds
        self._limit_seconds = min(GROWTH * limit, self._longest_seconds)
        return self._random.uniform(SMALLEST_FRACTION * limit, limit)

    def reset(self) -> None:
        """The peer answered: the next pause is short again."""
        self._limit_seconds = self._first_seconds
