"""Slow steps while micro-benchmarks run beside the job: what these may cost is no evidence, and what is beyond is."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from math import log

import pytest

from pharoah.local_alerts import Condition, View, detectors
from pharoah.local_alerts._readings import MachineReading
from pharoah.local_alerts._step_change import StepChange
from pharoah.local_alerts._step_windows import BURST_SECONDS, MEASURED_SHARE, SKIPPED_STEPS, Moment, RankSteps
from pharoah_benchmarks.micro import MICRO_BENCHMARKS, Placement, _measure
from pharoah_protocol.vocabulary import Resource
from tests.harness.local_views import process_reading

TICK = 0.002
"""Seconds in which the core is the job's or somebody else's."""
BURST, PERIOD = 0.1, 1.0
"""A micro-benchmark works for a tenth of the time, and has the core of the job meanwhile: the worst case."""


def _views(
    step: float, seconds: int, measuring: Callable[[int], bool], neighbour: Callable[[int], float]
) -> Iterator[View]:
    """What is seen each second of a job whose steps need `step` seconds of its core. `measuring(second)`: whether
    micro-benchmarks run. `neighbour(second)`: the share of the time in which a neighbour has the core."""
    chance = random.Random(1)
    computed, queued, done, began = 0.0, 0.0, 0.0, 0.0
    for second in range(seconds):
        steps = []
        for tick in range(round(1 / TICK)):
            in_burst = measuring(second) and tick * TICK % PERIOD < BURST
            if in_burst or chance.random() < neighbour(second):
                queued += TICK
                continue
            computed, done = computed + TICK, done + TICK
            if done >= step * chance.uniform(0.9, 1.1):
                now = second + (tick + 1) * TICK
                steps.append(now - began)
                done, began = 0.0, now
        process = process_reading(computed_seconds=computed, main_computed_seconds=computed, main_queued_seconds=queued)
        at = second + 1.0
        yield View(at=at, unix=at, steps={0: steps}, processes={0: process}, measuring=measuring(second))


def _first(views: Iterator[View]) -> tuple[float, Condition] | None:
    """When slow steps are found, and what is found."""
    watching = detectors()["slow_steps"].start()
    return next(((view.at, found) for view in views for found in watching.look(view)), None)


def test_what_is_taken_off_is_more_than_micro_benchmarks_work_beside_a_job() -> None:
    beside = [one for one in MICRO_BENCHMARKS if one.placement is Placement.BESIDE_JOB]
    assert beside and max(one.duty for one in beside) < MEASURED_SHARE
    assert _measure.BURST_SECONDS == BURST_SECONDS


@pytest.mark.parametrize("step", [0.03, 0.1, 0.4, 1.5])
def test_what_a_micro_benchmark_costs_at_most_is_no_evidence(step: float) -> None:
    assert _first(_views(step, 900, lambda second: second >= 200, lambda _: 0.0)) is None


@pytest.mark.parametrize("step", [0.03, 0.1, 0.4])
def test_a_slow_node_is_found_while_micro_benchmarks_run_beside_the_job(step: float) -> None:
    """From second 200 on, a neighbour takes a quarter of the core, and micro-benchmarks run all the time."""
    found = _first(_views(step, 400, lambda second: second >= 200, lambda second: 0.25 * (second >= 200)))
    assert found is not None
    at, condition = found
    assert at <= 260
    assert condition.resource is Resource.COMPUTE
    assert condition.what.startswith("steps take at least 1.")
    assert 1.05 <= condition.step_ratio <= 1 / 0.75
    assert condition.since == pytest.approx(200, abs=15)


def test_rounds_in_quick_succession_leave_nobody_without_windows() -> None:
    """Neither the time within rounds nor that between them is as long as a window, from the first step on."""
    found = _first(_views(0.05, 400, lambda second: second % 7 < 4, lambda second: 0.3 * (second >= 250)))
    assert found is not None and 250 < found[0] <= 300


def test_a_change_that_ends_with_the_micro_benchmarks_is_not_taken_for_other_work() -> None:
    """Beside micro-benchmarks a tenth more is seen of nothing. Their end shows the neighbour that came meanwhile."""
    found = _first(_views(0.1, 600, lambda second: 200 <= second < 300, lambda second: 0.13 * (second >= 210)))
    assert found is not None and found[0] <= 340


def test_a_window_has_the_parts_between_micro_benchmarks_and_not_these() -> None:
    """Three seconds in which the thread computes half of the time, ten with micro-benchmarks in which it computes all
    of it, and three more of the first kind."""
    rank, computed = RankSteps(), 0.0
    rank.note_step([0.1] * SKIPPED_STEPS)
    for at in range(18):
        measured = 4 <= at < 14
        rank.note_step([0.1] * 10)
        computed += 1.0 if measured else 0.5
        process = process_reading(main_computed_seconds=computed)
        rank.look(Moment(float(at), process, MachineReading(), 0.0, measured))
    plain = [window for window in rank.windows if not window.measured]
    assert [(window.began_at, window.ended_at) for window in plain] == [(0.0, 16.0)]
    assert plain[0].computed == pytest.approx(0.05)
    assert [window.computed for window in rank.windows if window.measured] == [pytest.approx(0.1)]


def test_parts_that_are_minutes_apart_do_not_become_one_window() -> None:
    rank = RankSteps()
    rank.note_step([0.1] * SKIPPED_STEPS)
    for at in [0.0, 1.0, 2.0, 3.0, *(4.0 + number for number in range(100)), *(104.0 + number for number in range(7))]:
        rank.note_step([0.1] * 10)
        rank.look(Moment(at, process_reading(), MachineReading(), 0.0, 4.0 <= at < 104.0))
    assert [window.began_at for window in rank.windows if not window.measured] == [104.0]


def test_nothing_usual_is_learned_from_a_lower_bound() -> None:
    change = StepChange()
    for _ in range(20):
        change.add(log(0.1))
    usual = change.usual
    for _ in range(200):
        change.add_least(log(0.09))
    assert change.usual == usual and not change.raised
    for _ in range(4):
        change.add_least(log(0.13))
    assert change.raised
    for _ in range(50):
        change.add_least(log(0.09))
    assert change.raised, "a lower bound ends no change"


def test_low_bounds_take_nothing_from_what_other_windows_show() -> None:
    """A neighbour takes an eighth of the core. Beside micro-benchmarks the bound is below the usual step."""
    change = StepChange()
    for _ in range(20):
        change.add(log(0.1))
    for number in range(12):
        change.add(log(0.114)) if number % 2 else change.add_least(log(0.099))
    assert change.raised
