"""Shared by all tests: our own guard raises again, nothing of the developer's environment gets in, nothing is left."""

from __future__ import annotations

import asyncio
import gc
import os
import tempfile
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from pharoah import _guard
from pharoah_provider import shared_votes
from pharoah_system.parent_process import adopt_orphans
from tests.harness.leaks import Belongings, LoopCheck
from tests.harness.limits_of_tests import pytest_timeout_set_timer as pytest_timeout_set_timer
from tests.harness.plain_port import plain_port as plain_port
from tests.harness.quick_messages import quick_messages as quick_messages

# A machine may be busy: no test fails because an example took long.
settings.register_profile("pharoah", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("pharoah")


def pytest_configure() -> None:
    adopt_orphans()  # so that the check below finds sidecars whose job has ended


def pytest_collection_finish() -> None:
    gc.collect()
    gc.freeze()  # what the imports have made stays: a collection after a test looks at what the test has made


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    if config.getvalue("dist") != "loadgroup":
        return None
    from tests.harness.groups import GroupScheduling

    return GroupScheduling(config, log)


def pytest_sessionfinish() -> None:
    gc.unfreeze()


@pytest.fixture(scope="session", autouse=True)
def temporary_files_of_this_worker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Tests in parallel must not find each other's sockets: their paths are made from the system's temporary folder."""
    folder = tmp_path_factory.getbasetemp() / "tmp"
    folder.mkdir()
    os.environ["TMPDIR"] = tempfile.tempdir = str(folder)
    yield
    tempfile.tempdir = None


@pytest.fixture(autouse=True)
def nothing_is_left_behind(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Fail the test whose processes, threads, tasks, transports or temporary folders outlive it."""
    loops, before = LoopCheck(), Belongings.now()
    monkeypatch.setattr(asyncio, "run", loops.run)
    yield
    loops.collect_transports()
    left = [*loops.left, *before.left_behind()]
    assert not left, "this test left behind: " + "; ".join(left)


@pytest.fixture(autouse=True)
def usual_file_modes() -> Iterator[None]:
    """Commands that a test runs in its own process set a mask for new files; the next test must not inherit it."""
    before = os.umask(0o022)
    yield
    os.umask(before)


@pytest.fixture(autouse=True)
def faults_are_failures(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    monkeypatch.setattr(_guard, "RAISE", True)
    for name in list(os.environ):
        if name.startswith("PHAROAH_") or name in ("DO_NOT_TRACK", "XDG_RUNTIME_DIR"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("PHAROAH_STATE_DIR", str(tmp_path_factory.getbasetemp() / "state"))
    yield


@pytest.fixture
def minute_long_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs count as if a minute had passed since they joined; they must have reported of a minute (`may_vote`)."""
    least = shared_votes.MIN_SECONDS
    monkeypatch.setattr(shared_votes, "has_lasted", lambda run, reported_seconds, _: reported_seconds >= least)
