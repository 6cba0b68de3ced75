"""A rank that is late from the first step on: there is no "before" to compare it with, so the ranks are compared."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from statistics import median

from pharoah.local_alerts._detector import Condition, Detector, View
from pharoah.local_alerts._first_windows import FirstWindows
from pharoah.local_alerts._slow_causes import BENCHMARKED, MIN_THROTTLED_RATIO
from pharoah.local_alerts._step_windows import Window
from pharoah_protocol.vocabulary import Attribution, Resource

MIN_RATIO = 1.5
"""How many times as long as the others a rank must need. Stages of a pipeline and uneven batches differ by less."""
MIN_WAITING_SHARE = 0.15
"""The share of their steps that the others must wait, and that a rank must need more than they do: else nobody waits
for this rank."""


@dataclass
class _LateRank:
    """Judges the first windows of all ranks of this machine, and withdraws what the newest ones do not show."""

    wants_lateness = False
    _first: FirstWindows = field(default_factory=FirstWindows)
    _judged: bool = False
    _holds: Condition | None = None

    def look(self, view: View) -> Iterator[Condition]:
        if self._holds or not self._judged:
            self._judge(view)
        if self._holds:
            yield self._holds

    def _judge(self, view: View) -> None:
        if self._first.add(view) and (typical := self._first.typical()) is not None and len(typical) > 1:
            found = _condition(typical, view)
            if self._holds is None or found is None or found.where != self._holds.where:
                self._holds = None if self._judged else found
            self._judged = True


def _condition(usual: Mapping[int, Window], view: View) -> Condition | None:
    """What holds, by the typical windows of all ranks."""
    needed = {rank: window.computed + window.queued for rank, window in usual.items()}
    late = max(needed, key=lambda rank: needed[rank])
    others = [window for rank, window in usual.items() if rank != late]
    typical = median(window.computed + window.queued for window in others)
    waiting = median(window.waited / window.took for window in others)
    took = median(window.took for window in others)
    if needed[late] < MIN_RATIO * typical or waiting < MIN_WAITING_SHARE:
        return None
    if needed[late] - typical < MIN_WAITING_SHARE * took:
        return None  # all ranks wait for something else, such as data: next to that, what they compute is little
    own = usual[late]
    ratio = needed[late] / typical if typical else 1.0
    resource, who, likely = Resource.COMPUTE, Attribution.NODE, "its processor is slower, or its batches are larger"
    if own.throttled >= MIN_THROTTLED_RATIO * own.took:
        who, likely = Attribution.PLATFORM, "its control group has used up its processor time"
    elif own.queued >= own.computed / 2:
        who, likely = Attribution.NEIGHBOUR, "another process takes turns with it on its core"
    return Condition(
        key="late_rank",
        resource=resource,
        fault_domain=who,
        what=f"rank {late} needs {ratio:.1f} times as long for a step as the other ranks, which wait for it",
        where=f"this node, rank {late}",
        likely=likely,
        action="compare the clocks and limits of its core or device with those of the others; restart without it",
        evidence=f"per step: rank {late} computes {1e3 * own.computed:.3g} ms and is queued {1e3 * own.queued:.3g} ms; "
        f"the others wait {waiting:.0%} of their steps",
        since=view.unix - (view.at - own.began_at),
        step_ratio=ratio,
        validation=who in BENCHMARKED,
    )


DETECTOR = Detector(
    "late_rank",
    "a rank that needs 1.5 times as long as the others from the first step on, while they wait for it",
    _LateRank,
    judges_steps=True,
)
