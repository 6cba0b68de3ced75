"""The end of a job is delayed once for all of its processes, not by each."""

from __future__ import annotations

import multiprocessing
import os
import signal
from pathlib import Path

import pytest

from pharoah._waited_end import wait_for_end

_FORK = multiprocessing.get_context("fork")


def test_who_waits_after_somebody_who_had_no_answer_does_not_wait(tmp_path: Path) -> None:
    socket = str(tmp_path / "sidecar.sock")
    with pytest.raises(TimeoutError), wait_for_end(socket, 2.0) as left:
        assert left == 2.0
        with wait_for_end(socket, 2.0) as of_second:
            assert 1.0 < of_second <= 2.0, "what is left of the first one's time"
        raise TimeoutError
    for _ in range(2):
        with wait_for_end(socket, 2.0) as left:
            assert left == 0.0


def test_an_answer_gives_the_next_one_its_whole_time(tmp_path: Path) -> None:
    for _ in range(2):
        with wait_for_end(str(tmp_path / "sidecar.sock"), 2.0) as left:
            assert left == 2.0
    assert not list(tmp_path.iterdir())


def test_somebody_who_was_killed_as_he_waited_does_not_count(tmp_path: Path) -> None:
    socket = str(tmp_path / "sidecar.sock")

    def waits() -> None:
        with wait_for_end(socket, 2.0):
            os.kill(os.getpid(), signal.SIGKILL)

    child = _FORK.Process(target=waits)
    child.start()
    child.join()
    with wait_for_end(socket, 2.0) as left:
        assert left == 2.0


def test_a_folder_that_is_gone_does_not_matter(tmp_path: Path) -> None:
    with wait_for_end(str(tmp_path / "none" / "sidecar.sock"), 2.0) as left:
        assert left == 2.0
