"""Statistics of incompatibilities, against published values, other implementations and closed forms."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom, false_discovery_control, fisher_exact

from evaluation.learning.simulated_runs import simulate
from pharoah_learning.models import contrasts
from pharoah_learning.models.confirmation import MAX_FALSE_RATE, Evidence, e_values
from pharoah_learning.models.false_discovery import q_values, reject_by_e_values
from pharoah_learning.models.logistic import fit
from pharoah_learning.models.mantel_haenszel import LogOddsRatio, Strata, log_odds_ratio, p_values
from pharoah_learning.models.matched_pairs import MatchedPairs, match_pairs
from pharoah_learning.observations import Observations, adjust, codes_of, stratify

# Admissions to six departments of Berkeley in 1973: women admitted and rejected, men admitted and rejected
# (Bickel and others 1975; the data set UCBAdmissions of R).
BERKELEY = Strata(
    np.array([89, 17, 202, 131, 94, 24.0]),
    np.array([19, 8, 391, 244, 299, 317.0]),
    np.array([512, 353, 120, 138, 53, 22.0]),
    np.array([313, 207, 205, 279, 138, 351.0]),
)

counts = st.integers(0, 12)
tables = st.lists(st.tuples(counts, counts, counts, counts), min_size=1, max_size=5)


def strata(rows: list[tuple[int, int, int, int]]) -> Strata:
    return Strata(*np.array(rows, dtype=float).T)


def test_the_common_odds_ratio_is_the_published_one() -> None:
    """R's documentation of mantelhaen.test: 0.9046968 for men, 95 % interval 0.7719074 to 1.0603298, p 0.2323."""
    found = log_odds_ratio(BERKELEY)
    half = 1.959964 * math.sqrt(found.variance)
    interval = [math.exp(-found.value + sign * half) for sign in (0, -1, 1)]
    assert interval == pytest.approx([0.9046968, 0.7719074, 1.0603298], rel=1e-6)
    assert 2 * float(p_values(BERKELEY)) == pytest.approx(0.2323, abs=5e-5)


@given(st.tuples(counts, counts, counts, counts))
def test_one_small_stratum_has_the_p_of_fishers_exact_test(row: tuple[int, int, int, int]) -> None:
    a, b, c, d = row
    expected = fisher_exact([[a, b], [c, d]], alternative="greater").pvalue
    assert float(p_values(strata([row]))) == pytest.approx(expected, abs=1e-9)


@given(tables)
def test_more_failures_of_the_exposed_have_a_smaller_p(
    rows: list[tuple[int, int, int, int]],
) -> None:
    p = float(p_values(strata(rows)))
    assert 0 < p <= 1
    worse = [(a + 1, max(b - 1, 0), max(c - 1, 0), d + 1) if b and c else (a, b, c, d) for a, b, c, d in rows]
    assert float(p_values(strata(worse))) <= p + 1e-9


def test_the_sensitivity_of_smoking_and_lung_cancer_is_the_published_one() -> None:
    """Hammond's 36,975 matched pairs, 110 of 122 discordant ones against smoking: p is at most 0.03 with gamma 5, and
    at most 0.1 with gamma 6 (Rosenbaum 2002, section 4.3)."""
    for gamma, p in ((5, 0.03), (6, 0.1)):
        assert binom.sf(109, 122, gamma / (1 + gamma)) == pytest.approx(p, abs=0.01)
    assert 5 < MatchedPairs(36975, 0, 110, 12, 0.0).sensitivity < 6


def test_matched_pairs_without_an_effect_are_as_often_for_as_against() -> None:
    rng = np.random.default_rng(0)
    runs, failures = np.array([400.0, 800.0]), np.array([40.0, 200.0])
    found = [match_pairs(runs, failures, 2 * runs, 2 * failures, rng) for _ in range(400)]
    assert all(one.pairs == 1200 and one.unmatched == 0 for one in found)
    assert np.mean([one.net_outcome for one in found]) == pytest.approx(0, abs=0.003)
    assert np.mean([one.sensitivity > 1 for one in found]) < 0.1


def test_an_effect_shows_in_matched_pairs_as_its_difference_of_rates() -> None:
    rng = np.random.default_rng(1)
    found = match_pairs(np.array([5000.0]), np.array([1000.0]), np.array([9000.0]), np.array([900.0]), rng)
    assert found.net_outcome == pytest.approx(0.2 - 0.1, abs=0.02) and found.p < 1e-9 and found.sensitivity > 1.5


@given(st.lists(st.floats(0, 1), min_size=1, max_size=40))
def test_q_values_are_those_of_scipy(p: list[float]) -> None:
    assert q_values(np.array(p)) == pytest.approx(false_discovery_control(p), abs=1e-12)


def test_e_values_are_rejected_by_their_rank() -> None:
    e = np.array([[100.0, 1.0], [41.0, 39.0]])
    assert reject_by_e_values(e, 0.05).tolist() == [[True, False], [True, True]]
    assert not reject_by_e_values(np.full(10, 19.0), 0.05).any()
    assert reject_by_e_values(np.full(10, 21.0), 0.05).all()


