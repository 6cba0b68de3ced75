"""Reported levels: the baseline of a run, its dead band, and monitoring plans."""

from __future__ import annotations

import random
from functools import reduce
from math import log2
from operator import add

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pharoah_protocol.monitoring_plan import PLAIN, PLAN_BYTES, PLANS, RESTLESS, STEADY, MonitoringPlan
from pharoah_protocol.reports import (
    BASELINE_WINDOWS,
    LAST_WINDOWS,
    MAX_LEVEL,
    PER_OCTAVE,
    RESTLESS_RATIO,
    SKIPPED_STEPS,
    STEP_DEAD_BAND_LEVEL,
    WIDEST_DEAD_BAND_LEVEL,
    RankWindows,
    ReportedLevels,
    RunBaseline,
    level,
    ratio,
)

SECOND = 1_000_000_000


def closed(durations: list[float], resident: int = 1000, plan: MonitoringPlan = PLAIN) -> list[ReportedLevels]:
    windows = RankWindows(plan)
    return [levels for d in durations for levels in windows.add([int(d * SECOND)], resident)]


def test_levels_are_zero_until_the_baseline_is_known() -> None:
    windows = RankWindows()
    for _ in range(5 + 4 * BASELINE_WINDOWS):
        assert windows.add([SECOND], 1000) == [] and windows.now == ReportedLevels(0, 0)
    for _ in range(LAST_WINDOWS // 2 * 4):
        windows.add([2 * SECOND], 2000)
    assert windows.now == ReportedLevels(0, 0)
    for _ in range(4):
        windows.add([2 * SECOND], 2000)
    assert windows.now == ReportedLevels(PER_OCTAVE, PER_OCTAVE)


@given(st.floats(0.02, 2.0), st.floats(1.0, 4.0))
def test_a_slowdown_gives_the_same_level_at_any_step_time(step: float, slowdown: float) -> None:
    last, exact = closed([step] * 600 + [step * slowdown] * 600)[-1].step, PER_OCTAVE * log2(slowdown)
    assert abs(last - exact) <= 0.51 or (last == 0 and exact <= STEP_DEAD_BAND_LEVEL + 0.51)


@given(st.floats(1e-6, 1e6), st.sampled_from([plan.step_gain for plan in PLANS]))
def test_a_level_is_the_nearest_one_and_clipped(value: float, gain: float) -> None:
    found = level(value, gain)
    assert -MAX_LEVEL <= found <= MAX_LEVEL
    if 0 < abs(found) < MAX_LEVEL:
        assert abs(log2(ratio(found)) - gain * log2(value)) <= 0.5 / PER_OCTAVE + 1e-9


def test_one_long_pause_does_not_move_a_window() -> None:
    steady = [0.1] * 200
    assert {levels.step for levels in closed([*steady, 30.0, *steady])} == {0}


def test_a_run_that_begins_slowly_is_compared_with_its_later_speed() -> None:
    assert closed([0.4] * 15 + [0.2] * 400)[-1].step == 0


@given(st.lists(st.floats(0.5, 2.0), min_size=8, max_size=8), st.floats(0.25, 4.0))
def test_the_level_is_zero_inside_the_dead_band(first: list[float], value: float) -> None:
    lower, _, upper = np.quantile(np.log2(first), [0.25, 0.5, 0.75])
    baseline = RunBaseline.from_values(first, STEP_DEAD_BAND_LEVEL)
    reported = [baseline.push(value) for _ in range(LAST_WINDOWS)][-1]
    away = log2(value) - lower
    if abs(away) < (STEP_DEAD_BAND_LEVEL + 0.49) / PER_OCTAVE:
        assert reported == 0
    elif abs(away) > (WIDEST_DEAD_BAND_LEVEL + 0.51) / PER_OCTAVE:
        assert reported == round(PER_OCTAVE * away) or abs(reported) == MAX_LEVEL
    elif abs(away) < min(upper + 3 * (upper - lower) - lower - 1e-9, (WIDEST_DEAD_BAND_LEVEL + 0.49) / PER_OCTAVE):
        assert reported == 0


@given(st.lists(st.sampled_from([1.0, 3.0]), min_size=3, max_size=60))
def test_three_of_five_windows_must_agree(values: list[float]) -> None:
    baseline = RunBaseline.from_values([1.0] * 8, STEP_DEAD_BAND_LEVEL)
    for at, value in enumerate(values):
        slow = sum(v == 3.0 for v in values[max(0, at + 1 - LAST_WINDOWS) : at + 1])
        assert (baseline.push(value) > 0) == (slow >= 3)


def test_healthy_runs_are_reported_equally_rarely_however_restless_they_are() -> None:
    """How often a healthy run leaves the dead band must not reveal how restless it is."""
    chance = random.Random(5)
    for noise in (0.003, 0.03, 0.1):
        steps = [max(0.1, chance.gauss(1, noise)) for _ in range(8000)]
        assert sum(levels.step != 0 for levels in closed(steps)) <= 2


def test_steps_while_the_node_is_measured_are_discarded() -> None:
    windows = RankWindows()
    windows.add([SECOND] * (5 + 4 * BASELINE_WINDOWS), 1000)
    for _ in range(4 * LAST_WINDOWS):
        windows.add([9 * SECOND], 1000)
        windows.discard_open_window()
    assert windows.add([SECOND] * 4, 1000) == [ReportedLevels(0, 0)]


@given(st.sampled_from(PLANS))
def test_a_packed_plan_is_read_back(plan: MonitoringPlan) -> None:
    assert len(plan.pack()) == PLAN_BYTES and MonitoringPlan.unpack(plan.pack()) == plan


def test_another_plan_than_the_three_cannot_be_sealed() -> None:
    with pytest.raises(ValueError):
        MonitoringPlan(64, 2.0).pack()
    assert len({plan.pack() for plan in PLANS}) == 3


@given(st.binary(max_size=20))
def test_unknown_bytes_mean_the_plain_plan(data: bytes) -> None:
    plan = MonitoringPlan.unpack(data)
    assert plan == PLAIN or plan.pack() == data


@pytest.mark.parametrize("known", [PLAIN, STEADY, RESTLESS])
@pytest.mark.parametrize("restlessness", [0.01, 0.04, 0.06, 0.3])
def test_a_restless_job_gets_the_plan_for_restless_jobs_without_a_row(
    restlessness: float, known: MonitoringPlan
) -> None:
    windows = RankWindows(known)
    for step in range(400):
        windows.add([int((1 + restlessness * (-1) ** step) * SECOND)], 1000)
    assert windows.plan == (RESTLESS if restlessness > RESTLESS_RATIO else known)
    assert windows.now == ReportedLevels()


@pytest.mark.parametrize(
    ("step_seconds", "steps_until_baseline"), [(0.01, 100 * BASELINE_WINDOWS), (1.0, 16 * BASELINE_WINDOWS)]
)
def test_steps_of_a_restless_job_are_not_measured_anew(step_seconds: float, steps_until_baseline: int) -> None:
    """The first windows of a job with short steps have enough of them; those of one with long steps are joined."""
    chance, windows = random.Random(3), RankWindows()

    def run(steps: int, slowdown: float) -> None:
        for _ in range(steps):
            windows.add([int(step_seconds * slowdown * chance.uniform(0.8, 1.2) * SECOND)], 1000)

    run(SKIPPED_STEPS + steps_until_baseline + RESTLESS.window_steps, 1.0)
    assert windows.plan == RESTLESS and windows.now == ReportedLevels()
    run(LAST_WINDOWS * 100, 4.0)
    assert windows.now.step == pytest.approx(PER_OCTAVE, abs=1), "half of the two octaves"


def test_a_plan_changes_windows_and_gain() -> None:
    steps = [0.5] * 1200 + [0.5 * 2**0.5] * 600
    plain, eager = closed(steps), closed(steps, plan=MonitoringPlan(64, 2.0))
    assert len(eager) < len(plain) / 10
    assert plain[-1].step == pytest.approx(PER_OCTAVE / 2) and eager[-1].step == PER_OCTAVE


@pytest.mark.parametrize("step_seconds", [0.004, 0.1, 0.7])
@pytest.mark.parametrize("noise", [0.0, 0.02])
def test_a_window_ends_where_the_sum_of_its_steps_says(step_seconds: float, noise: float) -> None:
    chance, windows = random.Random(7), RankWindows()
    steps = [int(chance.uniform(1 - noise, 1 + noise) * step_seconds * SECOND) for _ in range(8000)]
    found = [at for at, step in enumerate(steps) if windows.add([step], 1000)]
    expected, open_ = list[int](), list[float]()
    for at, step in enumerate(steps[SKIPPED_STEPS:], SKIPPED_STEPS):
        open_.append(step / 1e9)
        if reduce(add, open_) >= 1.0 and len(open_) >= PLAIN.window_steps:
            expected.append(at)
            open_ = []
    assert found == expected[BASELINE_WINDOWS:] and len(found) > 10


def test_each_step_is_added_once_however_many_a_window_has() -> None:
    added = list[float]()

    class Seconds(float):
        def __radd__(self, other: float) -> float:
            added.append(self)
            return other + float(self)

    class Nanoseconds(int):
        def __truediv__(self, other: float) -> float:
            return Seconds(int(self) / other)

    RankWindows().add([Nanoseconds(SECOND // 1000)] * (SKIPPED_STEPS + 900), 1000)
    assert len(added) == 900
