"""The effect of each version on a measured quantity, beside other versions in the same stratum.

A measurement is the level of its stratum plus the effect of its version plus noise (least squares in two ways). So
versions are compared although they did not run everywhere, and what is slow everywhere does not count against them.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy

from pharoah_learning.models.merge_tree import Array, Labels

MIN_DEGREES = 3
"""Degrees of freedom from which on the residuals show how large the noise is; a t distribution with fewer has no
variance."""


class Effects(NamedTuple):
    """The effects of versions, relative to their mean."""

    value: Array
    """Shape (versions,); NaN for a version that shares no stratum with the others."""
    variance: Array
    """Variances of the values, of which the difference of two has the sum. NaN as above, and where the noise is
    unknown."""
    measurements: Labels
    """Measurements of each version that are compared with another version."""


def version_effects(measured: Array, version: Labels, stratum: Labels, versions: int) -> Effects:
    """Effects from measurements, version codes and stratum codes, all in the shape (measurements,). NaN is no
    measurement. Where versions fall into groups without a common stratum, the largest group is compared.
    """
    known = np.isfinite(measured)
    _, stratum = np.unique(stratum[known], return_inverse=True)
    measured, version = measured[known], version[known]
    table = np.zeros((versions, int(stratum.max(initial=-1)) + 1))
    np.add.at(table, (version, stratum), 1)
    table = table[:, (table > 0).sum(axis=0) > 1]
    value, variance = np.full(versions, np.nan), np.full(versions, np.nan)
    count = table.sum(axis=1).astype(np.int64)
    chosen = _largest_group(table)
    if len(chosen) < 2:
        return Effects(value, variance, np.where(np.isin(np.arange(versions), chosen), count, 0))
    inside = np.isin(version, chosen) & (np.bincount(stratum)[stratum] > 1)
    code, strata = np.searchsorted(chosen, version[inside]), np.unique(stratum[inside], return_inverse=True)[1]
    effect, spread, noise = _least_squares(measured[inside], code, strata)
    value[chosen], variance[chosen] = effect, spread * noise
    return Effects(value, variance, np.where(np.isin(np.arange(versions), chosen), count, 0))


def _largest_group(table: Array) -> Labels:
    """The versions of the largest group that strata connect; of equal ones the first. Empty where nothing connects."""
    _, group = scipy.sparse.csgraph.connected_components(table @ table.T > 0, directed=False)
    sizes = np.bincount(group, weights=(table.sum(axis=1) > 0), minlength=1)
    return np.flatnonzero(group == sizes.argmax()) if sizes.max(initial=0) > 1 else np.zeros(0, dtype=np.int64)


def _least_squares(measured: Array, version: Labels, stratum: Labels) -> tuple[Array, Array, float]:
    """Effects, the factors of their variances, and the variance of the noise (NaN where it is unknown)."""
    table = np.zeros((int(version.max()) + 1, int(stratum.max()) + 1))
    np.add.at(table, (version, stratum), 1)
    in_stratum = table.sum(axis=0)
    versions = len(table)
    laplacian = np.diag(table.sum(axis=1)) - (table / in_stratum) @ table.T
    level = np.bincount(stratum, measured) / in_stratum
    # The pseudo-inverse of the Laplacian of one connected group: only the constant vector has the eigenvalue 0. A
    # general pseudo-inverse decides by size what is 0, and is wrong when rounding makes it a little more.
    constant = np.full((versions, versions), 1 / versions)
    inverse = np.linalg.inv(laplacian + constant) - constant
    effect: Array = inverse @ np.bincount(version, measured - level[stratum])
    rest = measured - effect[version]
    rest -= (np.bincount(stratum, rest) / in_stratum)[stratum]
    degrees = len(measured) - len(in_stratum) - versions + 1
    noise = float(rest @ rest) / (degrees - 2) if degrees >= MIN_DEGREES else np.nan
    # In a complete design the difference of two effects has exactly the sum of these variances. The division by
    # degrees - 2 gives the noise the variance of the t distribution that it follows.
    factor: Array = np.diag(inverse) * versions / (versions - 1)
    return effect, factor, noise
