"""Both waiters do what `pharoah run` does: pass signals on, say how the job has ended, and end as it did."""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from pharoah_system import waiting
from pharoah_system.waiting import Waiter, waiters
from tests.harness.until import wait_until

FOLDER = Path(waiting.__file__).parent
WAITERS = [waiter for waiter in waiters() if Path(waiter.program).exists()]
SOURCE_OF_PROGRAMS = "c8ec3b99b80110e8"
"""The beginning of the SHA-256 of the `waiter.c` that the programs beside it were compiled from (`make waiter`)."""
STARTS = """
import os, signal, sys
program, arguments, command, job = {program!r}, {arguments!r}, {command!r}, {job!r}
pid = os.fork()
if not pid:
    os.execv(sys.executable, [sys.executable, "-c", job])
signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 65))
mask = sum(1 << number - 1 for number in (1, 2, 3, 10, 15, 36))
os.execv(program, ["waiter", *arguments, str(pid), f"{{mask:x}}", "0", *command])
"""
SHOWS = (sys.executable, "-c", "import sys; print(*sys.argv[1:])")


def start(waiter: Waiter, job: str, command: tuple[str, ...] = ()) -> subprocess.Popen[str]:
    code = STARTS.format(program=waiter.program, arguments=waiter.arguments, command=command, job=textwrap.dedent(job))
    return subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, start_new_session=True)


@pytest.mark.parametrize("waiter", WAITERS, ids=lambda waiter: Path(waiter.program).name)
class TestWaiter:
    @pytest.mark.parametrize("end", ["raise SystemExit(7)", "pass", "import os; os.kill(os.getpid(), 15)",
                                     "import os; os.kill(os.getpid(), 9)", "import os; os.abort()"])  # fmt: skip
    def test_it_ends_as_the_job_ends(self, waiter: Waiter, end: str) -> None:
        alone = subprocess.run([sys.executable, "-c", end]).returncode
        with start(waiter, end) as process:
            assert process.wait(30) == alone

    def test_signals_reach_the_job_and_the_first_that_asks_it_to_end_is_noted(self, waiter: Waiter) -> None:
        job = """
        import signal, sys
        seen = []
        for number in (1, 2, 3, 10, 15, 36):
            signal.signal(number, lambda number, _: seen.append(number))
        print("ready", flush=True)
        while len(seen) < 6:
            signal.pause()
        print(*sorted(seen), flush=True)
        sys.exit(5)
        """
        with start(waiter, job, SHOWS) as process:
            assert process.stdout is not None and process.stdout.readline() == "ready\n"
            wait_until(lambda: "waiter" in Path(f"/proc/{process.pid}/cmdline").read_text(), "the waiter")
            began = time.time()
            for number in (10, 36, 3, 15, 2, 1):
                process.send_signal(number)
            assert process.stdout.readline() == "1 2 3 10 15 36\n"
            status, asked = process.stdout.readline().split()
            assert os.waitstatus_to_exitcode(int(status)) == 5
            assert began - 1 < int(asked) / 1e9 < time.time() + 1
            assert process.wait(30) == 0

    def test_it_ends_as_the_job_where_what_follows_cannot_be_started(self, waiter: Waiter) -> None:
        with start(waiter, "raise SystemExit(6)", ("/nowhere/program",)) as process:
            assert process.wait(30) == 6

    def test_a_job_that_ended_before_anybody_waited_is_not_waited_for(self, waiter: Waiter) -> None:
        """SIGCHLD came before the waiter was there."""
        code = STARTS.replace(
            "os.execv(program", "import time; os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)\nos.execv(program"
        )
        code = code.format(program=waiter.program, arguments=waiter.arguments, command=(), job="raise SystemExit(8)")
        assert subprocess.run([sys.executable, "-c", code], timeout=30).returncode == 8


def test_the_smallest_waiter_holds_next_to_nothing() -> None:
    waiter = WAITERS[0]
    if waiter.arguments:
        pytest.skip("no waiter is compiled for this machine")
    with start(waiter, "import time; print('ready', flush=True); time.sleep(60)") as process:
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
        wait_until(lambda: Path(f"/proc/{process.pid}/cmdline").read_text().startswith("waiter"), "the waiter")
        lines = Path(f"/proc/{process.pid}/smaps_rollup").read_text().splitlines()
        private = sum(int(line.split()[1]) for line in lines if line.startswith("Private_"))
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == -signal.SIGTERM
    assert private < 64, f"{private} KiB"


def test_the_programs_were_compiled_from_the_source() -> None:
    digest = hashlib.sha256((FOLDER / "waiter.c").read_bytes()).hexdigest()
    assert digest.startswith(SOURCE_OF_PROGRAMS), f"compile them again with `make waiter`, and write {digest[:16]} here"
    assert all(os.access(program, os.X_OK) for program in FOLDER.glob("waiter-*"))
