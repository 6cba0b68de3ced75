"""Looks at real processes: which ranks are watched from when on, and what holds up nothing."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest

from pharoah._alert import Alert
from pharoah.local_alerts import Condition, Detector, View
from pharoah.sidecar import free_space as free_space_module
from pharoah.sidecar import local_watch as local_watch_module
from pharoah.sidecar.local_watch import LocalWatch
from pharoah_protocol.agent_messages import SignalReading
from pharoah_protocol.incident_states import CONFIRMED
from pharoah_protocol.typed_json import to_json
from pharoah_protocol.vocabulary import Resource
from tests.harness.until import until


def test_a_real_process_that_is_stopped_raises_an_alert() -> None:
    asyncio.run(_stopped_process())


async def _no_signals() -> tuple[SignalReading, ...]:
    return ()


def local_watch(deliver: Callable[[Alert], None], **others: Any) -> LocalWatch:
    return LocalWatch(b"run", deliver, lambda: None, lambda: False, _no_signals, distributed=False, **others)


class Noting:
    """A detector that notes the views of each of its beginnings."""

    wants_lateness = False
    begun: ClassVar[list[list[View]]] = []

    def __init__(self) -> None:
        self.views: list[View] = []
        Noting.begun.append(self.views)

    def look(self, view: View) -> Iterator[Condition]:
        self.views.append(view)
        yield from ()


@pytest.fixture
def noting(monkeypatch: pytest.MonkeyPatch) -> list[Detector]:
    """Two detectors; the first one judges steps."""
    Noting.begun = []
    both = [Detector("steps", "notes", Noting, judges_steps=True), Detector("others", "notes", Noting)]
    monkeypatch.setattr(local_watch_module, "detectors", lambda: both)
    return both


def test_detectors_begin_anew_with_another_program_of_a_rank(noting: list[Detector]) -> None:
    """A pipeline that trains twice: the steps of the second training are no change of those of the first."""

    async def inside() -> None:
        watch = local_watch(lambda _: None, look_seconds=0.01)
        first, second = (subprocess.Popen(["sleep", "600"]) for _ in range(2))
        try:
            watch.expected_step_seconds = 0.5
            watch.rank_connected(0, first.pid)
            watch.note_step(0, first.pid, [10**9])
            await until(lambda: any(view.steps for view in Noting.begun[1]), "steps of the first", 20)
            watch.rank_connected(0, second.pid)
            watch.note_step(0, second.pid, [5 * 10**9])
            await asyncio.sleep(0.1)
            assert len(Noting.begun) == 2 and not [v for v in Noting.begun[1] if v.steps.get(0) == [5.0]], "a helper"
            assert watch.expected_step_seconds == 0.5
            first.kill()
            first.wait()
            watch.rank_connected(0, second.pid)
            watch.note_step(0, second.pid, [9 * 10**9])
            await until(lambda: len(Noting.begun) == 4, "a new beginning", 20)
            assert watch.expected_step_seconds == 0.0, "it was predicted for the first program"
            await until(lambda: any(view.steps.get(0) == [9.0] for view in Noting.begun[3]), "steps", 20)
        finally:
            watch.stop()
            for process in (first, second):
                process.kill()
                process.wait()

    asyncio.run(inside())


def test_the_times_of_another_thread_that_steps_are_watched(noting: list[Detector]) -> None:
    """Nothing begins anew: what it had computed before its first step does not count."""

    async def inside() -> None:
        watch = local_watch(lambda _: None, look_seconds=0.01)
        go, done, leave = threading.Event(), threading.Event(), threading.Event()

        def compute() -> None:
            go.wait()
            began = time.thread_time()
            while time.thread_time() - began < 1.0:
                pass
            done.set()
            leave.wait()  # the kernel forgets the times of a thread that has ended, also those since the newest look

        thread = threading.Thread(target=compute)
        thread.start()
        try:
            watch.rank_connected(0, os.getpid())
            views = Noting.begun[1]
            watch.note_step(0, os.getpid(), [10**9], thread.native_id or 0)
            await until(lambda: bool(views), "a look", 20)
            first = views[-1].processes[0].main_computed_seconds
            go.set()
            await asyncio.to_thread(done.wait)
            looks = len(views)
            await until(lambda: len(views) > looks + 2, "later looks", 20)
            assert views[-1].processes[0].main_computed_seconds - first >= 1.0
        finally:
            go.set()
            leave.set()
            watch.stop()
            thread.join()
        assert len(Noting.begun) == 2

    asyncio.run(inside())


def test_what_looks_at_the_machine_goes_on_when_a_rank_starts_again(monkeypatch: pytest.MonkeyPatch) -> None:
    Noting.begun = []
    both = [Detector("job", "notes", Noting), Detector("machine", "notes", Noting, of_machine=True)]
    monkeypatch.setattr(local_watch_module, "detectors", lambda: both)

    async def inside() -> None:
        watch = local_watch(lambda _: None, look_seconds=0.01)
        first, second = (subprocess.Popen(["sleep", "600"]) for _ in range(2))
        try:
            watch.rank_connected(0, first.pid)
            await until(lambda: len(Noting.begun[1]) >= 3, "looks", 20)
            first.kill()
            first.wait()
            watch.rank_connected(0, second.pid)
            watch.note_step(0, second.pid, [10**9])
            await until(lambda: any(view.steps for view in Noting.begun[1]), "its steps", 20)
            assert len(Noting.begun) == 3, "the detector of the job has begun anew"
        finally:
            watch.stop()
            for process in (first, second):
                process.kill()
                process.wait()

    asyncio.run(inside())


def test_folders_of_checkpoints_that_come_and_go_are_one_file_system(tmp_path: Path) -> None:
    known: list[str] = []
    for number in range(40):
        folder = tmp_path / f"checkpoint-{number}"
        folder.mkdir()
        with (folder / "model.pt").open("w"):
            known = free_space_module._folders({0: os.getpid()}, known)
        folder.rename(tmp_path / f"done-{number}")
    assert all(Path(folder).is_mount() for folder in known) and len(set(known)) == len(known) <= 4


def test_steps_of_a_job_that_serves_are_not_judged(noting: list[Detector]) -> None:
    async def inside() -> None:
        watch = local_watch(lambda _: None, serves=lambda: True, look_seconds=0.01)
        try:
            watch.rank_connected(0, os.getpid())
            await until(lambda: len(Noting.begun[1]) >= 3, "looks", 20)
            assert not Noting.begun[0]
        finally:
            watch.stop()

    asyncio.run(inside())


def test_steps_are_not_kept_while_nobody_looks(noting: list[Detector], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_watch_module, "MAX_STEPS", 1000)

    async def inside() -> None:
        watch = local_watch(lambda _: None, look_seconds=600.0)
        try:
            watch.rank_connected(0, os.getpid())
            for _ in range(100):
                watch.note_step(0, os.getpid(), [10**6] * 100)
            assert len(watch._steps[0]) == 1000
        finally:
            watch.stop()

    asyncio.run(inside())


def test_a_file_system_that_does_not_answer_holds_up_no_other_look(
    noting: list[Detector], monkeypatch: pytest.MonkeyPatch
) -> None:
    go_on = threading.Event()
    monkeypatch.setattr(free_space_module, "mount_point_of", lambda folder: go_on.wait(60) and folder)

    async def inside() -> None:
        watch = local_watch(lambda _: None, look_seconds=0.01)
        try:
            watch.rank_connected(0, os.getpid())
            await until(lambda: len(Noting.begun[1]) >= 3, "looks", 20)
        finally:
            go_on.set()
            watch.stop()

    asyncio.run(inside())


async def _stopped_process() -> None:
    """The thread, the kernel's files and the detectors together; looks come fast."""
    alerts: asyncio.Queue[Alert] = asyncio.Queue()
    watch = local_watch(alerts.put_nowait, look_seconds=0.01)
    process = subprocess.Popen(["sleep", "600"])
    try:
        watch.rank_connected(3, process.pid)
        process.send_signal(signal.SIGSTOP)
        async with asyncio.timeout(60):
            alert = await alerts.get()
        assert alert.state is CONFIRMED
        assert alert.node_alias == "this node, rank 3"
        assert alert.resource is Resource.COMPUTE
        assert max(map(len, str(alert).splitlines()[1:])) <= 80
        assert Alert.from_dict(json.loads(to_json(vars(alert)))) == alert
    finally:
        watch.stop()
        process.kill()
        process.wait()
