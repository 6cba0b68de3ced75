"""Steps that take several times as long as this node should need: there is no "before" that was better.

The prediction is that of the dry run (`pharoah.cost.duration`). It is used where the operator has measured what the
node can do (`pharoah-agent measure`); the data sheet of a device is a lower bound that real jobs do not reach.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from pharoah.local_alerts._detector import Condition, Detector, View
from pharoah.local_alerts._first_windows import FirstWindows
from pharoah.local_alerts._slow_causes import MIN_THROTTLED_RATIO
from pharoah.local_alerts._step_windows import Window
from pharoah_protocol.vocabulary import Attribution, Resource

MIN_RATIO = 3.0
"""Predictions are wrong by 15 % in the median (`steptime_median_error_ratio`, `python -m evaluation distributed`), and
by far more for single jobs; a device that is clocked down to a seventh of its speed is beyond all of them."""
MIN_OWN_SHARE = 0.5
"""The share of its steps in which a rank must compute or be ready to: a job that waits for its data or for other ranks
says nothing about the processor."""


@dataclass
class _BelowPrediction:
    """Judges the first windows of all ranks beside the prediction, and withdraws what the newest ones do not show."""

    wants_lateness = False
    _first: FirstWindows = field(default_factory=FirstWindows)
    _judged: bool = False
    _holds: Condition | None = None

    def look(self, view: View) -> Iterator[Condition]:
        if view.expected_step_seconds > 0 and (self._holds or not self._judged):
            self._judge(view)
        if self._holds:
            yield self._holds

    def _judge(self, view: View) -> None:
        if self._first.add(view) and (typical := self._first.typical()) is not None:
            found = _condition(typical, view)
            self._holds = found and (self._holds or found)
            self._judged = True


def _condition(typical: Mapping[int, Window], view: View) -> Condition | None:
    """What holds, by the typical windows of all ranks. The fastest rank is looked at: that one rank alone is late is
    found by comparing the ranks."""
    expected = view.expected_step_seconds
    rank = min(typical, key=lambda number: typical[number].computed + typical[number].queued)
    own = typical[rank]
    busy = own.computed + own.queued
    if busy < MIN_RATIO * expected or busy < MIN_OWN_SHARE * own.took:
        return None
    who, likely = (
        Attribution.NODE,
        "the processor runs below its usual clock, the node's profile is out of date, or the script computes much "
        "outside of torch",
    )
    if own.throttled >= MIN_THROTTLED_RATIO * own.took:
        who, likely = Attribution.PLATFORM, "the job's control group has used up its processor time"
    elif own.queued >= own.computed / 2:
        who, likely = Attribution.NEIGHBOUR, "other processes take turns with the job on its cores"
    return Condition(
        key="below_prediction",
        resource=Resource.COMPUTE,
        fault_domain=who,
        what=f"steps take {own.took / expected:.1f} times as long as this node should need",
        where="this node",
        likely=likely,
        action="ask for a validation of this node (session.ask_validation()), or for another node",
        evidence=f"rank {rank}, per step: predicted {1e3 * expected:.3g} ms, computing {1e3 * own.computed:.3g} ms, "
        f"queued {1e3 * own.queued:.3g} ms",
        since=view.unix - (view.at - own.began_at),
        step_ratio=own.took / expected,
        validation=False,  # how far the prediction misses a job would say which job it is
    )


DETECTOR = Detector(
    "below_prediction",
    "steps of all ranks that take three times as long as predicted for this node, from the first step on",
    _BelowPrediction,
    judges_steps=True,
)
