"""A job that is asked to end was cancelled, whatever its launcher makes of that: real launchers, a real terminal."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import signal
import subprocess
import sys
import termios
from collections.abc import Iterator
from pathlib import Path

import pytest

TRAIN = """
import pathlib, sys, torch
model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
step = 0
while True:
    model(torch.randn(4, 8)).pow(2).mean().backward()
    optimizer.step()
    step += 1
    if step == 10:
        pathlib.Path(sys.argv[1]).write_text("trains")
"""
RANKS = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "1"]
CTRL_C = b"\x03"


class Terminal:
    """A terminal for one session."""

    def __init__(self) -> None:
        self._keys, self._screen = pty.openpty()

    def start(self, *command: str, **variables: str) -> subprocess.Popen[bytes]:
        """A program in the foreground of this terminal. Its standard input is another one, as in a shell's pipe."""
        return subprocess.Popen(
            [sys.executable, *command],
            env={**os.environ, **variables},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            preexec_fn=self._take,
        )

    def _take(self) -> None:
        """Become the program of the terminal. Tests that run in the background ignore Ctrl-C, and so would a job."""
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        fcntl.ioctl(self._screen, termios.TIOCSCTTY, 0)

    def type(self, keys: bytes) -> None:
        os.write(self._keys, keys)

    def close(self) -> None:
        os.close(self._keys)
        os.close(self._screen)


@pytest.fixture
def terminal() -> Iterator[Terminal]:
    one = Terminal()
    yield one
    one.close()


@pytest.mark.parametrize("asked", ["by SIGTERM", "by Ctrl-C"])
def test_a_job_of_torchrun_that_is_asked_to_end_was_cancelled(tmp_path: Path, terminal: Terminal, asked: str) -> None:
    (tmp_path / "train.py").write_text(TRAIN)
    trains = tmp_path / "trains"
    os.mkfifo(trains)
    job = [sys.executable, *RANKS, str(tmp_path / "train.py"), str(trains)]
    variables = {"PHAROAH_STATE_DIR": str(tmp_path / "state"), "PHAROAH_DRY_RUN_TIMEOUT_S": "0.05"}
    with terminal.start("-m", "pharoah", "run", "--", *job, **variables) as process:
        assert trains.read_text() == "trains"  # waits until the job has opened the pipe
        if asked == "by SIGTERM":
            process.send_signal(signal.SIGTERM)
        else:
            terminal.type(CTRL_C)
        assert process.wait(60) == 1, "torchrun leaves with an exit code that shows no signal"
    [record] = [json.loads(path.read_text()) for path in (tmp_path / "state").rglob("*.json")]
    assert record["run"]["state"] == "cancelled", record["run"]


@pytest.mark.parametrize("has_terminal", [True, False])
def test_the_terminal_of_the_session_is_asked_and_not_standard_input(terminal: Terminal, has_terminal: bool) -> None:
    source = "from pharoah.cli import _job_process; print(_job_process._in_foreground())"
    if has_terminal:
        with terminal.start("-c", source) as process:
            assert process.stdout and process.stdout.read() == b"True\n"
    else:
        done = subprocess.run([sys.executable, "-c", source], capture_output=True, start_new_session=True)
        assert done.stdout == b"False\n"
