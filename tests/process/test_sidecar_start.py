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


def test_a_killed_sidecar_is_followed_by_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started, start = [], _sidecar_start.start_sidecar

    def remembered(path: Path, settings: Settings, run_id: str = "") -> object:
        started.append(start(path, settings, run_id))
        return started[-1]

    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(_sidecar_start, "start_sidecar", remembered)
    first = _sidecar_start.sidecar_of_this_node(Settings())
    assert _sidecar_start.sidecar_of_this_node(Settings()) == first and len(started) == 1, "looking must not end it"
    os.kill(started[0].pid, signal.SIGKILL)
    started[0].wait()
    second = _sidecar_start.sidecar_of_this_node(Settings())
    assert second == first and len(started) == 2
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as rank:
        rank.connect(second)
        rank.send(encode(Status(), wants_answer=True))
        assert b"run_id" in rank.recv(1 << 16)
    assert started[1].wait(10) == 0
    assert not Path(second).parent.exists(), "the last sidecar removes its folder"
    third = _sidecar_start.sidecar_of_this_node(Settings())
    assert third == first and len(started) == 3
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as rank:
        rank.connect(third)
        rank.send(encode(Status(), wants_answer=True))
        assert rank.recv(1 << 16)
    assert started[2].wait(10) == 0


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
