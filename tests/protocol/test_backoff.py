"""Pauses between attempts: their bounds, their growth, and that two peers do not keep the same rhythm."""

from __future__ import annotations

from itertools import pairwise
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pharoah_protocol.backoff import Backoff

firsts = st.floats(0.001, 10.0)
factors = st.floats(1.0, 1000.0)
seeds = st.integers(0, 1 << 32)


@given(firsts, factors, seeds, st.integers(1, 40))
def test_a_pause_is_between_half_and_all_of_its_length(first: float, factor: float, seed: int, attempts: int) -> None:
    backoff, length = Backoff(first, first * factor, Random(seed)), first
    for _ in range(attempts):
        assert 0.5 * length <= backoff.next_pause() <= length
        length = min(2 * length, first * factor)


@given(firsts, seeds)
def test_pauses_grow_until_the_longest_and_stay_there(first: float, seed: int) -> None:
    backoff = Backoff(first, 64 * first, Random(seed))
    pauses = [backoff.next_pause() for _ in range(20)]
    assert all(later >= earlier for earlier, later in pairwise(pauses[:7]))
    assert all(32 * first <= pause <= 64 * first for pause in pauses[6:])


@given(firsts, seeds, st.integers(0, 20))
def test_after_a_reset_the_pause_is_short_again(first: float, seed: int, attempts: int) -> None:
    backoff = Backoff(first, 100 * first, Random(seed))
    for _ in range(attempts):
        backoff.next_pause()
    backoff.reset()
    assert backoff.next_pause() <= first


@given(seeds)
def test_the_same_seed_gives_the_same_pauses(seed: int) -> None:
    one, other = (Backoff(0.5, 10.0, Random(seed)) for _ in range(2))
    assert [one.next_pause() for _ in range(10)] == [other.next_pause() for _ in range(10)]


def test_two_peers_do_not_wait_equally_long() -> None:
    one, other = Backoff(0.5, 10.0), Backoff(0.5, 10.0)
    assert [one.next_pause() for _ in range(10)] != [other.next_pause() for _ in range(10)]


@pytest.mark.parametrize(("first", "longest"), [(0.0, 1.0), (-1.0, 1.0), (2.0, 1.0), (float("nan"), 1.0)])
def test_lengths_that_do_not_fit_together_are_refused(first: float, longest: float) -> None:
    with pytest.raises(ValueError, match="backoff"):
        Backoff(first, longest)
