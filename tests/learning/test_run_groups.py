"""Runs that agree in everything but their end count as one group, and nothing that is learned depends on it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize

from evaluation.learning.simulated_runs import simulate
from pharoah_learning import run_groups
from pharoah_learning.incompatible_pairs import find_incompatible_pairs
from pharoah_learning.models.logistic import fit
from pharoah_learning.observations import Observations, adjust, strata_of, stratify
from pharoah_learning.run_groups import group_runs


@st.composite
def drawn_runs(draw: st.DrawFn) -> tuple[np.ndarray, list[np.ndarray], np.ndarray]:
    """Contexts, confounders and ends of a few runs."""
    runs, contexts = draw(st.integers(0, 60)), draw(st.integers(0, 3))
    rng = np.random.default_rng(draw(st.integers(0, 1000)))
    codes = [rng.integers(0, levels, runs).astype(np.uint8) for levels in draw(st.lists(st.integers(1, 4), max_size=2))]
    return rng.random((runs, contexts)) < 0.5, codes, rng.random(runs) < 0.3


@given(drawn_runs())
def test_groups_have_the_runs_and_failures_of_what_they_stand_for(
    runs: tuple[np.ndarray, list[np.ndarray], np.ndarray],
) -> None:
    in_context, codes, failed = runs
    groups = group_runs(in_context, codes, failed)
    expected: dict[tuple[int, ...], list[int]] = {}
    for at in range(len(failed)):
        count = expected.setdefault((*in_context[at].tolist(), *(int(column[at]) for column in codes)), [0, 0])
        count[0] += 1
        count[1] += int(failed[at])
    found: dict[tuple[int, ...], list[int]] = {}
    for at in range(len(groups.runs)):
        count = found.setdefault((*groups.in_context[at].tolist(), *(int(c[at]) for c in groups.confounders)), [0, 0])
        count[0] += int(groups.runs[at])
        count[1] += int(groups.failures[at])
    assert found == expected


def test_runs_with_few_ways_to_differ_become_few_groups() -> None:
    seen = simulate(200_000, 3, hidden=True).seen
    few = replace(seen, in_context=seen.in_context[:, :3], contexts=seen.contexts[:3])
    assert all(len(group.runs) <= 2**3 * 3 * 4 * 4 * 8 for group in few.groups)
    assert sum(group.runs.sum() for group in few.groups) == 200_000


def test_grouping_changes_no_result(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = simulate(60_000, 4, hidden=True).seen
    small = replace(seen, in_context=seen.in_context[:, :6], contexts=seen.contexts[:6])
    grouped = stratify(small), adjust(small), find_incompatible_pairs(small, 1)
    assert len(small.groups[0].runs) < (small.archetype == 0).sum()
    monkeypatch.setattr(run_groups, "WAYS_PER_RUN", 0)
    alone = replace(small)
    assert len(alone.groups[0].runs) == (small.archetype == 0).sum()
    counted, own = stratify(alone), adjust(alone)
    assert all((one == other).all() for one, other in zip(grouped[0].counts, counted.counts, strict=True))
    assert grouped[1].odds.value == pytest.approx(own.odds.value, abs=1e-6)
    assert grouped[1].odds.variance == pytest.approx(own.odds.variance, rel=1e-4)
    assert [(one.archetype, one.context, one.call) for one in grouped[2]] == [
        (one.archetype, one.context, one.call) for one in find_incompatible_pairs(alone, 1)
    ]


@pytest.mark.parametrize("runs", [400, 60_000])
def test_a_fit_without_penalty_is_the_largest_likelihood(runs: int) -> None:
    """Against scipy's own optimiser, also where the iteration starts from a sample."""
    rng = np.random.default_rng(5)
    columns = np.column_stack([rng.random((runs, 4)) < 0.4, np.ones(runs, dtype=bool)])
    failed = rng.random(runs) < 1 / (1 + np.exp(2 - columns @ np.array([0.8, 0, -0.5, 0.3, 0])))

    def loss(beta: np.ndarray) -> float:
        eta = columns @ beta
        return float(np.logaddexp(0, eta).sum() - failed @ eta)

    def gradient(beta: np.ndarray) -> np.ndarray:
        return np.asarray(columns.T @ (1 / (1 + np.exp(-(columns @ beta))) - failed))

    best = minimize(loss, np.zeros(5), jac=gradient, method="BFGS", options={"gtol": 1e-4})
    found = fit(columns, failed, np.zeros(5))
    errors = np.sqrt(np.diag(found.covariance))
    assert np.abs(found.value - best.x).max() < 1e-4 * errors.min()


def test_strata_are_numbered_in_the_order_of_their_values() -> None:
    columns = [np.array([2, 0, 2, 1]), np.array([0, 5000, 0, 1])]
    assert strata_of(columns, 4).tolist() == [2, 0, 2, 1]
    assert strata_of([], 3).tolist() == [0, 0, 0]


def test_no_runs_give_no_findings() -> None:
    nothing = Observations((), ("c",), np.zeros(0, np.int64), np.zeros((0, 1), bool), {}, np.zeros(0, bool))
    assert find_incompatible_pairs(nothing, 1) == []
