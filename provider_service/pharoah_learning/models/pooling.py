"""Partial pooling: coefficients of a group are those of all groups, plus a deviation that a ridge penalty keeps small.

A group with few failures then has the common coefficients, and one with many has its own.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


class Ridge(NamedTuple):
    """Half the weights of squared coefficients, on the scale of failures and of columns with a spread of one."""

    common: float
    group: float
    """The weight of the deviations of a group."""


def pool_columns(columns: np.ndarray, group: NDArray[np.intp], groups: int) -> np.ndarray:
    """The columns, and after them those of each group, which are 0 in the rows of other groups.

    `columns` has the shape (rows, width); `group` says for each row which one it belongs to, -1 for none of them.
    """
    rows, width = columns.shape
    found = np.zeros((rows, width * (1 + groups)), dtype=columns.dtype)
    found[:, :width] = columns
    for number in range(groups):
        found[group == number, width * (1 + number) : width * (2 + number)] = columns[group == number]
    return found
