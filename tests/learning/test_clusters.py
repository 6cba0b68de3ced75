"""Clusters of versions that are measured with unequal noise, and the adjusted Rand index."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.cluster.hierarchy import is_valid_linkage, ward
from scipy.stats import chi2

from evaluation.learning.simulated_versions import SimulatedVersions, measure, simulate
from pharoah_learning.known_versions import STABLE_INDEX
from pharoah_learning.models.clusters import (
    UNLIKE_FALSE_RATE,
    centres,
    find_clusters,
    place,
    stability,
)
from pharoah_learning.models.merge_tree import NOT_MEASURED, Behaviours, cut, merge_tree
from pharoah_learning.models.rand_index import compute_adjusted_rand_index


def drawn(versions: int, clusters: int, separation: float, seed: int = 0) -> SimulatedVersions:
    return simulate(versions, clusters, separation, np.random.default_rng(seed))


@st.composite
def behaviours(draw: st.DrawFn) -> Behaviours:
    """Up to eight versions, with means and errors on a grid, so that ties occur."""
    versions, quantities = draw(st.integers(1, 8)), draw(st.integers(1, 3))
    numbers = st.lists(st.integers(-6, 6), min_size=versions * quantities, max_size=versions * quantities)
    sizes = st.lists(st.sampled_from([0.25, 0.5, 2.0]), min_size=versions, max_size=versions)
    mean = np.array(draw(numbers), dtype=float).reshape(versions, quantities)
    return Behaviours(mean, np.array(draw(sizes))[:, None] * np.ones(quantities))


# The contingency tables and indices of Hubert and Arabie (1985) and of scikit-learn's documentation.
@pytest.mark.parametrize(
    ("left", "right", "index"),
    [
        ([0, 0, 1, 1], [0, 0, 1, 1], 1.0),
        ([0, 0, 1, 1], [1, 1, 0, 0], 1.0),
        ([0, 0, 1, 2], [0, 0, 1, 1], 0.5714285714285715),
        ([0, 0, 1, 1], [0, 0, 1, 2], 0.5714285714285715),
        ([0, 0, 0, 0], [0, 1, 2, 3], 0.0),
        ([0, 0, 1, 1], [0, 1, 0, 1], -0.5),
    ],
)
def test_the_adjusted_rand_index_has_its_published_values(left: list[int], right: list[int], index: float) -> None:
    assert compute_adjusted_rand_index(left, right) == pytest.approx(index)


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), max_size=12))
def test_the_adjusted_rand_index_is_that_of_counted_pairs_in_either_order(pairs: list[tuple[int, int]]) -> None:
    left, right = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    a = b = c = d = 0
    for i in range(len(pairs)):
        for j in range(i):
            together, other = left[i] == left[j], right[i] == right[j]
            a, b, c, d = (
                a + (together and other),
                b + (together and not other),
                c + (other and not together),
                d + (not together and not other),
            )
    # The form in pairs of Steinley (2004).
    below = (a + b) * (b + d) + (a + c) * (c + d)
    expected = 2 * (a * d - b * c) / below if below else 1.0
    assert compute_adjusted_rand_index(left, right) == pytest.approx(expected)
    assert compute_adjusted_rand_index(left, right) == pytest.approx(compute_adjusted_rand_index(right, left))


def test_partitions_of_different_items_are_an_error() -> None:
    with pytest.raises(ValueError, match="2 and 3 items"):
        compute_adjusted_rand_index([0, 1], [0, 1, 2])


def test_with_equal_noise_the_merge_tree_is_that_of_ward() -> None:
    mean = np.random.default_rng(3).normal(size=(40, 5))
    ours, theirs = merge_tree(Behaviours(mean, np.full_like(mean, 0.5))), ward(mean)
    assert is_valid_linkage(ours)
    # scipy's height is the square root of twice the increase of the sum of squares, and our unit is the error.
    assert ours[:, 2] == pytest.approx(theirs[:, 2] ** 2 / 2 / 0.25)
    assert ours[:, 3] == pytest.approx(theirs[:, 3])


@given(behaviours())
def test_a_merge_tree_is_a_linkage_and_its_cuts_are_nested(seen: Behaviours) -> None:
    tree, versions = merge_tree(seen), len(seen.mean)
    assert versions < 2 or is_valid_linkage(tree)
    for clusters in range(1, versions):
        coarse, fine = cut(tree, clusters), cut(tree, clusters + 1)
        assert len(np.unique(coarse)) == clusters
        assert len({(int(a), int(b)) for a, b in zip(coarse, fine, strict=True)}) == clusters + 1


def test_a_version_with_many_runs_weighs_more_than_one_with_few() -> None:
    seen = Behaviours(np.array([[0.0], [1.0], [9.0]]), np.array([[0.1], [1.0], [0.1]]))
    assert merge_tree(seen)[0, 2] == pytest.approx(1 / (0.1**2 + 1.0**2)), "the variance of the difference"


@given(behaviours(), st.randoms(use_true_random=False))
def test_the_order_of_versions_does_not_change_the_partition(seen: Behaviours, random: object) -> None:
    order = np.arange(len(seen.mean))
    random.shuffle(order)  # type: ignore[attr-defined]
    assert compute_adjusted_rand_index(find_clusters(seen).label[order], find_clusters(seen.select(order)).label) == 1.0


@given(behaviours(), st.integers(0, 7))
def test_a_version_that_comes_twice_is_in_one_cluster(seen: Behaviours, number: int) -> None:
    twin = number % len(seen.mean)
    label = find_clusters(seen.select(np.append(np.arange(len(seen.mean)), twin))).label
    assert label[twin] == label[-1]


@given(behaviours(), st.floats(0.1, 10), st.floats(-5, 5))
@settings(max_examples=50)
def test_the_unit_and_the_zero_of_a_quantity_do_not_matter(seen: Behaviours, unit: float, zero: float) -> None:
    other = Behaviours(unit * seen.mean + zero, unit * seen.error)
    clear = Behaviours(40 * seen.mean, seen.error)
    assert (
        compute_adjusted_rand_index(
            find_clusters(clear).label, find_clusters(Behaviours(40 * other.mean, other.error)).label
        )
        == 1
    )
    assert len(find_clusters(clear).centre) == len(np.unique(seen.mean, axis=0)), "differences of 10 errors and more"


def test_a_centre_is_the_weighted_mean_of_its_versions() -> None:
    seen = Behaviours(np.array([[1.0], [2.0], [50.0]]), np.array([[1.0], [0.5], [1.0]]))
    found = find_clusters(seen)
    assert found.label.tolist() == [0, 0, 1]
    assert found.centre[0] == pytest.approx((1.0 + 4 * 2.0) / 5) and found.error[0] == pytest.approx(5**-0.5)


@pytest.mark.parametrize(("versions", "clusters"), [(60, 6), (60, 12), (200, 8), (1000, 12)])
def test_planted_clusters_are_found_nearly_as_well_as_with_known_centres(versions: int, clusters: int) -> None:
    found, oracle = [], []
    for seed in range(3):
        one = drawn(versions, clusters, 0.8, seed)
        found.append(compute_adjusted_rand_index(one.cluster, find_clusters(one.seen).label))
        oracle.append(compute_adjusted_rand_index(one.cluster, one.oracle))
    assert np.mean(found) > 0.93 and np.mean(found) > np.mean(oracle) - 0.03


@pytest.mark.parametrize("quantities", [1, 3, 12])
def test_versions_that_do_not_differ_are_one_cluster(quantities: int) -> None:
    rng = np.random.default_rng(quantities)
    several = sum(
        len(find_clusters(measure(np.zeros((versions, quantities)), rng)).centre) > 1
        for versions in (2, 3, 8, 30)
        for _ in range(50)
    )
    assert several <= 4, "2 % of 200 draws"


def test_clusters_of_noise_are_not_stable_and_clear_ones_are() -> None:
    clear, faint = drawn(60, 6, 0.8).seen, drawn(60, 6, 0.3).seen
    assert stability(clear, find_clusters(clear), seed=1) > STABLE_INDEX
    assert stability(faint, find_clusters(faint), seed=1) < STABLE_INDEX
    assert stability(clear, find_clusters(clear), seed=1) == stability(clear, find_clusters(clear), seed=1)


def test_what_was_not_measured_does_not_make_clusters_unstable() -> None:
    """Eight versions were not measured in the quantity by which the other sixteen fall apart. However large the error
    is that stands for this, clusters are as stable."""
    cluster = np.repeat([0, 1, 2], 8)
    mean = np.array([[5.0, 0.0], [0.0, 0.0], [0.0, 0.6]])[cluster]
    mean += 0.1 * np.random.default_rng(3).standard_normal(mean.shape)
    unmeasured = (cluster == 0)[:, None] & np.array([False, True])
    seen, huge = (
        Behaviours(np.where(unmeasured, 0.0, mean), np.where(unmeasured, error, 0.1)) for error in (NOT_MEASURED, 1e6)
    )
    found = find_clusters(seen)
    assert len(found.centre) == 3
    stable = stability(seen, found, seed=1)
    assert stable == pytest.approx(stability(huge, found, seed=1)) and stable < 1


def test_a_new_version_of_a_known_cluster_is_called_unlike_at_the_stated_rate() -> None:
    one = drawn(60, 6, 0.8)
    known = centres(one.seen, one.cluster)
    rng = np.random.default_rng(5)
    numbers = np.unique(one.cluster, return_index=True)[1]
    true = rng.integers(0, 6, 4000)
    new = measure(one.centre[one.cluster[numbers][true]], rng)
    placed = [place(mean, error, known) for mean, error in zip(*new, strict=True)]
    unlike = np.mean([not found.is_known for found in placed])
    assert UNLIKE_FALSE_RATE / 3 < unlike < 1.6 * UNLIKE_FALSE_RATE
    in_its_own = [found.cluster == known.label[numbers[number]] for found, number in zip(placed, true, strict=True)]
    assert np.mean(in_its_own) > 0.95


def test_the_p_value_of_a_placement_is_that_of_its_distance() -> None:
    known = centres(Behaviours(np.array([[0.0, 0.0], [9.0, 9.0]]), np.ones((2, 2))), np.array([0, 1]))
    placed = place(np.array([2.0, 0.0]), np.array([1.0, 1.0]), known)
    assert placed.cluster == 0 and placed.p == pytest.approx(chi2.sf(4 / 2, 2))
    assert not place(np.array([4.5, 4.5]), np.array([0.1, 0.1]), known).is_known


def test_no_versions_are_an_error() -> None:
    with pytest.raises(ValueError, match="no versions"):
        find_clusters(Behaviours(np.zeros((0, 2)), np.ones((0, 2))))
