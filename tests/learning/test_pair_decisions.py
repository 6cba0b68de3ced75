"""What pairs of cells decide: error bounds that hold exactly, and pairs enough for the planned power."""

from __future__ import annotations

from itertools import combinations, product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pharoah_learning.models.confirmation import MAX_FALSE_BLOCK_RATE, MAX_FALSE_RATE, Evidence, log_e_values
from pharoah_learning.models.no_effect import (
    MATTERING_ODDS_RATIO,
    MATTERING_RISK,
    MAX_FALSE_REFUTED_RATE,
    log_no_effect,
)
from pharoah_learning.pair_decisions import End, count_tolerated_nodes, first_ends
from pharoah_learning.pair_plans import MIN_BASE_RATE, PLANNED_POWER, pairs_needed, plan_base_rate


def rate_of(base_rate: float, odds_ratio: float) -> float:
    odds = odds_ratio * base_rate / (1 - base_rate)
    return odds / (1 + odds)


def test_the_chance_of_a_false_confirmation_is_bounded_over_all_paths() -> None:
    """Exact: all equally likely outcomes of 15 discordant pairs on two nodes, with a look after each."""
    outcomes = np.array(list(product((False, True), repeat=15)))
    found = first_ends(np.arange(15) % 2, outcomes, ~outcomes, 0, 10_000)
    assert 0 < np.mean(found.end == End.CONFIRMED) <= MAX_FALSE_RATE
    assert not np.any(found.end == End.BLOCKS)


def test_two_sick_nodes_of_four_confirm_no_more_than_chance_does() -> None:
    """Exact: two nodes always speak against the suspect; all outcomes of 14 discordant pairs on the other two."""
    free = np.array(list(product((False, True), repeat=14)))
    nodes = np.arange(28) % 4
    suspected = np.ones((len(free), 28), dtype=bool)
    suspected[:, nodes >= 2] = free
    found = first_ends(nodes, suspected, ~suspected, 0, 10_000)
    assert 0 < np.mean(np.isin(found.end, (End.CONFIRMED, End.BLOCKS))) <= MAX_FALSE_RATE
    assert 0 < np.mean(found.end == End.BLOCKS) <= MAX_FALSE_BLOCK_RATE


@given(st.floats(0.001, 0.5), st.floats(4, 200), st.integers(0, 40), st.integers(0, 40), st.integers(0, 400))
def test_evidence_of_no_effect_does_not_grow_on_average_under_an_effect_that_matters(
    base_rate: float, odds_ratio: float, against: int, for_it: int, others: int
) -> None:
    suspected = rate_of(base_rate, odds_ratio)
    a, f = suspected * (1 - base_rate), base_rate * (1 - suspected)
    pairs = against + for_it + others
    counts = np.array([[against + 1, for_it], [against, for_it + 1], [against, for_it]])
    grown = np.exp(log_no_effect(*counts.T, np.full(3, pairs + 1)) - float(log_no_effect(against, for_it, pairs)))
    if a - f >= MATTERING_RISK:
        assert grown @ [a, f, 1 - a - f] <= 1 + 1e-9


@pytest.mark.parametrize("base_rate", [0.02, 0.055])
def test_the_chance_that_an_effect_that_matters_is_refuted_is_bounded(base_rate: float) -> None:
    """Exact, by dynamic programming over all paths of 400 pairs."""
    suspected = rate_of(base_rate, MATTERING_ODDS_RATIO)
    a, f = suspected * (1 - base_rate), base_rate * (1 - suspected)
    share, refuted = np.zeros((150, 70)), 0.0
    share[0, 0] = 1
    against, for_it = np.indices(share.shape)
    for pairs in range(1, 401):
        after = share * (1 - a - f)
        after[1:] += share[:-1] * a
        after[:, 1:] += share[:, :-1] * f
        stopped = log_no_effect(against, for_it, pairs) >= -np.log(MAX_FALSE_REFUTED_RATE)
        refuted += float(after[stopped].sum())
        share = np.where(stopped, 0, after)
    assert 0 < refuted <= MAX_FALSE_REFUTED_RATE
    assert refuted + share.sum() == pytest.approx(1, abs=1e-6), "no path leaves the table"


