"""Simple rules on step times, beside the alerts of the tenant's own machine: what neighbouring tools do.

Each rule sees the same steps, in the same windows of 5 s, and raises at the end of a window.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from statistics import fmean, median, stdev
from typing import NamedTuple

from evaluation.loop.step_times import Step

WINDOW_SECONDS = 5.0
FIRST_WINDOWS = 12
ROLLING_WINDOWS = 60
DEVIATIONS = 3.0
RATIO = 1.1


class Window(NamedTuple):
    """The steps of some seconds."""

    ended_at: float
    mean: float


def windows(steps: Sequence[Step]) -> list[Window]:
    """All complete windows of at least one step."""
    found: list[Window] = []
    part: list[Step] = []
    for step in steps:
        part.append(step)
        if step.ended_at - part[0].ended_at >= WINDOW_SECONDS:
            found.append(Window(step.ended_at, fmean(one.seconds for one in part)))
            part = []
    return found


def rolling_z_score(own: Sequence[Window], _: Sequence[Window]) -> Iterator[float]:
    """A window is three standard deviations above those of the last five minutes."""
    for at in range(FIRST_WINDOWS, len(own)):
        before = [window.mean for window in own[max(0, at - ROLLING_WINDOWS) : at]]
        if own[at].mean > fmean(before) + DEVIATIONS * stdev(before):
            yield own[at].ended_at


def fixed_ratio(own: Sequence[Window], _: Sequence[Window]) -> Iterator[float]:
    """A window takes 1.1 times as long as the median of the first ones."""
    if len(own) > FIRST_WINDOWS:
        usual = median(window.mean for window in own[:FIRST_WINDOWS])
        yield from (window.ended_at for window in own[FIRST_WINDOWS:] if window.mean > RATIO * usual)


def peer_similarity(own: Sequence[Window], peer: Sequence[Window]) -> Iterator[float]:
    """A window takes 1.1 times as long as that of the other job at that time, both over their own first ones."""
    if min(len(own), len(peer)) <= FIRST_WINDOWS:
        return
    usual, other = (median(window.mean for window in some[:FIRST_WINDOWS]) for some in (own, peer))
    for window in own[FIRST_WINDOWS:]:
        near = min(peer, key=lambda one: abs(one.ended_at - window.ended_at))
        if abs(near.ended_at - window.ended_at) < WINDOW_SECONDS and window.mean / usual > RATIO * near.mean / other:
            yield window.ended_at


Rule = Callable[[Sequence[Window], Sequence[Window]], Iterator[float]]
RULES: dict[str, Rule] = {
    "rolling_z_score": rolling_z_score,
    "fixed_ratio": fixed_ratio,
    "peer_similarity": peer_similarity,
}
