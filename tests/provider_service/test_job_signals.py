"""Which signals of a node its jobs see, when the driver of its GPUs fails, hangs or loses one of them."""

from __future__ import annotations

import asyncio
import os
import socket
import threading

import pytest

from pharoah_provider.agent.exporter_source import ExporterSource
from pharoah_provider.agent.job_signals import USERS_HOLD_SECONDS, JobSignals
from pharoah_provider.agent.known_jobs import KnownJobs, Owner
from pharoah_provider.agent.signal_buffer import SignalBuffer
from pharoah_provider.agent.signals import AGENT_SIGNALS, Reading, Resource, _nvml
from pharoah_provider.agent.signals._devices import devices_from
from pharoah_provider.agent.telemetry import Telemetry
from tests.harness.agent_signals import signal_of


def test_a_gpu_that_is_lost_is_shown_to_the_job_that_it_had_and_one_that_never_answered_to_nobody() -> None:
    now, own = [0.0], os.getpid()
    users: dict[str, set[int] | None] = {"gpu0": {own}, "gpu1": {own}, "gpu2": None}
    signals = [signal_of(name="hot", read=lambda: [Reading(1.0, f"gpu{gpu}") for gpu in range(3)])]
    buffer = SignalBuffer(Telemetry(signals=signals))
    buffer.sample()
    shown = JobSignals(buffer, KnownJobs(), {"hot": signals[0]}, lambda: users, clock=lambda: now[0])

    async def seen() -> set[str]:
        ours, theirs = socket.socketpair()
        with ours, theirs:
            return {one.device for one in (await shown.answer(theirs)).readings}

    async def inside() -> None:
        assert await seen() == {"gpu0", "gpu1"}
        users.update(gpu0=None, gpu1={1})
        assert await seen() == {"gpu0", "gpu1"}, "the answer holds for a second"
        now[0] = USERS_HOLD_SECONDS
        assert await seen() == {"gpu0"}

    asyncio.run(inside())


def test_a_driver_that_hangs_delays_no_other_answer_and_keeps_one_thread() -> None:
    asked, go_on = [0], threading.Event()

    def hangs() -> dict[str, set[int] | None]:
        asked[0] += 1
        go_on.wait(30.0)
        return {"gpu0": {os.getpid()}}

    signals = [signal_of(name="hot", read=lambda: [Reading(1.0, "gpu0")])]
    buffer = SignalBuffer(Telemetry(signals=signals))
    buffer.sample()
    shown = JobSignals(buffer, KnownJobs(), {"hot": signals[0]}, hangs)

    async def inside() -> None:
        ours, theirs = socket.socketpair()
        with ours, theirs:
            for _ in range(20):
                with pytest.raises(TimeoutError):
                    await asyncio.wait_for(shown.answer(theirs), 0.01)
            go_on.set()
            assert (await shown.answer(theirs)).readings and asked == [1]

    asyncio.run(inside())


def test_a_driver_that_fails_shows_no_device_to_anybody() -> None:
    def fails() -> dict[str, set[int] | None]:
        raise OSError("driver/library version mismatch")

    signals = [signal_of(name="hot", read=lambda: [Reading(1.0, "gpu0"), Reading(1.0)])]
    buffer = SignalBuffer(Telemetry(signals=signals))
    buffer.sample()
    ours, theirs = socket.socketpair()
    with ours, theirs:
        answer = asyncio.run(JobSignals(buffer, KnownJobs(), {"hot": signals[0]}, fails).answer(theirs))
    assert [one.device for one in answer.readings] == [""]


