"""Which process is which rank, whatever they say at first."""

from __future__ import annotations

import os
import subprocess

from pharoah.sidecar.rank_processes import RankProcesses, Standing, lives


def ranks_with(*alive: int) -> RankProcesses:
    living = set(alive)
    return RankProcesses(living.__contains__)


def test_ranks_that_all_say_zero_at_first_have_the_numbers_of_their_steps() -> None:
    ranks = ranks_with(100, 101, 102)
    assert [ranks.add_process(0, process) for process in (100, 101, 102)] == [Standing.KNOWN, *[Standing.OTHER] * 2]
    assert ranks.note_step(1, 101) is Standing.KNOWN
    assert ranks.note_step(2, 100) is Standing.NEW, "it was taken for rank 0"
    assert ranks.note_step(0, 102) is Standing.KNOWN
    assert ranks.by_rank == {1: 101, 2: 100, 0: 102}
    assert [ranks.note_step(*one) for one in ((0, 102), (1, 101), (2, 100))] == [Standing.KNOWN] * 3


def test_a_program_that_the_job_starts_does_not_take_the_place_of_its_rank() -> None:
    ranks = ranks_with(100, 200)
    ranks.add_process(0, 100)
    ranks.note_step(0, 100)
    assert ranks.add_process(0, 200) is Standing.OTHER
    assert ranks.note_step(0, 200) is Standing.OTHER
    assert ranks.note_step(0, 100) is Standing.KNOWN and ranks.by_rank == {0: 100}


def test_a_rank_that_is_started_again_is_a_new_one() -> None:
    alive = {100, 101}
    ranks = RankProcesses(alive.__contains__)
    for rank in range(2):
        ranks.add_process(rank, 100 + rank)
        ranks.note_step(rank, 100 + rank)
    alive.remove(100)
    assert ranks.add_process(0, 300) is Standing.NEXT
    assert ranks.note_step(0, 300) is Standing.KNOWN and ranks.by_rank == {0: 300, 1: 101}
    alive.remove(101)
    assert ranks.note_step(1, 400) is Standing.NEXT and ranks.by_rank == {0: 300, 1: 400}


def test_a_process_that_has_ended_and_was_not_waited_for_does_not_live() -> None:
    assert lives(os.getpid())
    process = subprocess.Popen(["true"])
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert not lives(process.pid), "a zombie"
    process.wait()
    assert not lives(process.pid)
