from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pharoah.windows import BASELINE_WINDOWS, QUANTUM, RankWindows, Row

SECOND = 1_000_000_000


def rows_of(durations: list[float], resident: int = 1000) -> list[Row]:
    windows = RankWindows(0)
    return [row for d in durations for row in windows.add([int(d * SECOND)], resident, 0.0)]


def test_nothing_is_reported_before_the_baseline_is_known() -> None:
    warm_up_and_baseline = [0.25] * (5 + 4 * BASELINE_WINDOWS)
    assert rows_of(warm_up_and_baseline) == []
    assert len(rows_of([*warm_up_and_baseline, *[0.25] * 4])) == 1


@given(st.floats(0.02, 2.0), st.floats(1.0, 4.0))
def test_a_slowdown_is_reported_as_a_ratio_whatever_the_step_time(step: float, slowdown: float) -> None:
    steady = [step] * 600
    rows = rows_of(steady + [step * slowdown] * 600)
    assert rows[-1].step_ratio == pytest.approx(slowdown, abs=1 / QUANTUM)


def test_one_long_pause_does_not_move_a_window() -> None:
    steady = [0.1] * 200
    rows = rows_of([*steady, 30.0, *steady])
    assert max(row.step_ratio for row in rows) <= 1 + 1 / QUANTUM


@given(st.floats(0.5, 8.0))
def test_ratios_are_quantised(slowdown: float) -> None:
    for row in rows_of([0.25] * 60 + [0.25 * slowdown] * 60):
        assert (row.step_ratio * QUANTUM) == int(row.step_ratio * QUANTUM)


def test_memory_is_a_ratio_too() -> None:
    windows = RankWindows(0)
    for _ in range(60):
        windows.add([SECOND // 4], 1000, 0.0)
    rows = [row for _ in range(8) for row in windows.add([SECOND // 4], 1500, 0.0)]
    assert rows[-1].memory_ratio == 1.5
