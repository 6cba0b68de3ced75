"""What each node shows on each micro-benchmark when it is healthy."""

from __future__ import annotations

from pharoah_learning.baselines import NEWEST_ROUNDS, learn_baselines
from pharoah_learning.evidence import BenchmarkResult


def rounds(count: int, seconds: float, began: float) -> list[BenchmarkResult]:
    return [
        BenchmarkResult("o", "n1", "gemm", False, began + at, began + at + 1, (seconds,) * 5) for at in range(count)
    ]


def test_a_baseline_is_that_of_the_newest_rounds() -> None:
    """A board was replaced after twenty rounds."""
    probes = [*rounds(NEWEST_ROUNDS, 1.3, 1000.0), *rounds(20, 1.0, 0.0)]
    (found,) = learn_baselines(probes)
    assert found.seconds == 1.3
