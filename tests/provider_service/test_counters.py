"""The counters of risky seconds, rank by rank, and the rule that leads from the ranks to the job."""

from __future__ import annotations

import random

import pytest

from pharoah_provider.monitoring.counters import CHANCE_RATIO, CLEAN_SECONDS, RunCounters, count_needed


def seconds(counters: RunCounters, *by_rank: bool, times: int = 1) -> list[int]:
    """Feed the same second to all ranks so many times; the seconds at which a counter fired."""
    fired = []
    for at in range(times):
        of_ranks = [counters.second(rank, risky) for rank, risky in enumerate(by_rank)]
        if any(of_ranks):
            fired.append(at)
    return fired


def test_one_risky_second_raises_nothing_and_two_of_three_do() -> None:
    counters = RunCounters(1)
    assert [counters.second(0, risky) for risky in (True, False, False, True)] == [False] * 4
    assert not counters.raised
    assert counters.second(0, True)
    assert counters.raised


@pytest.mark.parametrize(("ranks", "odd"), [(4, 0), (4, 3), (8, 5), (64, 63)])
def test_one_slow_rank_raises_the_job_within_a_few_seconds(ranks: int, odd: int) -> None:
    """With one counter for the rows of all ranks, a slow rank of four was not suspected in 600 s."""
    counters = RunCounters(ranks)
    fired = seconds(counters, *(rank == odd for rank in range(ranks)), times=10)
    assert fired[0] == count_needed(ranks) - 1
    assert counters.raised


def test_one_bad_second_of_all_ranks_raises_nothing() -> None:
    """With one counter for the rows of all ranks, the first bad second of eight ranks was a suspicion."""
    counters = RunCounters(8)
    assert seconds(counters, *[True] * 8) == []
    assert not counters.raised


def test_a_job_is_clean_only_when_all_its_ranks_are() -> None:
    """With one counter for the rows of all ranks, one clean second of eight ranks cleared a confirmed alert."""
    counters = RunCounters(8)
    seconds(counters, *[True] * 8, times=4)
    seconds(counters, *[False] * 8)
    assert counters.raised
    seconds(counters, *(rank == 6 for rank in range(8)), times=10 * CLEAN_SECONDS)
    assert counters.raised
    seconds(counters, *[False] * 8, times=CLEAN_SECONDS)
    assert not counters.raised


def test_a_single_risky_second_of_another_rank_does_not_keep_a_job_raised() -> None:
    counters = RunCounters(64)
    seconds(counters, *[True] * 64, times=5)
    for second in range(CLEAN_SECONDS):
        seconds(counters, *(rank == second for rank in range(64)))
    seconds(counters, *(rank == 63 for rank in range(64)))
    seconds(counters, *[False] * 64, times=CLEAN_SECONDS)
    assert not counters.raised


def test_after_a_restart_every_rank_has_to_show_that_it_is_clean() -> None:
    counters = RunCounters(2, raised=True)
    for _ in range(2 * CLEAN_SECONDS):
        counters.second(0, risky=False)
    assert counters.raised
    for _ in range(CLEAN_SECONDS):
        counters.second(1, risky=False)
    assert not counters.raised


def false_alarms_per_hour(ranks: int, hours: int, seed: int) -> float:
    """Times at which a healthy job becomes raised, when each second of each rank is risky by chance."""
    chance, counters, alarms = random.Random(seed), RunCounters(ranks), 0
    for _ in range(3600 * hours):
        before = counters.raised
        for rank in range(ranks):
            counters.second(rank, chance.random() < CHANCE_RATIO)
        alarms += counters.raised and not before
    return alarms / hours


@pytest.mark.parametrize(("ranks", "hours"), [(8, 20), (64, 4)])
def test_jobs_of_many_ranks_are_suspected_by_chance_no_more_often_than_jobs_of_one(ranks: int, hours: int) -> None:
    """Expected per hour, k p^k times the ranks: 2.9 for one rank, 0.7 for 8, 0.15 for 64; with 2 of 3, 184 for 64."""
    assert false_alarms_per_hour(ranks, hours, seed=1) <= false_alarms_per_hour(1, 20, seed=2)
