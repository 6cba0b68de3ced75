"""The free space of file systems, of which one does not answer."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pharoah.local_alerts._readings import Space
from pharoah.sidecar import free_space
from pharoah.sidecar.free_space import FileSystems
from tests.harness.until import wait_until


@pytest.fixture
def go_on() -> Iterator[threading.Event]:
    """Set: the server that was away answers."""
    event = threading.Event()
    yield event
    event.set()


@pytest.fixture
def file_systems(monkeypatch: pytest.MonkeyPatch, go_on: threading.Event) -> Iterator[FileSystems]:
    """Three folders of two file systems, and one whose server is away; what is free grows with each reading."""
    readings = 0

    def space_of(folder: str) -> Space | None:
        nonlocal readings
        if folder == "/away":
            go_on.wait(60)
        readings += 1
        return None if folder == "/gone" else Space({"/data": 1, "/again": 1}.get(folder, 2), readings)

    folders = ["/data", "/away", "/again", "/gone"]
    monkeypatch.setattr(free_space, "space_of", space_of)
    monkeypatch.setattr(free_space, "_folders", lambda processes, known: folders)
    monkeypatch.setattr(free_space, "SILENT_SECONDS", 0.2)
    one = FileSystems(dict, look_seconds=0.01)
    one.start()
    yield one
    go_on.set()
    one.stop()


def test_a_file_system_that_does_not_answer_delays_no_other(file_systems: FileSystems, go_on: threading.Event) -> None:
    def read(silent: set[str], *folders: str) -> Callable[[], bool]:
        """Whether the other folders are read: each file system once, and none that is gone."""
        return lambda: (file_systems.newest().silent, list(file_systems.newest().free_bytes)) == (silent, [*folders])

    wait_until(read({"/away"}, "/data"), "the silent one", 20)
    wait_until(lambda: file_systems.newest().free_bytes.get("/data", 0) > 100, "more readings", 20)
    go_on.set()
    wait_until(read(set(), "/data", "/away"), "the answer", 20)


def test_the_file_systems_of_this_process_are_found(tmp_path: Path) -> None:
    one = FileSystems(lambda: {0: os.getpid()}, look_seconds=0.01)
    one.start()
    try:
        wait_until(lambda: bool(one.newest().free_bytes), "the file systems", 20)
        assert all(Path(folder).is_mount() for folder in one.newest().free_bytes)
    finally:
        one.stop()
