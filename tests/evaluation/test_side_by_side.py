"""Work in threads side by side ends together, whoever fails."""

from __future__ import annotations

import os
import signal
import sys
import threading
from pathlib import Path

import psutil
import pytest

from evaluation.loop.side_by_side import Stop, Stopped, side_by_side
from tests.harness.processes import interrupted_once


def test_results_are_in_the_order_of_the_items() -> None:
    turn = threading.Event()

    def work(item: int, stop: Stop) -> int:
        if item == 0:
            assert stop.wait_until(turn.is_set, 60.0), "another thread has to do the second item meanwhile"
        turn.set()
        return item * item

    assert side_by_side(work, range(5), 2) == [0, 1, 4, 9, 16]


def test_a_failure_ends_the_waits_of_others_and_nothing_else_begins() -> None:
    began, cleaned_up, waits = list[str](), list[str](), threading.Event()

    def work(item: str, stop: Stop) -> None:
        began.append(item)
        if item == "waits":
            waits.set()
            try:
                stop.sleep(600.0)
            finally:
                cleaned_up.append(item)
        elif item == "fails":
            waits.wait()
            raise ValueError("the real failure")

    with pytest.raises(ValueError, match="the real failure"):
        side_by_side(work, ["waits", "fails", "later", "last"], 2)
    assert cleaned_up == ["waits"], "it has ended before the failure is raised"
    assert began == ["waits", "fails"]


def test_an_interrupt_ends_work_and_its_programs(tmp_path: Path) -> None:
    """The main thread gets the signal, as an evaluation does; the thread of the work waits for a program."""
    seen, running = list[int](), tmp_path / "running"
    script = "import os, pathlib, sys, time; pathlib.Path(sys.argv[1]).write_text(str(os.getpid())); time.sleep(600)"
    program = [sys.executable, "-c", script, str(running)]

    def work(item: str, stop: Stop) -> None:
        if item == "program":
            stop.run(program)
        else:
            stop.wait_until(lambda: running.exists() and running.read_text(), 60.0)
            seen.append(int(running.read_text()))
            os.kill(os.getpid(), signal.SIGTERM)
            stop.sleep(600.0)

    with interrupted_once(), pytest.raises(KeyboardInterrupt):
        side_by_side(work, ["program", "interrupts"], 2)
    assert len(seen) == 1 and not psutil.pid_exists(seen[0])


def test_a_program_gets_its_input_and_gives_what_it_prints(tmp_path: Path) -> None:
    script = "import os, sys; print(os.getcwd(), sys.stdin.read()); print('wrong', file=sys.stderr); sys.exit(3)"
    done = Stop().run([sys.executable, "-c", script], "given", tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (3, f"{tmp_path} given\n", "wrong\n")


def test_nothing_goes_on_after_a_stop() -> None:
    stop = Stop()
    stop.check()
    stop.sleep(-1.0)
    stop.set()
    for step in (stop.check, lambda: stop.sleep(600.0), lambda: stop.run([sys.executable])):
        with pytest.raises(Stopped):
            step()
