"""The simpler comparisons of the evaluation of validation are what they are named after."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import ks_2samp, ttest_ind

from evaluation.figures import Figures
from evaluation.validation.comparison import BOTH, FLEET, HEALTHY, LEVEL, NODES, Counts, _add_cleaning
from evaluation.validation.simpler_comparisons import kolmogorov_smirnov_p, similarity, welch_p


@pytest.fixture(scope="module")
def reference() -> np.ndarray:
    return np.random.default_rng(1).normal(0, 0.01, (100, 30))


@pytest.mark.parametrize("shift", [0.0, 0.003, 0.006])
def test_pooled_tests_are_those_of_scipy(reference: np.ndarray, shift: float) -> None:
    """A one-sided test in which the distribution function of the tested node is the smaller one."""
    tested = np.random.default_rng(2).normal(shift, 0.01, (20, 30))
    for run, smirnov, welch in zip(
        tested, kolmogorov_smirnov_p(tested, reference), welch_p(tested, reference), strict=True
    ):
        peer = ks_2samp(run, reference.ravel(), alternative="less", method="asymp")
        assert smirnov == pytest.approx(np.exp(-2 * peer.statistic**2 * 30 * 3000 / 3030), rel=1e-9)
        assert smirnov == pytest.approx(peer.pvalue, abs=0.04)
        expected = ttest_ind(run, reference.ravel(), equal_var=False, alternative="greater").pvalue
        assert welch == pytest.approx(expected)


def test_the_similarity_of_a_node_that_is_slower_throughout_is_its_slowdown(reference: np.ndarray) -> None:
    centroid = np.median(np.sort(reference, axis=1), axis=0)[None]
    assert similarity(centroid + np.log(1.05), reference) == pytest.approx([0.95])
    assert similarity(centroid - 0.05, reference) == pytest.approx([1.0])


def test_false_alarms_beside_bad_nodes_are_counted_by_method_and_over_many_references() -> None:
    """The fleet alone calls more nodes than the level allows, in references that power is not measured with."""
    of_few, of_many, too_many = Counts(), Counts(), LEVEL + 0.002
    for method, share in ((FLEET, too_many), (BOTH, 0.0)):
        of_few.called[method] |= {HEALTHY: [method == BOTH] * 2 * NODES, "2 %": [True] * 2 * NODES}
        called = round(share * 4 * NODES)
        of_many.called[method] |= {HEALTHY: [True] * called + [False] * (4 * NODES - called)}
    of_few.bad_left_out, of_few.good_left_out = [True] * 100, [False] * 1000
    figures = Figures("validation comparison")
    _add_cleaning(figures, {"3 %": of_few}, of_many)
    assert figures.values["fpr_reference_with_bad_nodes"] == pytest.approx(too_many)
    assert figures.values["fpr_reference_with_bad_nodes_with_past"] == 0.0
    assert [row.key for row in figures.rows if "DOES NOT HOLD" in row.bound] == ["fpr_reference_with_bad_nodes"]
    assert "over 4 references" in next(row.interval for row in figures.rows if row.key.endswith("with_past"))
