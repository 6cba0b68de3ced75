"""One sidecar per node and job, also after one was killed."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import pytest

from pharoah import _runtime_folder, _sidecar_start
from pharoah._settings import Settings
from pharoah._sidecar_start import wait_for
from pharoah_protocol.local_messages import encode
from pharoah_protocol.rank_messages import RunStarted, Status
from pharoah_system.local_sockets import peer_credentials
from tests.harness.until import wait_until


def sidecar_behind(path: str) -> int:
    """The process of the sidecar that listens there. A connection without a message must not end it."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as trial:
        trial.connect(path)
        return peer_credentials(trial).process


def exit_code(sidecar: int) -> int:
    """The exit code of a sidecar: this process adopts all orphans (`tests/conftest.py`)."""
    ended: list[int] = []

    def has_ended() -> bool:
        waited, status = os.waitpid(sidecar, os.WNOHANG)
        ended.extend([os.waitstatus_to_exitcode(status)] if waited else [])
        return bool(ended)

    wait_until(has_ended, "the sidecar to end")
    return ended[0]


def visit(path: str) -> None:
    """Be the only rank of a sidecar, for a moment."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as rank:
        rank.connect(path)
        rank.send(encode(Status(), wants_answer=True))
        assert b"run_id" in rank.recv(1 << 16)


def test_a_killed_sidecar_is_followed_by_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    first = _sidecar_start.sidecar_of_this_node(Settings())
    sidecars = [sidecar_behind(first)]
    assert _sidecar_start.sidecar_of_this_node(Settings()) == first, "looking must not end it"
    assert sidecar_behind(first) == sidecars[0]
    os.kill(sidecars[0], signal.SIGKILL)
    assert exit_code(sidecars[0]) == -signal.SIGKILL
    for _ in range(2):
        assert _sidecar_start.sidecar_of_this_node(Settings()) == first
        sidecars.append(sidecar_behind(first))
        visit(first)
        assert exit_code(sidecars[-1]) == 0
        assert not Path(first).parent.exists(), "the last sidecar removes its folder"
    assert len(set(sidecars)) == 3


def test_a_detached_sidecar_that_cannot_listen_is_noticed_before_the_time_is_over(tmp_path: Path) -> None:
    path = tmp_path / "sidecar.sock"
    path.with_suffix(".new").touch()  # it cannot bind this name
    with (
        _sidecar_start.start_detached_sidecar(path, Settings()) as sidecar,
        pytest.raises(ChildProcessError, match="ended before it listened"),
    ):
        wait_for(path, sidecar, 60)


def test_a_detached_sidecar_that_cannot_be_started_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONHOME", str(tmp_path))  # the interpreter does not find its standard library there
    path = tmp_path / "sidecar.sock"
    with (
        _sidecar_start.start_detached_sidecar(path, Settings()) as sidecar,
        pytest.raises(ChildProcessError, match="ended with status 1"),
    ):
        wait_for(path, sidecar, 60)


SILENT = """
import threading
import pharoah.sidecar.__main__ as sidecar
from pharoah.comparison.history import History
sidecar.LEAVING_SECONDS = 0.5
History.write = lambda *_: threading.Event().wait()
sidecar.main()
"""
"""A sidecar whose home never answers."""


def test_a_sidecar_ends_although_the_home_of_its_user_does_not_answer(tmp_path: Path) -> None:
    path = tmp_path / "own" / "sidecar.sock"
    path.parent.mkdir(mode=0o700)
    settings = Settings(state_folder=str(tmp_path / "state"), shutdown_timeout_seconds=0.5)
    command = [sys.executable, "-c", SILENT, str(path), json.dumps(asdict(settings)), ""]
    with subprocess.Popen(command, cwd=path.parent) as process:
        wait_for(path, process, 30)
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as rank:
            rank.connect(str(path))
            rank.send(encode(RunStarted("python train.py", {})))
            rank.send(encode(Status(), wants_answer=True))
            assert rank.recv(1 << 16)
        assert process.wait(30) == 0
    assert not path.exists()


def test_a_long_folder_for_temporary_files_does_not_keep_the_sidecar_from_listening(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    long = tmp_path / ("a" * 60) / ("b" * 60)
    long.mkdir(parents=True)
    monkeypatch.setenv("TMPDIR", str(long))
    assert _runtime_folder.socket_bases()[0] == Path("/tmp")
    folder = _runtime_folder.private_folder()
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as server:
            server.bind(str(folder / "sidecar.sock"))
    finally:
        shutil.rmtree(folder)
