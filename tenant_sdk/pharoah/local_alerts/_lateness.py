"""How late each rank calls its collectives, from the flight recorder of each. Ranks of one machine share a clock."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from statistics import median

from pharoah_protocol.rank_messages import CollectiveStart

NANOSECONDS = 1e9


def lateness(starts: Mapping[int, Sequence[CollectiveStart]]) -> dict[int, float]:
    """By rank: the seconds from the first call of a collective to this rank's, the median over those that at least two
    ranks have called."""
    calls: dict[tuple[str, int], dict[int, int]] = defaultdict(dict)
    for rank, called in starts.items():
        for one in called:
            calls[one.group, one.number][rank] = one.at_ns
    late: dict[int, list[float]] = defaultdict(list)
    for at in calls.values():
        if len(at) > 1:
            first = min(at.values())
            for rank, when in at.items():
                late[rank].append((when - first) / NANOSECONDS)
    return {rank: median(seconds) for rank, seconds in late.items()}
