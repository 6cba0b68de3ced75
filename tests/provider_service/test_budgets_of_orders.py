"""What counts of an order for budgets."""

from __future__ import annotations

import pytest

from pharoah_learning.evidence import BenchmarkResult
from pharoah_provider.fleet import SLOW_START_SECONDS
from pharoah_provider.monitoring.orders import _without_start


def result(seconds: float) -> BenchmarkResult:
    """One that took so long, by the clock of its agent, which is an hour ahead."""
    return BenchmarkResult("o", "n1", "gemm", True, 3600.0, 3600.0 + seconds, (0.01,))


@pytest.mark.parametrize(
    ("took", "measured", "counted"),
    [
        (4.1, (2.0, 2.0), 4.0),
        (34.0, (2.0, 2.0), 4.0),
        (3.9, (2.0, 2.0), 3.9),
        (5.0, (), 5.0),
        (5.0, (0.0, 0.0), 5.0),
        (5.0, (-1.0,), 5.0),
        (4.0 + SLOW_START_SECONDS, (2.0, 2.0), 4.0 + SLOW_START_SECONDS),
    ],
    ids=["usual", "with a start", "clocks differ", "no answer", "no times", "a clock that was set back", "too long"],
)
def test_the_start_of_what_measures_does_not_count(took: float, measured: tuple[float, ...], counted: float) -> None:
    assert _without_start(took, [result(seconds) for seconds in measured]) == pytest.approx(counted)
