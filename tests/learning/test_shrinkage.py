"""Failure rates of versions that borrow from their archetype and family."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from scipy.stats import betabinom

from pharoah_learning.models import shrinkage
from pharoah_learning.models.shrinkage import shrunk_rates


def test_equal_versions_have_the_rate_of_all_and_different_ones_their_own() -> None:
    rng = np.random.default_rng(0)
    runs, one = np.full(1000, 50.0), np.zeros(1000, dtype=np.int64)
    equal = shrunk_rates(rng.binomial(50, 0.1, 1000).astype(float), runs, one, one)
    assert np.std(equal.rate) < 0.005 and equal.archetype_weight > 400
    different = rng.binomial(50, np.where(np.arange(1000) % 2, 0.9, 0.1)).astype(float)
    own = shrunk_rates(different, runs, one, one)
    assert own.archetype_weight < 4 and np.abs(own.rate - different / 50).max() < 0.03


def test_a_version_without_runs_has_the_rate_of_its_archetype() -> None:
    failures, runs = np.array([0.0] + [20.0] * 19 + [2.0] * 20), np.array([0.0] + [100.0] * 39)
    archetype = np.repeat([0, 1], 20)
    found = shrunk_rates(failures, runs, archetype, np.zeros(40, dtype=np.int64))
    assert found.rate[0] == pytest.approx(0.2, abs=0.02)
    assert found.low[0] <= found.rate[0] <= found.high[0]


def test_an_archetype_without_runs_has_the_rate_of_its_family() -> None:
    runs = np.array([0.0] + [200.0] * 8)
    failures = np.array([0.0] + [60.0] * 4 + [4.0] * 4)
    found = shrunk_rates(failures, runs, np.arange(9), np.array([0] * 5 + [1] * 4))
    assert found.rate[0] == pytest.approx(0.3, abs=0.03)


def test_intervals_hold_the_true_rate_of_drawn_versions() -> None:
    rng = np.random.default_rng(1)
    true = rng.beta(2, 18, 2000)
    runs = rng.integers(5, 300, 2000).astype(float)
    zero = np.zeros(2000, dtype=np.int64)
    found = shrunk_rates(rng.binomial(runs.astype(int), true).astype(float), runs, zero, zero)
    covered = ((found.low <= true) & (true <= found.high)).mean()
    assert 0.93 < covered < 0.97
    assert 10 <= found.archetype_weight <= 40, "the versions were drawn with a weight of 20 runs"


def test_the_likelihood_of_a_version_is_the_beta_binomial_one() -> None:
    failures, runs = np.array([3.0, 7.0, 1.0]), np.array([20.0, 30.0, 9.0])
    zero = np.zeros(3, dtype=np.int64)
    expected = shrinkage._compute_expected(failures, runs, zero, zero, 8.0)
    expected_log = sum(
        betabinom.logpmf(k, int(n), 16 * e, 16 * (1 - e)) - math.log(math.comb(int(n), int(k)))
        for k, n, e in zip(failures, runs, expected, strict=True)
    )
    assert shrinkage._predict(failures, runs, zero, zero, 16.0, 8.0) == pytest.approx(expected_log)


@example([(0, 0, 0), (27, 0, 0)])
@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30), st.integers(0, 3)), min_size=1, max_size=12))
def test_rates_are_probabilities_inside_their_intervals(rows: list[tuple[int, int, int]]) -> None:
    failures = np.array([row[0] for row in rows], dtype=float)
    runs = failures + np.array([row[1] for row in rows])
    archetype = np.array([row[2] for row in rows])
    found = shrunk_rates(failures, runs, archetype, archetype // 2)
    assert ((found.low >= 0) & (found.low <= found.rate) & (found.rate <= found.high) & (found.high <= 1)).all()
    assert ((found.rate > 0) & (found.rate < 1) & (found.low < found.high)).all()


def test_more_failures_than_runs_are_an_error() -> None:
    with pytest.raises(ValueError, match="more failures than runs"):
        shrunk_rates(np.array([2.0]), np.array([1.0]), np.array([0]), np.array([0]))
