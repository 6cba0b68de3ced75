"""Counters of the kernel and of devices: what they have counted lately, whatever they do meanwhile.

A counter wraps at the width that its hardware has, begins again when a driver is loaded, and vanishes with its device.
"""

from __future__ import annotations

import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator

from pharoah_provider.agent.signals._signal import Reading

WIDTHS = (1 << 32, 1 << 64)
"""Numbers at which counters wrap."""
NEAR_THE_END = 0.9
"""A counter that falls from beyond this share of its width has wrapped; any other one that falls has begun again."""
RECENT_SECONDS = 60.0
"""For so long an increase counts as trouble: twice as long as the provider's longest period of telemetry."""
MOST_DEVICES = 4096
"""Devices that one counter is remembered for."""

Read = Callable[[], Iterable[Reading]]


def increase(before: float, now: float) -> float:
    """What a counter has counted between two readings; at least what it shows when it has begun again."""
    if now >= before:
        return now - before
    for width in WIDTHS:
        if NEAR_THE_END * width <= before < width:
            return width - before + now
    return now


def increased_lately(
    read: Read, least: float = 1.0, seconds: float = RECENT_SECONDS, clock: Callable[[], float] = time.monotonic
) -> Read:
    """A reader of trouble: 1 for each device whose counter has counted `least` or more in the last `seconds`.

    What was counted before the first reading is no trouble of now. The reader keeps what it has seen, so it may be
    called by several at any times.
    """
    newest: dict[str, float] = {}
    counted: dict[str, deque[_Counted]] = defaultdict(deque)

    def trouble() -> Iterator[Reading]:
        now = clock()
        for reading in read():
            if reading.device not in newest and len(newest) >= MOST_DEVICES:
                continue
            before = newest.get(reading.device, reading.value)
            newest[reading.device] = reading.value
            recent = counted[reading.device]
            if (more := increase(before, reading.value)) > 0:
                recent.append((now, more))
            while recent and now - recent[0][0] > seconds:
                recent.popleft()
            yield Reading(float(sum(amount for _, amount in recent) >= least), reading.device)

    return trouble


_Counted = tuple[float, float]
"""A time, and what was counted then."""
