"""The simpler comparisons of the evaluation of validation are what they are named after."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import ks_2samp, ttest_ind

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
