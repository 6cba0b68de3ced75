"""Facts that matter: what a hidden cause adds to a coefficient is taken off, and causes are found among decoys."""

from __future__ import annotations

import tracemalloc
from dataclasses import replace

import numpy as np
import pytest

from evaluation.learning.simulated_facts import FactSettings, simulate_facts
from pharoah_learning.models.hidden_factors import factor_weights, own_effects
from pharoah_learning.relevant_facts import FactRuns, _columns, _residuals, find_relevant_facts


def test_what_a_hidden_cause_adds_to_linear_coefficients_is_taken_off() -> None:
    """With a linear outcome the answer is known: the coefficients that were planted."""
    rng = np.random.default_rng(1)
    runs, width = 20_000, 20
    cause = rng.normal(size=runs)
    loadings = np.zeros(width)
    loadings[:8] = rng.uniform(0.5, 1.0, 8)
    columns = np.outer(cause, loadings) + rng.normal(size=(runs, width))
    planted = np.zeros(width)
    planted[[0, 15]] = 0.5
    outcome = columns @ planted + 0.8 * cause + rng.normal(size=runs)
    inverse = np.linalg.inv(columns.T @ columns)
    joint = inverse @ columns.T @ outcome
    noise = np.mean((outcome - columns @ joint) ** 2)
    assert np.abs(joint - planted)[1:8].min() > 0.05  # a joint regression holds every proxy for a cause
    found = own_effects(joint, noise * inverse, columns)
    assert found.factors == 1
    errors = np.sqrt(np.diag(found.covariance))
    assert (np.abs(found.value - planted) < 4 * errors + 0.02).all()
    assert found.value[[0, 15]] == pytest.approx([0.5, 0.5], abs=0.06)


def test_independent_columns_have_no_hidden_factor_and_two_columns_alone_make_none() -> None:
    rng = np.random.default_rng(2)
    columns = rng.normal(size=(5_000, 30))
    assert factor_weights(columns).shape == (30, 0)
    columns[:, 1] = columns[:, 0] + 0.3 * columns[:, 1]  # a driver and the CUDA that comes with it
    assert factor_weights(columns).shape == (30, 0)


def test_causes_are_found_and_decoys_of_a_hidden_cause_are_not() -> None:
    hits = found = planted = 0
    for seed in (1, 2):
        fleet = simulate_facts(FactSettings(), seed)
        names = {finding.fact for finding in find_relevant_facts(fleet.seen) if finding.relevant}
        hits, found, planted = hits + len(names & fleet.causal), found + len(names), planted + len(fleet.causal)
    assert hits >= 0.8 * planted
    assert hits >= 0.8 * found


def test_facts_that_matter_for_one_archetype_name_it() -> None:
    fleet = simulate_facts(FactSettings(causal=0, decoys=0, specific=2, specific_odds_ratios=(5.0, 5.0)), 4)
    particular = [finding for finding in find_relevant_facts(fleet.seen) if finding.archetypes]
    assert {finding.fact for finding in particular} == fleet.causal
    assert all(len(finding.archetypes) == 1 for finding in particular)


def test_a_fact_with_several_values_is_one_fact_and_a_constant_one_does_not_matter() -> None:
    rng = np.random.default_rng(5)
    runs = 8_000
    version, other = rng.integers(0, 4, runs), rng.integers(0, 3, runs)
    seen = FactRuns(
        ("a", "b"),
        rng.integers(0, 2, runs),
        {"version": version, "other": other, "constant": np.zeros(runs, dtype=np.int64)},
        {},
        rng.random(runs) < np.where(version == 2, 0.15, 0.05),
    )
    by_name = {finding.fact: finding for finding in find_relevant_facts(seen)}
    assert by_name["version"].relevant
    assert by_name["version"].odds_ratio == pytest.approx(0.15 / 0.85 / (0.05 / 0.95), rel=0.35)
    assert not by_name["other"].relevant
    assert not by_name["constant"].relevant
    assert by_name["constant"].q == 1.0


def test_equal_runs_give_equal_findings_and_the_order_of_facts_does_not_matter() -> None:
    seen = simulate_facts(FactSettings(runs=3_000, facts=20, decoys=6), 7).seen
    turned = replace(seen, facts=dict(reversed(seen.facts.items())))
    first = find_relevant_facts(seen)
    assert first == find_relevant_facts(seen)
    assert {finding.fact for finding in first if finding.relevant} == {
        finding.fact for finding in find_relevant_facts(turned) if finding.relevant
    }


def test_an_archetype_without_runs_to_compare_says_nothing_about_a_value() -> None:
    rng = np.random.default_rng(6)
    runs = 40_000
    archetype, version = rng.integers(0, 4, runs), rng.integers(0, 3, runs)
    version = np.where(archetype == 0, 1 + version % 2, version)  # never with the first value
    version = np.where(archetype == 1, 2, version)  # always with the last one
    usual = np.where(version == 2, 0.3, 0.05)
    failed = rng.random(runs) < np.where(archetype == 1, 0.6, usual)
    seen = FactRuns(("a", "b", "c", "d"), archetype, {"version": version}, {}, failed)
    (finding,) = find_relevant_facts(seen)
    assert finding.relevant and finding.archetypes == ()


def cells(mixed: int, certain: int, trials: int = 20) -> FactRuns:
    """Runs of cells, half of them with a fact that makes the first cells fail more often. The others never fail, or
    always, or have one value of the fact only."""
    rng = np.random.default_rng(8)
    archetype = np.repeat(np.arange(mixed + certain), trials)
    version = np.tile(np.arange(trials) % 2, mixed + certain)
    failed = rng.random(len(archetype)) < np.where(version == 1, 0.6, 0.2)
    kind = np.where(archetype < mixed, -1, archetype % 3)
    failed = np.where(kind == 0, False, np.where(kind == 1, True, failed))
    version = np.where(kind == 2, 1, version)
    return FactRuns(tuple(map(str, range(mixed + certain))), archetype, {"version": version}, {}, failed)


def test_cells_that_say_nothing_about_a_fact_change_nothing_for_all_archetypes() -> None:
    (alone,), (beside,) = find_relevant_facts(cells(12, 0)), find_relevant_facts(cells(12, 30))
    assert alone.relevant and alone.odds_ratio > 3
    assert (beside.q, beside.odds_ratio) == (alone.q, alone.odds_ratio)
    (nothing,) = find_relevant_facts(cells(0, 30))
    assert (nothing.relevant, nothing.q, nothing.odds_ratio) == (False, 1.0, 1.0)


def test_many_cells_do_not_take_a_column_of_all_runs_each() -> None:
    seen = cells(10, 300)
    tracemalloc.start()
    try:
        find_relevant_facts(seen)
        most_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert most_bytes < len(seen) * len(seen.archetypes)


def test_residuals_are_those_of_a_regression_on_a_column_for_each_archetype() -> None:
    rng = np.random.default_rng(9)
    archetype, other, fact = (rng.integers(0, values, 400) for values in (7, 3, 2))
    columns, confounders = _columns([fact, rng.integers(0, 4, 400)])[0], _columns([other])[0]
    for beside in (confounders, confounders[:, :0]):
        base = np.concatenate([_columns([archetype])[0], beside, np.ones((400, 1))], axis=1).astype(float)
        expected = columns - base @ np.linalg.lstsq(base, columns.astype(float), rcond=None)[0]
        assert _residuals(columns, archetype, beside) == pytest.approx(expected, abs=1e-12)
