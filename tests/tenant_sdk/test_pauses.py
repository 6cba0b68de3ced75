"""A job that pauses while its steps are a little slower: the pause is not the reason why its other steps are slow."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from pharoah.local_alerts import Condition, View, detectors
from pharoah.local_alerts._step_windows import WINDOW_SECONDS, typical_window
from pharoah_protocol.vocabulary import Resource
from tests.harness.local_views import process_reading, window_of

PAUSE_EVERY, PAUSE_SECONDS = 40, 8
SLOWER_FROM = 300
WORKER_BYTES = 1_000
"""What the workers that load the data of the job move in a second."""


@dataclass(frozen=True)
class _Job:
    """Steps that compute for 0.1 s, and one that waits for late data now and then; from second SLOWER_FROM on, steps
    take `ratio` times as long, of which the main thread is queued for `queued` of each second."""

    ratio: float
    queued: float = 0.0

    def views(self, seconds: int) -> Iterator[View]:
        computed = queued = 0.0
        for second in range(seconds):
            slower = second >= SLOWER_FROM
            step = 0.1 * (self.ratio if slower else 1.0)
            into = second % PAUSE_EVERY - (PAUSE_EVERY - PAUSE_SECONDS)  # seconds of the pause so far
            steps = [step] * round(1 / step) if into < 0 else []
            if into < 0:
                computed, queued = computed + 1 - self.queued * slower, queued + self.queued * slower
            elif into == PAUSE_SECONDS - 1:
                steps = [float(PAUSE_SECONDS)]
            process = process_reading(
                computed_seconds=computed,
                main_computed_seconds=computed,
                main_queued_seconds=queued,
                worker_moved_bytes=WORKER_BYTES * second,
            )
            yield View(at=second + 1.0, unix=second + 1.0, steps={0: steps}, processes={0: process})


def _first(job: _Job, seconds: int) -> tuple[float, Condition] | None:
    """When slow steps are found, and what is found."""
    watching = detectors()["slow_steps"].start()
    return next(((view.at, found) for view in job.views(seconds) for found in watching.look(view)), None)


@pytest.mark.parametrize("ratio", [1.0, 1.06, 1.08, 1.12, 1.3])
def test_a_job_that_has_more_to_do_and_pauses_does_not_wait_for_its_data(ratio: float) -> None:
    assert _first(_Job(ratio), 1200) is None


@pytest.mark.parametrize("ratio", [1.3, 2.0])
def test_a_neighbour_of_a_job_that_pauses_is_found_and_has_its_beginning(ratio: float) -> None:
    found = _first(_Job(ratio, queued=1 - 1 / ratio), SLOWER_FROM + 90)
    assert found is not None
    at, condition = found
    assert (condition.resource, condition.likely) == (
        Resource.COMPUTE,
        "another process takes turns with the job on its cores",
    )
    assert condition.since == pytest.approx(SLOWER_FROM, abs=2 * WINDOW_SECONDS) and at > condition.since


def test_a_typical_window_lasts_as_long_as_all_of_them() -> None:
    windows = [
        window_of(took=took, began_at=5.0 * at, ended_at=5.0 * at + 5, blocked=blocked)
        for at, (took, blocked) in enumerate([(9.0, 1.0), (1.0, 0.0), (2.0, 0.0)])
    ]
    typical = typical_window(windows)
    assert (typical.took, typical.began_at, typical.ended_at) == (2.0, 0.0, 15.0)
    assert typical.blocked == pytest.approx(1 / 3), "a mean, because the looks are few"


def test_the_parts_of_a_typical_window_add_up_where_windows_are_of_two_kinds() -> None:
    """A job inside a quota has windows in which it uses the quota up, and others: no window has all of the medians."""
    windows = [
        window_of(took=0.126, computed=0.0609, queued=0.0651),
        window_of(took=0.129, computed=0.052, queued=0.077),
        window_of(took=0.1401, computed=0.065, queued=0.0751),
    ]
    typical = typical_window(windows)
    assert typical.took == 0.129
    assert typical.computed + typical.queued + typical.waited == pytest.approx(0.129)
    assert typical.computed / typical.queued == pytest.approx(0.0609 / 0.0751)


def test_a_typical_window_without_any_time_has_no_parts() -> None:
    nothing = window_of(took=0.0, computed=0.0)
    assert typical_window([nothing]) == nothing
