"""A job starts though our own commands cannot be loaded: its command is found without their parser."""

from __future__ import annotations

import argparse
import subprocess
import sys

import pytest

from pharoah.cli import main, run

BROKEN = """
import sys
sys.modules["pharoah.cli.commands"] = None  # its import raises ImportError
from pharoah.cli import main
main.entry()
"""


def started(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", BROKEN, *words], capture_output=True, text=True)


@pytest.mark.parametrize(
    "options",
    [
        [],
        ["--"],
        ["--gate", "block"],
        ["--gate=block", "--allow-beside-job", "--nnodes", "2", "--"],
        ["--verdict", "/tmp/verdict.json"],
        ["--gpus", "8x H100", "--"],
    ],
    ids=" ".join,
)
def test_a_job_starts_whatever_options_stand_before_it(options: list[str]) -> None:
    done = started("run", *options, sys.executable, "-c", "import sys; print(sys.argv[1:])", "--strict", "--", "x")
    assert (done.returncode, done.stdout) == (0, "['--strict', '--', 'x']\n"), done.stderr
    assert "cannot be loaded" in done.stderr and "starts without it" in done.stderr


@pytest.mark.parametrize(
    "words", [["run", "--strict", "true"], ["run", "--require-onl", "--", "true"], ["check", "true"]]
)
def test_a_job_that_must_be_checked_does_not_start(words: list[str]) -> None:
    done = started(*words)
    assert done.returncode == 1 and "starts without it" not in done.stderr


def test_the_options_with_a_value_are_those_of_the_parser() -> None:
    commands = argparse.ArgumentParser().add_subparsers()
    run.add_parser(commands)
    actions = commands.choices["run"]._actions
    assert set(main._VALUED) == {
        name for action in actions if action.nargs is None for name in action.option_strings if name.startswith("--")
    }
