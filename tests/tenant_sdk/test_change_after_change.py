"""A fault that begins while steps have just become a little slower for another reason."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pharoah.local_alerts import Condition, View, detectors
from pharoah.local_alerts._step_windows import WINDOW_SECONDS
from pharoah_protocol.vocabulary import Resource
from tests.harness.local_views import process_reading

COMPUTED_SECONDS = 0.068
"""What a step of the job computes."""
SPREAD = (0.9, 1.0, 1.12, 0.95, 1.06, 1.0, 0.88)
"""Multiples of it, window by window: with so much noise, a change is noticed after some windows only."""
SLOWER_FROM, MORE_WORK = 310, 1.2
"""From this second on steps compute longer, which is no fault."""
WORKER_BYTES = 1_000
"""What the workers that load the data of the job move in a second."""


def _views(waits_from: float, waited_seconds: float, seconds: int) -> Iterator[View]:
    """A job whose steps wait for late data from a second on."""
    computed = 0.0
    for second in range(seconds):
        spread = SPREAD[int(second / WINDOW_SECONDS) % len(SPREAD)] if second < SLOWER_FROM else MORE_WORK
        work, wait = COMPUTED_SECONDS * spread, waited_seconds if second >= waits_from else 0.0
        computed += work / (work + wait)
        process = process_reading(
            computed_seconds=computed, main_computed_seconds=computed, worker_moved_bytes=WORKER_BYTES * second
        )
        steps = [work + wait] * round(1 / (work + wait))
        yield View(at=second + 1.0, unix=second + 1.0, steps={0: steps}, processes={0: process})


def _first(views: Iterator[View]) -> tuple[float, Condition] | None:
    """When slow steps are found, and what is found."""
    watching = detectors()["slow_steps"].start()
    return next(((view.at, found) for view in views for found in watching.look(view)), None)


@pytest.mark.parametrize("later_windows", range(1, 8))
def test_late_data_soon_after_the_job_got_more_work_is_found(later_windows: int) -> None:
    """Whatever part of the two changes is seen first, the work does not explain the wait."""
    waits_from = SLOWER_FROM + later_windows * WINDOW_SECONDS
    found = _first(_views(waits_from, 0.04, int(waits_from) + 90))
    assert found is not None
    at, condition = found
    assert condition.resource is Resource.STORAGE and at >= waits_from


def test_more_work_alone_raises_no_alert() -> None:
    assert _first(_views(float("inf"), 0.0, 900)) is None
