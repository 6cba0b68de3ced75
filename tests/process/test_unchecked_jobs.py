"""A job that is not checked, because its user wants no check or something of ours fails: its verdict says so."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from pharoah._settings import Settings
from pharoah.cli import _common, _preparation

UNCHECKED = [{"PHAROAH_MODE": "disabled"}, {"PHAROAH_MODE": "dryrun"}, {"DO_NOT_TRACK": "1"}]
OLD = '{"status": "compatible"}\n'
"""What an earlier start has left."""


def pharoah_run(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pharoah", "run", *arguments, "--", "echo", "ran"]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, env={**os.environ, **variables})


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "verdict.json"
    path.write_text(OLD)
    return path


@pytest.mark.parametrize("variables", UNCHECKED, ids=str)
def test_the_verdict_of_an_earlier_start_does_not_stay(file: Path, variables: dict[str, str]) -> None:
    done = pharoah_run("--verdict-file", str(file), **variables)
    assert (done.returncode, done.stdout, done.stderr) == (0, "ran\n", "")
    written = json.loads(file.read_text())
    mode = variables.get("PHAROAH_MODE", "disabled")
    assert (written["status"], written["reason"]) == ("unknown", f"mode={mode}: the job is not checked")


@pytest.mark.parametrize("variables", UNCHECKED, ids=str)
@pytest.mark.parametrize(("option", "code"), [("--strict", 11), ("--require-online", 12)])
def test_a_job_that_needs_a_verdict_does_not_start(variables: dict[str, str], option: str, code: int) -> None:
    done = pharoah_run(option, **variables)
    assert (done.returncode, done.stdout) == (code, "")
    assert f"not started (gate=warn, exit code {code})" in done.stderr


def fails(*_: object, **_options: object) -> Any:
    raise OSError("no room for a sidecar")


def options(*words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    _common.add_check_options(parser)
    return parser.parse_args(words)


def test_a_check_that_fails_leaves_its_reason(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_common, "sidecar", fails)
    prepared = _preparation.prepare(["true"], options(), Settings(verdict_file=str(file)))
    assert prepared.exit_code == 0 and "starts without it" in prepared.words
    written = json.loads(file.read_text())
    assert (written["status"], written["reason"]) == ("unknown", "no room for a sidecar")


def test_a_folder_that_hangs_does_not_keep_the_job_from_starting(monkeypatch: pytest.MonkeyPatch) -> None:
    go_on, written = threading.Event(), threading.Event()

    def hangs(*_: object) -> None:
        go_on.wait()
        written.set()

    monkeypatch.setattr(_common, "sidecar", fails)
    monkeypatch.setattr(_common, "write_verdict", hangs)
    monkeypatch.setattr(_preparation, "WRITING_SECONDS", 0.01)
    prepared = _preparation.prepare(["true"], options(), Settings(verdict_file="/far/away"))
    assert prepared.exit_code == 0 and not written.is_set()
    go_on.set()
    assert written.wait(5)
