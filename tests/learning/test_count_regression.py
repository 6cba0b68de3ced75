"""Regression of counts: groups have their means, and the likelihood is that of another implementation."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import optimize, stats

from pharoah_learning.models.count_regression import fit_counts

counts = st.lists(st.integers(0, 500).map(float), min_size=1, max_size=30).filter(any)


@given(counts, counts)
def test_with_two_groups_the_fitted_means_are_those_of_the_groups(first: list[float], second: list[float]) -> None:
    """The closed form, whatever the dispersion is."""
    column = np.repeat([0.0, 1.0], [len(first), len(second)])[:, None]
    effect, constant = fit_counts(column, np.array(first + second), 1e-9)
    assert constant == pytest.approx(np.log(np.mean(first)), abs=1e-3)
    assert effect == pytest.approx(np.log(np.mean(second) / np.mean(first)), abs=1e-3)


def test_the_fit_is_that_of_the_negative_binomial_likelihood() -> None:
    """The dispersion of the comparison is estimated too, so both agree within the noise of it."""
    rng = np.random.default_rng(1)
    columns = rng.normal(size=(4000, 2))
    mean = np.exp(columns @ [0.5, -0.3] + 0.7)
    drawn = rng.poisson(mean * rng.gamma(1 / 0.8, 0.8, len(mean))).astype(float)

    def loss(found: np.ndarray) -> float:
        size = np.exp(-found[3])
        means = np.exp(columns @ found[:2] + found[2])
        return -float(stats.nbinom.logpmf(drawn, size, size / (size + means)).sum())

    expected = optimize.minimize(loss, np.zeros(4)).x[:3]
    assert fit_counts(columns, drawn, 1e-9) == pytest.approx(expected, abs=0.01)
    assert expected == pytest.approx([0.5, -0.3, 0.7], abs=0.06)


def test_a_penalty_draws_effects_to_zero_and_leaves_the_mean() -> None:
    column = np.repeat([-1.0, 1.0], 50)[:, None]
    effect, constant = fit_counts(column, np.repeat([2.0, 8.0], 50), 1e6)
    assert abs(effect) < 0.01
    assert np.exp(constant) == pytest.approx(5.0, rel=0.01)


def test_a_constant_column_has_no_effect() -> None:
    assert fit_counts(np.ones((9, 1)), np.arange(9.0), 1.0)[0] == pytest.approx(0.0, abs=1e-6)


def test_nothing_that_was_counted_is_an_error() -> None:
    with pytest.raises(ValueError, match="nothing was counted"):
        fit_counts(np.ones((3, 1)), np.zeros(3), 1.0)
