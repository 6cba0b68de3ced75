"""Change points along versions: exact, rare without a change, and found where there is one."""

from __future__ import annotations

from itertools import combinations, pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pharoah_learning.models.change_points import FALSE_RATE, change_points, price
from pharoah_learning.models.merge_tree import Behaviours


def cost(seen: Behaviours, cuts: tuple[int, ...]) -> float:
    edges = [0, *cuts, len(seen.mean)]
    total = 0.0
    for start, end in pairwise(edges):
        weight = seen.weight[start:end]
        mean = (weight * seen.mean[start:end]).sum(axis=0) / weight.sum(axis=0)
        total += float((weight * (seen.mean[start:end] - mean) ** 2).sum())
    return total + len(cuts) * price(*seen.mean.shape)


@given(
    st.lists(st.tuples(st.floats(-8, 8), st.floats(-8, 8), st.sampled_from([0.5, 1.0, 3.0])), min_size=1, max_size=8)
)
def test_no_other_segmentation_costs_less(rows: list[tuple[float, float, float]]) -> None:
    seen = Behaviours(np.array([row[:2] for row in rows]), np.array([[row[2]] * 2 for row in rows]))
    places = range(1, len(rows))
    least = min(cost(seen, cuts) for count in range(len(rows)) for cuts in combinations(places, count))
    assert cost(seen, tuple(change_points(seen))) == pytest.approx(least)


@pytest.mark.parametrize(("length", "width"), [(5, 1), (12, 3), (50, 12), (300, 1), (300, 12)])
def test_a_series_without_a_change_has_a_change_point_at_the_stated_rate_or_less(length: int, width: int) -> None:
    rng = np.random.default_rng(length + width)
    false = 0
    for _ in range(200):
        error = np.exp(rng.normal(0, 0.7, (length, 1))) * np.ones((length, width))
        false += bool(change_points(Behaviours(error * rng.standard_normal((length, width)), error)))
    assert false <= 200 * FALSE_RATE + 4, "3 standard errors above the stated rate"


def test_steps_of_one_standard_deviation_are_found_within_ten_versions() -> None:
    rng = np.random.default_rng(1)
    found = 0
    for _ in range(100):
        mean = rng.standard_normal((300, 1)) + (np.arange(300) >= 150)[:, None]
        found += any(abs(point - 150) <= 10 for point in change_points(Behaviours(mean, np.ones((300, 1)))))
    assert found >= 82, "92 % of many; the place of such a step cannot be known better"


def test_a_single_bad_release_is_cut_out() -> None:
    mean = np.array([[0.0]] * 5 + [[1.0]] + [[0.0]] * 5)
    assert change_points(Behaviours(mean, np.full((11, 1), 0.1))) == [5, 6]


def test_a_version_that_was_hardly_measured_makes_no_change_point() -> None:
    mean, error = np.zeros((9, 1)), np.full((9, 1), 0.1)
    mean[4], error[4] = 3.0, 2.0
    assert change_points(Behaviours(mean, error)) == []


def test_the_price_for_one_quantity_and_300_versions_is_that_of_bic() -> None:
    assert price(300, 1) == pytest.approx(3 * np.log(300), rel=0.01)
