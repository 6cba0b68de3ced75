"""Past runs of others become the columns that learning reads."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from pharoah_learning.observations import BINS, MAX_UNBINNED
from pharoah_learning.past_runs import PastRuns, observations
from pharoah_protocol.vocabulary import Attribution, EndState


def codes_of_batch(values: Sequence[str]) -> list[int]:
    """The codes that the confounder `batch` with these values has."""
    runs = PastRuns(
        model=np.full(len(values), "gpt"),
        archetype=np.full(len(values), ""),
        context={},
        confounders={"batch": np.array(values, dtype=str)},
        clusters={},
        end_state=np.full(len(values), EndState.OK, dtype=object),
        attribution=np.full(len(values), Attribution.UNKNOWN, dtype=object),
        throughput=np.full(len(values), np.nan),
    )
    return observations(runs).confounders["batch"].tolist()


def test_numbers_of_a_confounder_are_in_the_order_of_their_size() -> None:
    """Strata are made coarser by making neighbours equal: neighbours are values that are close."""
    assert codes_of_batch(["1", "128", "16", "2", "16"]) == [0, 3, 2, 1, 2]


def test_many_numbers_of_a_confounder_are_put_in_bins() -> None:
    values = list(range(8, 8 + 4 * MAX_UNBINNED))
    codes = codes_of_batch([str(value) for value in values])
    assert set(codes) == set(range(BINS)) and codes == sorted(codes)


def test_runs_without_a_number_have_a_code_of_their_own() -> None:
    assert codes_of_batch(["16", "", "2", ""]) == [1, 2, 0, 2]
    many = codes_of_batch([*map(str, range(4 * MAX_UNBINNED)), ""])
    assert many[-1] == BINS and many.count(BINS) == 1
    assert codes_of_batch(["", ""]) == [0, 0]


@pytest.mark.parametrize(
    "values", [["10", "9", "auto"], ["10", "9", "nan"], ["10", "9", "inf"], ["2.10", "2.9", "2.1"]]
)
def test_values_that_are_not_all_different_numbers_stay_names(values: list[str]) -> None:
    assert codes_of_batch(values) == [sorted(values).index(value) for value in values]
