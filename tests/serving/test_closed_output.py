"""Commands end quietly when nobody reads their output any more, and hide no other broken pipe."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

COMMANDS = {
    "agent": "from pharoah_provider.agent.cli import main; main(['signals'])",
    "provider": "from pharoah_provider.cli import main; main(['registries', '--markdown'])",
}


def run(source: str, output: int, unbuffered: str = "") -> tuple[int, str]:
    environment = os.environ | {"PYTHONUNBUFFERED": unbuffered}
    command = [sys.executable, "-c", source]
    done = subprocess.run(command, stdout=output, stderr=subprocess.PIPE, text=True, timeout=120, env=environment)
    return done.returncode, done.stderr


def closed_pipe(source: str, unbuffered: str = "") -> tuple[int, str]:
    """What a program does whose standard output nobody reads."""
    with subprocess.Popen(["true"], stdin=subprocess.PIPE) as reader:
        reader.wait()
        assert reader.stdin is not None
        return run(source, reader.stdin.fileno(), unbuffered)


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_whose_output_nobody_reads_ends_without_an_error(command: str) -> None:
    code, errors = closed_pipe(f"import sys; {COMMANDS[command]}; sys.exit(0)")
    assert (code, errors) == (0, "")


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("lines", [1, 100_000])
def test_little_and_much_output(lines: int, unbuffered: str) -> None:
    source = f"""
from pharoah_serving.closed_output import end_when_output_is_closed
with end_when_output_is_closed():
    for _ in range({lines}):
        print("a line")
"""
    assert closed_pipe(source, unbuffered) == (0, "")


def test_a_pipe_that_is_not_the_output_is_an_error() -> None:
    source = """
from pharoah_serving.closed_output import end_when_output_is_closed
with end_when_output_is_closed():
    print("a line")
    raise BrokenPipeError("a socket")
"""
    code, errors = run(source, subprocess.DEVNULL)
    assert code == 1 and "BrokenPipeError: a socket" in errors


def test_a_full_disk_is_an_error() -> None:
    source = """
from pharoah_serving.closed_output import end_when_output_is_closed
with end_when_output_is_closed():
    print("a line")
"""
    with Path("/dev/full").open("w") as full:
        code, errors = run(source, full.fileno())
    assert code != 0 and "No space left on device" in errors