def test_a_driver_that_fails_for_a_while_is_logged_once_and_again_when_it_answers(
    caplog: pytest.LogCaptureFixture,
) -> None:
    now, broken = [0.0], True

    def users() -> dict[str, set[int] | None]:
        if broken:
            raise OSError("driver/library version mismatch")
        return {}

    shown = JobSignals(SignalBuffer(Telemetry(signals=[])), KnownJobs(), {}, users, clock=lambda: now[0])

    async def ask_often() -> None:
        ours, theirs = socket.socketpair()
        with ours, theirs:
            for _ in range(20):
                await shown.answer(theirs)
                now[0] += USERS_HOLD_SECONDS

    asyncio.run(ask_often())
    broken = False
    asyncio.run(ask_often())
    failed, answers = (record.getMessage() for record in caplog.records if record.name == "pharoah.agent")
    assert failed == "the driver does not say who computes: OSError: driver/library version mismatch"
    assert answers == "the driver says who computes"


def test_how_full_a_gpu_is_warns_only_the_job_that_has_it_alone() -> None:
    readings = [Reading(0.5, "gpu0"), Reading(0.5, "gpu1")]
    signal = signal_of(name="full", resource=Resource.MEMORY_CAPACITY, used_share=True, read=lambda: readings)
    buffer = SignalBuffer(Telemetry(signals=[signal]))
    buffer.sample()
    users = {"gpu0": {os.getpid()}, "gpu1": {os.getpid(), 1}}
    shown = JobSignals(buffer, KnownJobs(), {"full": signal}, lambda: users)

    async def inside() -> None:
        ours, theirs = socket.socketpair()
        with ours, theirs:
            answer = await shown.answer(theirs)
        assert {one.device: one.used_share for one in answer.readings} == {"gpu0": True, "gpu1": False}

    asyncio.run(inside())


def test_where_nobody_says_who_computes_no_job_sees_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """An exporter gives the signals, and the driver does not answer. Cards beside GPUs are for all jobs."""
    monkeypatch.setattr(_nvml, "_nvml", lambda: None)
    answer = "\n".join(f'DCGM_FI_DEV_GPU_TEMP{{gpu="{gpu}"}} 41' for gpu in (0, 1, 12)) + "\n"
    links = [Reading(0.0), *(Reading(0.0, name) for name in ("eth0", "gpu0rdma0", "sda"))]
    signals = {one.name: one for one in (AGENT_SIGNALS["gpu_temperature_celsius"], signal_of(read=lambda: links))}
    buffer = SignalBuffer(Telemetry(signals=list(signals.values())))
    with devices_from(ExporterSource(lambda: answer, "a test")):
        buffer.sample()
    assert {"gpu0", "gpu1", "gpu12"} < set(buffer.devices())
    ours, theirs = socket.socketpair()
    with ours, theirs:
        shown = asyncio.run(JobSignals(buffer, KnownJobs(), signals).answer(theirs))
    assert [one.device for one in shown.readings] == ["", "eth0", "gpu0rdma0", "sda"]


def test_a_job_that_asks_without_a_pause_has_its_processes_looked_for_once_a_second() -> None:
    now, looks = [0.0], list[Owner]()

    class Jobs(KnownJobs):
        def processes_of(self, owner: Owner) -> set[int]:
            looks.append(owner)
            return super().processes_of(owner)

    signals = [signal_of(name="hot", read=lambda: [Reading(1.0, "gpu0")])]
    buffer = SignalBuffer(Telemetry(signals=signals))
    buffer.sample()
    users = {"gpu0": {os.getpid()}}
    shown = JobSignals(buffer, Jobs(), {"hot": signals[0]}, lambda: users, clock=lambda: now[0])

    async def inside() -> None:
        ours, theirs = socket.socketpair()
        with ours, theirs:
            for seconds in (0.0, 0.9 * USERS_HOLD_SECONDS, USERS_HOLD_SECONDS):
                now[0] = seconds
                answers = await asyncio.gather(*(shown.answer(theirs) for _ in range(10)))
                assert all(one.device == "gpu0" for answer in answers for one in answer.readings)
                assert all(answer.readings for answer in answers)
                assert len(looks) == (1 if seconds < USERS_HOLD_SECONDS else 2)

    asyncio.run(inside())
    assert {owner.user for owner in looks} == {os.getuid()}
