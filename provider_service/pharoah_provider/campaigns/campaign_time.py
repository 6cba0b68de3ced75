"""A campaign has a time of its own, which no jump of the wall clock moves: durations of works use up its budget."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from pharoah_provider.campaigns.works import Work
from pharoah_serving.clock import Clock


def campaign_time(clock: Clock, works: Iterable[Work]) -> Callable[[], float]:
    """What is returned gives unix seconds that go on steadily from now, or from the newest end of a work where the wall
    clock has been set back since: two works that did not run side by side must not cover the same time."""
    steady_began = clock.steady()
    began = max([clock.wall(), *(work.ended_at for work in works)])
    return lambda: began + clock.steady() - steady_began