@given(st.integers(0, 30), st.integers(0, 30))
def test_without_an_effect_the_evidence_stays_the_same_on_average(against: int, for_it: int) -> None:
    now = Evidence(against, for_it).e_value
    nexts = [Evidence(against + 1, for_it).e_value, Evidence(against, for_it + 1).e_value]
    assert sum(nexts) / 2 == pytest.approx(now)
    assert float(e_values(np.array(against), np.array(for_it))) == pytest.approx(now)


def test_looking_after_every_pair_confirms_few_suspects_without_an_effect() -> None:
    """The exact probability over all paths of 300 pairs, by dynamic programming."""
    alive, confirmed = {0: 1.0}, 0.0
    for pairs in range(1, 301):
        after: dict[int, float] = {}
        for against, share in alive.items():
            for more in (0, 1):
                after[against + more] = after.get(against + more, 0.0) + share / 2
        stopped = {against for against in after if Evidence(against, pairs - against).confirms}
        confirmed += sum(after.pop(against) for against in stopped)
        alive = after
    assert 0.005 < confirmed <= MAX_FALSE_RATE


def test_a_strong_effect_is_confirmed_within_few_pairs() -> None:
    assert Evidence(14, 2).confirms and not Evidence(4, 0).confirms
    assert Evidence(13, 0).blocks and not Evidence(14, 2).blocks


def test_what_is_common_to_all_archetypes_is_no_excess() -> None:
    """One context doubles the odds for every archetype: each pair alone is significant, and none is special."""
    own = LogOddsRatio(np.full((24, 2), math.log(2)), np.full((24, 2), 0.01))
    found = contrasts.contrasts(own, np.full((24, 2), 1e-9))
    assert np.allclose(found.excess.value, 0) and np.allclose(found.p, 0.5)


def test_a_bad_pair_is_no_comparison_for_the_others() -> None:
    """The contrast is the difference to the average of the ordinary pairs (closed form), also beside a bad one."""
    own = LogOddsRatio(np.zeros((30, 1)), np.full((30, 1), 0.01))
    own.value[0] = 3.0
    found = contrasts.contrasts(own, np.full((30, 1), 1e-9))
    assert float(found.excess.value[0, 0]) == pytest.approx(3) and float(found.excess_p[0, 0]) < 1e-9
    assert np.allclose(found.excess.value[1:], 0)
    assert np.allclose(found.excess.variance[1:], 0.01 + 0.01 / 28)


def test_pairs_that_cannot_be_estimated_are_not_special() -> None:
    value = np.array([[np.nan, 0.0], [0.5, 0.0], [np.nan, 0.0]])
    found = contrasts.contrasts(LogOddsRatio(value, np.where(np.isnan(value), np.nan, 0.01)), np.zeros((3, 2)))
    assert found.excess_p[:, 0].tolist() == [1, 1, 1]


def test_the_spread_of_ordinary_contrasts_is_estimated_beside_large_ones() -> None:
    rng = np.random.default_rng(3)
    variance = np.full(4000, 0.04)
    value = rng.normal(0, math.sqrt(0.04 + 0.09), 4000)
    value[:200] = 2.0
    assert contrasts.heterogeneity(LogOddsRatio(value, variance)) == pytest.approx(0.09, abs=0.03)
    assert contrasts.heterogeneity(LogOddsRatio(value[200:] / 2, variance[200:])) == pytest.approx(0, abs=0.01)
    assert contrasts.heterogeneity(LogOddsRatio(value[:5], variance[:5])) == 0


def test_planted_incompatibilities_are_found_beside_a_hidden_cause() -> None:
    simulated = simulate(40_000, 7, hidden=True)
    counted = stratify(simulated.seen)
    assert counted.unmatched_ratio < 0.2
    own_p = p_values(counted.counts.strata)
    called = q_values(contrasts.contrasts(adjust(simulated.seen).odds, own_p).p) <= 0.05
    plain = q_values(own_p) <= 0.05
    true = simulated.incompatible
    assert (called & true).sum() >= 6 and (called & ~true).sum() <= 1
    assert (plain & ~true).sum() > 5, "without the contrast, the hidden cause is taken for incompatibilities"


def test_a_regression_on_one_column_is_the_log_odds_ratio_of_its_table() -> None:
    """The closed form: a saturated model has the odds of the table, and the variance is the sum of reciprocals."""
    cells = {(True, True): 30, (True, False): 70, (False, True): 10, (False, False): 190}
    x = np.array([[exposed, True] for (exposed, _), n in cells.items() for _ in range(n)])
    failed = np.array([bad for (_, bad), n in cells.items() for _ in range(n)])
    found = fit(x, failed, np.zeros(2))
    assert found.value == pytest.approx([math.log(30 * 190 / (70 * 10)), math.log(10 / 190)], abs=1e-6)
    assert found.covariance[0, 0] == pytest.approx(sum(1 / n for n in cells.values()), rel=1e-4)


