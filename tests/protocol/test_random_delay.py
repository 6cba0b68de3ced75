"""The random delay of messages."""

from __future__ import annotations

from statistics import fmean

import pytest

from pharoah_protocol.random_delay import random_delay

DRAWS = 20_000


def test_delays_have_a_triangular_distribution() -> None:
    """Within six standard errors. Where half of the width is 1, the density is x up to 1, and 2 - x from there on."""
    drawn = [random_delay(0.4) for _ in range(DRAWS)]
    assert min(drawn) >= 0 and max(drawn) <= 0.4
    deviation = 0.4 / 24**0.5
    assert fmean(drawn) == pytest.approx(0.2, abs=6 * deviation / DRAWS**0.5)
    early = fmean(one < 0.04 for one in drawn)
    assert early == pytest.approx(0.02, abs=6 * (0.02 * 0.98 / DRAWS) ** 0.5), "a uniform delay has 0.1 here"
