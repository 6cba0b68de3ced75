"""Faults of a job on cores that are now faster, now slower, or that computes more since a moment ago."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pharoah.local_alerts import Condition, View, detectors
from pharoah.local_alerts._step_windows import WINDOW_SECONDS
from pharoah_protocol.vocabulary import Resource
from tests.harness.local_views import process_reading

COMPUTED_SECONDS = 0.068
"""What a step of the job computes."""
SPREAD = (0.86, 1.0, 1.16, 0.92, 1.09, 1.0, 0.85)
"""Multiples of it, window by window."""
CHANGED_FROM, MORE_WORK, LESS_WORK = 310, 1.2, 0.85
"""From this second on steps compute longer, or shorter, which is no fault."""
WORKER_BYTES = 1_000
"""What the workers that load the data of the job move in a second."""


def _views(waits_from: float, waited_seconds: float, seconds: int, more_work: float = 0.0) -> Iterator[View]:
    """A job whose steps wait for late data from a second on. `more_work`: how many times as long it computes from
    CHANGED_FROM on; 0 for no change."""
    computed = 0.0
    for second in range(seconds):
        changed = more_work and second >= CHANGED_FROM
        spread = more_work if changed else SPREAD[int(second / WINDOW_SECONDS) % len(SPREAD)]
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
    waits_from = CHANGED_FROM + later_windows * WINDOW_SECONDS
    found = _first(_views(waits_from, 0.04, int(waits_from) + 90, MORE_WORK))
    assert found is not None
    at, condition = found
    assert condition.resource is Resource.STORAGE and at >= waits_from


@pytest.mark.parametrize("waited_seconds", [0.008, 0.012])
def test_late_data_is_found_although_the_cores_make_more_noise_than_it_does(waited_seconds: float) -> None:
    found = _first(_views(CHANGED_FROM, waited_seconds, CHANGED_FROM + 90))
    assert found is not None
    at, condition = found
    assert condition.resource is Resource.STORAGE and at >= CHANGED_FROM


def test_more_work_and_noise_raise_no_alert() -> None:
    assert _first(_views(float("inf"), 0.0, 900, MORE_WORK)) is None


@pytest.mark.parametrize("faster_windows", range(1, 16))
@pytest.mark.parametrize("waited_seconds", [0.02, 0.04])
def test_late_data_soon_after_the_cores_became_faster_is_found(faster_windows: int, waited_seconds: float) -> None:
    """The usual step of the faster job is learned for a minute, and what is late meanwhile is no part of it."""
    waits_from = CHANGED_FROM + faster_windows * WINDOW_SECONDS
    found = _first(_views(waits_from, waited_seconds, int(waits_from) + 60, LESS_WORK))
    assert found is not None
    at, condition = found
    assert condition.resource is Resource.STORAGE and at >= waits_from