def test_a_regression_on_what_never_fails_stays_finite() -> None:
    x = np.array([[True, True]] * 50 + [[False, True]] * 50)
    found = fit(x, np.arange(100) >= 95, np.full(2, 0.05))
    assert -8 < found.value[0] < -2 and np.isfinite(found.covariance).all()
    assert fit(np.ones((40, 3)), np.zeros(40, dtype=bool), np.full(3, 0.05)).value == pytest.approx([-1.7] * 3, abs=0.6)


def test_a_context_is_adjusted_for_the_one_that_comes_with_it() -> None:
    rng = np.random.default_rng(4)
    both = rng.random((40_000, 2)) < 0.5
    both[:, 1] = np.where(rng.random(40_000) < 0.3, both[:, 1], both[:, 0])
    failed = rng.random(40_000) < np.where(both[:, 0], 0.2, 0.05)
    seen = Observations(("a",), ("c", "d"), np.zeros(40_000, dtype=np.int64), both, {}, failed)
    found = adjust(seen)
    assert found.together == (((), ()),)
    assert found.odds.value[0] == pytest.approx([math.log(0.25 * 19), 0], abs=0.15)


def test_an_opposite_context_has_the_opposite_effect_and_one_that_everybody_has_is_separable() -> None:
    rng = np.random.default_rng(5)
    first = rng.random(20_000) < 0.5
    contexts = np.stack([first, ~first, rng.random(20_000) < 0.98, rng.random(20_000) < 0.98], axis=1)
    failed = rng.random(20_000) < np.where(first, 0.2, 0.05)
    found = adjust(Observations(("a",), tuple("cdef"), np.zeros(20_000, dtype=np.int64), contexts, {}, failed))
    assert found.together == (((1,), (0,), (), ()),)
    assert found.odds.value[0, 0] == -found.odds.value[0, 1] == pytest.approx(math.log(0.25 * 19), abs=0.15)


def in_three_contexts(archetypes: int, runs: int = 2_000) -> Observations:
    """The first archetype always runs in the second context, and the second one never; the first context is rare."""
    rng = np.random.default_rng(6)
    archetype = np.repeat(np.arange(archetypes), runs)
    contexts = rng.random((len(archetype), 3)) < (0.5, 0.5, 0.03)
    contexts[archetype == 0, 1], contexts[archetype == 1, 1] = True, False
    failed = rng.random(len(archetype)) < np.where(contexts[:, 2], 0.4, 0.1)
    return Observations(tuple(map(str, range(archetypes))), ("c", "d", "e"), archetype, contexts, {}, failed)


def test_a_context_in_which_an_archetype_always_or_never_runs_is_not_estimated() -> None:
    found = adjust(in_three_contexts(3)).odds
    nothing = [[False, True, False], [False, True, False], [False, False, False]]
    assert np.isnan(found.value).tolist() == nothing and np.isnan(found.variance).tolist() == nothing


def test_a_rare_context_is_not_the_opposite_of_one_in_which_all_runs_are() -> None:
    found = adjust(in_three_contexts(2))
    assert found.together == (((),) * 3,) * 2
    assert found.odds.value[:, 2] == pytest.approx([math.log((0.4 / 0.6) / (0.1 / 0.9))] * 2, abs=0.7)


def test_pairs_without_a_comparison_change_no_contrast_and_no_spread() -> None:
    """Half of all pairs are those of archetypes that run in one context only, as where software is installed once."""
    rng = np.random.default_rng(7)
    value = rng.normal(0, 1, (40, 1))
    plain = LogOddsRatio(value, np.full(value.shape, 0.04))
    beside = LogOddsRatio(*(np.concatenate([part, np.full((60, 1), np.nan)]) for part in plain))
    one, other = (contrasts.contrasts(own, np.full(own.value.shape, 1e-9)) for own in (plain, beside))
    assert other.excess.value[:40] == pytest.approx(one.excess.value)
    assert other.excess.variance[:40] == pytest.approx(one.excess.variance)
    assert (other.p[40:] == 1).all() and float(one.excess.variance.min()) > 0.5


def test_strata_are_made_coarser_until_most_runs_have_a_counterpart() -> None:
    seen = simulate(3_000, 1, hidden=False).seen
    counted = stratify(seen)
    assert counted.unmatched_ratio <= 0.2 and any(name.endswith("/2") for name in counted.confounders)
    assert counted.counts.runs.sum() == len(seen) and counted.counts.failures.sum() == seen.failed.sum()


def test_numbers_are_put_into_bins_and_words_are_not() -> None:
    assert codes_of(["b", "a", "b"]).tolist() == [1, 0, 1]
    assert codes_of([3, 1, 2, 1]).tolist() == [2, 0, 1, 0]
    codes = codes_of(list(np.linspace(0, 1, 1000)))
    assert np.bincount(codes).tolist() == [200] * 5 and (np.diff(codes) >= 0).all()


def test_empty_strata_estimate_nothing() -> None:
    nothing = log_odds_ratio(Strata(*(np.zeros((2, 3)) for _ in range(4))))
    assert np.isnan(nothing.value).all() and np.isnan(nothing.variance).all()
    assert p_values(Strata(*(np.zeros((2, 3)) for _ in range(4)))).tolist() == [1, 1]