def naive_end(nodes: list[int], suspected: list[bool], control: list[bool], most_pairs: int) -> tuple[End, int]:
    """Confirmations and blocks from their definition, pair by pair."""
    confirmed = False
    for count in range(1, len(nodes) + 1):
        names = sorted(set(nodes[:count]))
        pairs = list(zip(nodes, suspected, control, strict=True))[:count]
        enough = [name for name in names if nodes[:count].count(name) >= max(1, count / len(names) / 2)]
        wrong = 2 if len(enough) >= 4 else 1
        e = min(
            Evidence(
                sum(s and not c for node, s, c in pairs if node not in left_out),
                sum(c and not s for node, s, c in pairs if node not in left_out),
            ).e_value
            for left_out in combinations(names, min(wrong, len(names)))
        )
        confirmed = confirmed or e >= 20
        for_it = any(c and not s for _, s, c in pairs)
        if wrong == 2 and e >= 1000:
            return End.BLOCKS, count
        if confirmed and (wrong == 1 or for_it or count == most_pairs):
            return End.CONFIRMED, count
        if count == most_pairs:
            return End.UNDECIDED, count
    return End.OPEN, len(nodes)


@given(st.integers(1, 6), st.integers(0, 10_000), st.sampled_from([0.6, 0.9, 1.0]))
def test_the_first_end_is_what_the_definition_says(places: int, seed: int, rate: float) -> None:
    rng = np.random.default_rng(seed)
    nodes, suspected, control = rng.integers(places, size=45), rng.random((1, 45)) < rate, rng.random((1, 45)) < 0.05
    found = first_ends(nodes, suspected, control, 0, 40)
    expected = naive_end(nodes.tolist(), suspected[0].tolist(), control[0].tolist(), 40)
    assert (End(found.end[0]), found.pairs[0]) == expected


def test_a_node_counts_when_it_has_run_half_of_its_share() -> None:
    ran = np.array([[10, 10, 10, 10], [20, 20, 6, 6], [20, 20, 5, 5], [9, 9, 9, 0], [0, 0, 0, 0]])
    assert count_tolerated_nodes(ran).tolist() == [2, 1, 1, 1, 1]
    assert count_tolerated_nodes(np.array([12, 12, 5, 5])) == 2


@pytest.mark.parametrize("nodes", [2, 4])
def test_the_planned_pairs_have_the_planned_power(nodes: int) -> None:
    """The chance that fewer than 80 % of 300 are confirmed where 90 % would be is 1e-7."""
    rng, planned = np.random.default_rng(8), pairs_needed(0.1, nodes)
    suspected = rng.random((300, planned)) < rate_of(0.1, MATTERING_ODDS_RATIO)
    found = first_ends(np.arange(planned) % nodes, suspected, rng.random((300, planned)) < 0.1, 0, planned)
    confirmed = np.isin(found.end, (End.CONFIRMED, End.BLOCKS))
    assert np.mean(confirmed) > 0.8
    assert found.pairs.mean() < 0.75 * planned


def test_more_pairs_are_planned_where_the_control_fails_less_and_where_fewer_nodes_would_be_left() -> None:
    by_rate = [pairs_needed(rate, 4) for rate in (0.02, 0.05, 0.1, 0.3)]
    assert by_rate == sorted(by_rate, reverse=True) and by_rate[0] > 2 * by_rate[1]
    assert pairs_needed(0.05, 8) < pairs_needed(0.05, 4) > pairs_needed(0.05, 3) < pairs_needed(0.05, 2)
    assert pairs_needed(0.05, 4, 9.0) < pairs_needed(0.05, 4) / 2
    assert 0.8 < PLANNED_POWER < 1


def test_a_plan_takes_the_lower_end_of_what_is_known_of_the_control() -> None:
    assert plan_base_rate(0, 0) == plan_base_rate(0, 1000) == MIN_BASE_RATE
    assert MIN_BASE_RATE < plan_base_rate(20, 200) < 0.1


@given(st.lists(st.tuples(st.integers(0, 200), st.integers(0, 200)), min_size=1))
def test_evidence_that_is_looked_up_is_the_evidence(counts: list[tuple[int, int]]) -> None:
    table = np.array(counts)
    assert np.exp(log_e_values(table[:, 0], table[:, 1])) == pytest.approx([Evidence(*one).e_value for one in counts])
