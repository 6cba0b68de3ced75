"""Newton's method with bounds, beside methods of scipy that know nothing of it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize, nnls

from pharoah_learning.models.cox import Spells, fit_sampled, sample_sets
from pharoah_learning.models.logistic import fit
from pharoah_learning.models.newton import Loss, minimise


@given(st.integers(0, 10_000))
@settings(max_examples=60, deadline=None)
def test_a_least_squares_problem_has_the_solution_of_lawson_and_hanson(seed: int) -> None:
    rng = np.random.default_rng(seed)
    matrix, target = rng.normal(size=(30, 6)), rng.normal(size=30)

    def at(beta: np.ndarray) -> Loss:
        left = matrix @ beta - target
        return Loss(float(left @ left) / 2, matrix.T @ left, matrix.T @ matrix)

    found = minimise(at, np.zeros(6), 1e-14, 0.0, np.ones(6, dtype=bool))
    expected, _ = nnls(matrix, target)
    assert found.value == pytest.approx(expected, abs=1e-6)
    assert (found.value >= 0).all() and (found.covariance[found.value == 0] == 0).all()


@pytest.mark.parametrize("rows", [2_000, 40_000])
def test_a_bounded_logistic_fit_is_that_of_a_general_optimiser(rows: int) -> None:
    """Some of the bounds hold and some do not; with many rows the fit starts from a sample."""
    rng = np.random.default_rng(3)
    x = np.concatenate([rng.normal(size=(rows, 5)), np.ones((rows, 1))], axis=1)
    truth = np.array([0.8, -0.7, 0.0, 0.4, -0.5, -1.5])
    failed = (rng.random(rows) < 1 / (1 + np.exp(-x @ truth))).astype(float)
    penalty, bounded = np.array([5.0] * 5 + [0.0]), np.array([True, True, True, False, False, False])

    def loss(beta: np.ndarray) -> float:
        eta = x @ beta
        return float(np.logaddexp(0, eta).sum() - failed @ eta + penalty @ beta**2)

    bounds = [(0.0, None) if one else (None, None) for one in bounded]
    expected = minimize(loss, np.zeros(6), method="L-BFGS-B", bounds=bounds, options={"ftol": 1e-14, "gtol": 1e-8}).x
    found = fit(x, failed, penalty, at_least_zero=bounded).value
    assert found == pytest.approx(expected, abs=2e-3)
    assert found[1] == 0.0 and found[4] < -0.3


@pytest.mark.parametrize("failures", [3, 20_000])
def test_a_fit_leaves_its_columns_as_they_are_however_rare_failures_are(failures: int) -> None:
    """Columns of single precision need no conversion, and a sample of many rows may hold none of three failures."""
    rows = 40_000
    x = np.ones((rows, 2), dtype=np.float32)
    x[: rows // 2, 0] = -1.0
    failed = np.zeros(rows)
    failed[1 : 2 * failures : 2] = 1.0
    before = x.copy()
    found = fit(x, failed, np.array([1e6, 0.0])).value
    assert (x == before).all()
    assert found[1] == pytest.approx(np.log(failures / (rows - failures)), abs=1e-3)


def test_bounds_of_a_sampled_proportional_hazards_fit_hold() -> None:
    rng = np.random.default_rng(5)
    x = rng.normal(size=(800, 3))
    stop = rng.exponential(1 / np.exp(x @ np.array([0.8, -0.8, 0.0])))
    sets = sample_sets(Spells(np.zeros(800), stop, np.ones(800, dtype=bool), x), 20, rng)
    free = fit_sampled(x, sets, np.full(3, 1e-6)).value
    bounded = fit_sampled(x, sets, np.full(3, 1e-6), np.ones(3, dtype=bool)).value
    alone = fit_sampled(x[:, [0]], sets, np.full(1, 1e-6)).value
    assert free[1] < -0.6 and bounded[1] == 0.0
    assert bounded[0] == pytest.approx(alone[0], abs=0.05), "what is at its bound is as if it were not there"
