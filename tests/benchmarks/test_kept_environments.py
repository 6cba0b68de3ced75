"""Environments that are kept on a node: builds that are killed, and the deletion of those that nobody uses."""

from __future__ import annotations

import fcntl
import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from pharoah_benchmarks.environments import Environment, EnvironmentStore
from pharoah_benchmarks.environments.lock import this_platform
from pharoah_benchmarks.environments.store import FOLDER, use_own
from pharoah_system.own_python import own_module
from pharoah_system.process_family import lives
from tests.harness.until import wait_until

BUILD_SECONDS = 100.0
DAY_SECONDS = 86_400.0
STAMP = "pharoah-environment.json"


def kept(folder: Path, name: str, unused_days: float | None) -> Path:
    """A home that was used so long ago; None for a build that was interrupted."""
    home = folder / f"{name:0>20}"
    (home / "lib").mkdir(parents=True)
    if unused_days is not None:
        (home / STAMP).write_text("{}")
        used_at = time.time() - unused_days * DAY_SECONDS
        os.utime(home / STAMP, (used_at, used_at))
    return home


@pytest.mark.timeout(BUILD_SECONDS)
def test_pip_ends_with_the_builder_and_keeps_its_lock(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as index:
        index.settimeout(BUILD_SECONDS)
        environ = {
            **os.environ,
            FOLDER: str(tmp_path),
            "PIP_CONFIG_FILE": os.devnull,
            "PIP_INDEX_URL": f"http://127.0.0.1:{index.getsockname()[1]}/simple",
            "PIP_DEFAULT_TIMEOUT": "600",
        }
        wheel = f"peft==0.0.7 peft-0.0.7-py3-none-any.whl sha256:{'0' * 64}"
        locks = json.dumps([[f"{sys.version_info[0]}.{sys.version_info[1]}", this_platform(), [wheel]]])
        command = own_module("pharoah_benchmarks.environments.builder", "peft==0.0.7", locks)
        with subprocess.Popen(command, env=environ, cwd="/") as builder:
            connection, _ = index.accept()  # pip runs, and waits for an index that never answers
            with connection:
                (pip,) = psutil.Process(builder.pid).children()
                (lock,) = tmp_path.glob("*.lock")
                assert str(lock) in [file.path for file in pip.open_files()]
                builder.kill()
                builder.wait()
                wait_until(lambda: not lives(pip.pid), "pip to end")


@pytest.mark.timeout(BUILD_SECONDS)
def test_an_environment_that_is_asked_for_is_not_unused(tmp_path: Path) -> None:
    python = f"python=={sys.version_info.major}.{sys.version_info.minor}"
    store = EnvironmentStore(tmp_path)
    home = store.interpreter(Environment.read(python)).parents[1]
    os.utime(home / STAMP, (0.0, 0.0))
    assert store.interpreter(Environment.read(python)).exists()
    assert store.prune(DAY_SECONDS) == [] and len(store.list_finished()) == 1
    os.utime(home / STAMP, (0.0, 0.0))
    assert store.prune(DAY_SECONDS) == [home.name] and not home.exists()
    assert store.interpreter(Environment.read(python)).exists(), "it is built again"


def test_what_nobody_uses_is_deleted_with_what_interrupted_builds_have_left(tmp_path: Path) -> None:
    old, new, left = kept(tmp_path, "a", 31.0), kept(tmp_path, "b", 29.0), kept(tmp_path, "c", None)
    other = tmp_path / "notes"
    other.mkdir()
    done = subprocess.run(
        own_module("pharoah_benchmarks.environments", "prune", "--unused-days", "30"),
        env={**os.environ, FOLDER: str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
        cwd="/",
    )
    assert done.stdout.split() == ["deleted:", old.name, "deleted:", left.name]
    assert not old.exists() and not left.exists() and other.exists()
    assert (new / STAMP).exists() and [path.name for path in new.iterdir() if path.suffix] == [STAMP]


def test_an_environment_that_is_built_now_stays(tmp_path: Path) -> None:
    home = kept(tmp_path, "a", None)
    with home.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert EnvironmentStore(tmp_path).prune(DAY_SECONDS) == []
    assert EnvironmentStore(tmp_path).prune(DAY_SECONDS) == [home.name]


def test_a_process_notes_that_its_own_environment_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = kept(tmp_path, "a", 31.0)
    monkeypatch.setattr(sys, "prefix", str(home))
    use_own()
    assert EnvironmentStore(tmp_path).prune(DAY_SECONDS) == []
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    use_own()
    assert not (tmp_path / STAMP).exists(), "this process runs in no environment of a store"


@pytest.mark.parametrize("days", ["0", "nan", "inf", "-3", "soon"])
def test_a_number_of_days_that_is_none_is_refused(days: str, tmp_path: Path) -> None:
    done = subprocess.run(
        own_module("pharoah_benchmarks.environments", "prune", f"--unused-days={days}"),
        env={**os.environ, FOLDER: str(tmp_path)},
        capture_output=True,
        text=True,
        cwd="/",
    )
    assert done.returncode == 2 and f"'{days}' is not a number of days from 1" in done.stderr
