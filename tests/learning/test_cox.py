"""Proportional hazards: as lifelines fits them, and as the true model is."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import pytest
from lifelines import CoxPHFitter, NelsonAalenFitter

from pharoah_learning.models.cox import Spells, cumulative_hazard, fit_cox, fit_sampled, sample_sets

TRUE = np.array([0.8, -0.5, 0.0])
NONE = np.zeros(3)


def lives(seed: int, count: int, step: float = 0.0, late: bool = False) -> Spells:
    """Lives with hazard 0.1 exp(columns @ TRUE), censored; with a step, times are rounded, so that there are ties."""
    rng = np.random.default_rng(seed)
    columns = rng.normal(size=(count, 3))
    start = rng.uniform(0, 3, count) if late else np.zeros(count)
    stop = start + rng.exponential(10 / np.exp(columns @ TRUE))
    censored = start + rng.exponential(12, count)
    failed, stop = stop <= censored, np.minimum(stop, censored)
    if step:
        stop = np.ceil(stop / step) * step
    return Spells(start, stop, failed, columns)


def of_lifelines(spells: Spells) -> CoxPHFitter:
    frame = pd.DataFrame(spells.columns)
    frame = frame.assign(start=spells.start, stop=spells.stop, failed=spells.failed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return CoxPHFitter().fit(frame, "stop", "failed", entry_col="start", fit_options={"precision": 1e-12})


@pytest.mark.parametrize(("step", "late"), [(0.0, False), (0.5, False), (0.0, True), (0.5, True)])
def test_the_whole_likelihood_is_that_of_lifelines(step: float, late: bool) -> None:
    spells = lives(1, 300, step, late)
    found, expected = fit_cox(spells, NONE), of_lifelines(spells)
    assert found.value == pytest.approx(expected.params_.to_numpy(), rel=1e-5)
    assert np.sqrt(np.diag(found.covariance)) == pytest.approx(expected.standard_errors_.to_numpy(), rel=1e-5)


def test_sampled_controls_give_the_whole_likelihood_within_its_error() -> None:
    spells = lives(2, 3000)
    whole = fit_cox(spells, NONE)
    errors = np.sqrt(np.diag(whole.covariance))
    sampled = fit_sampled(spells.columns, sample_sets(spells, 200, np.random.default_rng(1)), NONE)
    assert np.abs(sampled.value - whole.value).max() < 0.3 * errors.max()
    assert np.abs(whole.value - TRUE).max() < 3.5 * errors.max()


def test_with_everybody_as_controls_both_likelihoods_are_one() -> None:
    spells = lives(3, 80)
    sets = sample_sets(spells, 80, np.random.default_rng(1))
    assert fit_sampled(spells.columns, sets, NONE).value == pytest.approx(fit_cox(spells, NONE).value, rel=1e-5)


def test_controls_are_at_risk_and_are_not_the_failure() -> None:
    spells = lives(4, 200, late=True)
    sets = sample_sets(spells, 10, np.random.default_rng(2))
    assert spells.failed[sets.members[:, 0]].all() and sets.time == pytest.approx(spells.stop[sets.members[:, 0]])
    for members, counts, time, at_risk in zip(sets.members, sets.counts, sets.time, sets.at_risk, strict=True):
        drawn = members[counts]
        assert len(set(drawn)) == len(drawn)
        assert (spells.start[drawn] < time).all() and (spells.stop[drawn] >= time).all()
        assert at_risk == ((spells.start < time) & (spells.stop >= time)).sum()


def test_without_effects_the_hazard_is_that_of_nelson_and_aalen() -> None:
    spells = lives(5, 400)
    sets = sample_sets(spells, 5, np.random.default_rng(3))
    expected = NelsonAalenFitter(nelson_aalen_smoothing=False).fit(spells.stop, spells.failed)
    found = cumulative_hazard(spells.columns, sets, np.zeros(3))
    assert found == pytest.approx(expected.cumulative_hazard_at_times(sets.time).to_numpy(), rel=1e-5)


def test_a_penalty_keeps_what_separates_finite_and_nothing_failed_is_an_error() -> None:
    spells = Spells(np.zeros(4), np.array([1.0, 2.0, 3.0, 4.0]), np.array([True, True, False, False]), np.eye(4)[:, :2])
    assert np.isfinite(fit_cox(spells, np.full(2, 0.1)).value).all()
    alive = spells._replace(failed=np.zeros(4, dtype=bool))
    with pytest.raises(ValueError, match="nothing has failed"):
        fit_cox(alive, np.zeros(2))
    with pytest.raises(ValueError, match="nothing has failed"):
        fit_sampled(alive.columns, sample_sets(alive, 5, np.random.default_rng(0)), np.zeros(2))
