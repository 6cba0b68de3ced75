"""The last minutes and the last day of a node's signals, in the memory of its agent."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pharoah_protocol.signal_features import SignalHistory, SignalKind
from pharoah_provider.agent import signal_buffer
from pharoah_provider.agent.signal_buffer import KEPT_MINUTES, KEPT_SECONDS, Series, SignalBuffer
from pharoah_provider.agent.signals import AgentSignal, Reading
from pharoah_provider.agent.telemetry import Telemetry
from tests.harness.agent_signals import signal_of
from tests.harness.until import until

MIDNIGHT = 1_800_000_000 // 60 * 60
"""The beginning of some minute."""


class Clock:
    """Unix seconds that a test sets."""

    def __init__(self, now: float = MIDNIGHT) -> None:
        self.now = float(now)

    def __call__(self) -> float:
        return self.now


def level(read: Callable[[], Iterable[Reading]], name: str = "level", **given: float) -> AgentSignal:
    return signal_of(name=name, unit="degrees", read=read, **given)


def errors(read: Callable[[], Iterable[Reading]]) -> AgentSignal:
    return signal_of(name="errors", unit="errors", kind=SignalKind.COUNTER, read=read)


def buffer_of(clock: Clock, *signals: AgentSignal) -> SignalBuffer:
    return SignalBuffer(Telemetry(clock, signals), clock)


def test_the_newest_value_of_each_signal_is_there_by_device() -> None:
    clock, count = Clock(), [5]
    buffer = buffer_of(clock, level(lambda: [Reading(clock.now - MIDNIGHT), Reading(7.0, "gpu0")]),
                       errors(lambda: [Reading(count[0], "gpu0")]))  # fmt: skip
    buffer.sample()
    assert buffer.newest() == {"level": 0.0} and buffer.newest("gpu0") == {"level": 7.0}
    clock.now, count[0] = clock.now + 1, 9
    buffer.sample()
    assert buffer.newest() == {"level": 1.0} and buffer.newest("gpu0") == {"level": 7.0, "errors": 4}
    assert buffer.newest("gpu9") == {} and buffer.devices() == ["", "gpu0"]


def test_a_device_that_is_gone_has_no_newest_value_and_keeps_its_past() -> None:
    clock, shown = Clock(), [Reading(7.0, "gpu0")]
    buffer = buffer_of(clock, level(lambda: shown))
    buffer.sample()
    shown.clear()
    for _ in range(3):
        clock.now += 1
        buffer.sample()
    assert buffer.newest("gpu0") == {}
    assert [sample.values for sample in buffer.since(MIDNIGHT)] == [{"level": 7.0}]


def test_seconds_are_kept_for_a_quarter_of_an_hour() -> None:
    clock = Clock()
    buffer = buffer_of(clock, level(lambda: [Reading(clock.now)]))
    for second in range(KEPT_SECONDS + 100):
        clock.now = MIDNIGHT + second + 0.3
        buffer.sample()
    kept = buffer.since(0)
    assert len(kept) == KEPT_SECONDS
    assert [sample.sampled_at for sample in kept] == [MIDNIGHT + 100.0 + second for second in range(KEPT_SECONDS)]
    assert [int(sample.values["level"]) for sample in kept] == [int(sample.sampled_at) for sample in kept]
    last = MIDNIGHT + KEPT_SECONDS + 99
    assert [sample.sampled_at for sample in buffer.since(last - 1)] == [last - 1.0, float(last)]
    assert buffer.since(last + 1) == []


def test_seconds_without_a_sample_are_missing_and_not_old_values() -> None:
    clock = Clock()
    buffer = buffer_of(clock, level(lambda: [Reading(clock.now)]))
    for second in (*range(KEPT_SECONDS), KEPT_SECONDS + 500):
        clock.now = MIDNIGHT + second
        buffer.sample()
    gap = [sample.sampled_at for sample in buffer.since(MIDNIGHT + KEPT_SECONDS - 1)]
    assert gap == [MIDNIGHT + KEPT_SECONDS - 1.0, MIDNIGHT + KEPT_SECONDS + 500.0]


def test_a_minute_of_the_clock_has_the_mean_of_a_level_and_the_sum_of_a_count() -> None:
    clock, count = Clock(MIDNIGHT + 30), [100]
    buffer = buffer_of(clock, level(lambda: [Reading(clock.now % 60)]), errors(lambda: [Reading(count[0])]))
    for _ in range(151):
        buffer.sample()
        clock.now, count[0] = clock.now + 1, count[0] + 2
    first, second, third = buffer.minutes_since(0)
    assert [one.sampled_at for one in (first, second, third)] == [MIDNIGHT + 60.0 * n for n in range(3)]
    assert first.values == {"level": pytest.approx(44.5), "errors": 58}, "the first reading of a counter is no count"
    assert second.values == third.values == {"level": pytest.approx(29.5), "errors": 120}
    assert buffer.minutes_since(MIDNIGHT + 61) == [third], "a minute that began before is not whole"


@given(counts=st.lists(st.integers(0, 3), min_size=1, max_size=30), step=st.sampled_from([20, 60, 130]))
def test_features_are_those_of_the_minutes(counts: list[int], step: int) -> None:
    clock, total = Clock(), [0]
    buffer = buffer_of(clock, errors(lambda: [Reading(total[0])]))
    by_minute = dict[int, float]()
    for number, count in enumerate(counts):
        total[0] += count
        buffer.sample()
        if number:
            minute = int(clock.now) // 60
            by_minute[minute] = by_minute.get(minute, 0.0) + count
        clock.now += step
    last = int(clock.now - step) // 60
    history = SignalHistory(SignalKind.COUNTER)
    for minute in range(min(by_minute, default=last), last):
        history.add(by_minute.get(minute))
    found = [one for one in buffer.features() if one.series == Series("errors", "")]
    if len(counts) > 1:
        assert found[0].features == pytest.approx(history.features())
    else:
        assert not found


def test_a_day_of_minutes_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    buffer = buffer_of(clock, level(lambda: [Reading(clock.now)]))
    for minute in range(KEPT_MINUTES + 11):
        clock.now = MIDNIGHT + 60.0 * minute
        buffer.sample()
    kept = buffer.minutes_since(0)
    assert len(kept) == KEPT_MINUTES and kept[0].sampled_at == MIDNIGHT + 600.0
    assert all(sample.values["level"] == sample.sampled_at for sample in kept)


def test_a_clock_that_is_set_back_begins_a_new_buffer() -> None:
    clock = Clock(MIDNIGHT + 1000)
    buffer = buffer_of(clock, level(lambda: [Reading(clock.now)]))
    buffer.sample()
    clock.now = MIDNIGHT
    buffer.sample()
    assert [sample.sampled_at for sample in buffer.since(0)] == [float(MIDNIGHT)]
    buffer.sample()
    assert len(buffer.since(0)) == 1, "one second has one sample"


def test_a_signal_is_read_as_often_as_it_says() -> None:
    clock, read = Clock(), list[float]()

    def slow() -> list[Reading]:
        read.append(clock.now - MIDNIGHT)
        return [Reading(1.0)]

    buffer = buffer_of(clock, level(slow, period_seconds=10.0))
    for second in range(35):
        clock.now = MIDNIGHT + second + 0.1 * (second % 3)  # a sample is never exactly on time
        buffer.sample()
    assert [int(at) for at in read] == [0, 10, 20, 30]
    assert buffer.newest() == {"level": 1.0}, "it is not old before it is due again"


def test_memory_is_bounded_by_the_number_of_series(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(signal_buffer, "MAX_SERIES", 10)
    clock = Clock()
    buffer = buffer_of(clock, level(lambda: [Reading(1.0, f"disk{number}") for number in range(30)]))
    for _ in range(3):
        buffer.sample()
        clock.now += 1
    assert len(buffer.devices()) == 10
    assert caplog.text.count("more than 10 signals") == 1


def test_ports_and_disks_leave_room_for_other_devices(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(signal_buffer, "MAX_SERIES", 10)
    clock, ports = Clock(), [Reading(1.0, f"port{number}") for number in range(30)]
    disks, gpus = [Reading(1.0, f"disk{number}") for number in range(30)], [Reading(1.0, f"gpu{n}") for n in range(5)]
    buffer = buffer_of(
        clock,
        level(lambda: ports, "fabric_errors"),
        level(lambda: disks, "disk_errors"),
        level(lambda: gpus, "gpu_hot"),
    )
    for _ in range(3):
        buffer.sample()
        clock.now += 1
    assert buffer.devices() == [*(f"gpu{number}" for number in range(5)), *(f"port{number}" for number in range(5))]
    assert caplog.text.count("more than 5 signals of ports and disks") == 1
    ports.clear()
    clock.now = MIDNIGHT - 60  # what was kept is left out
    buffer.sample()
    assert buffer.devices() == [*(f"disk{number}" for number in range(5)), *(f"gpu{number}" for number in range(5))]


def test_devices_that_come_and_go_do_not_fill_the_buffer_for_ever() -> None:
    clock = Clock()
    buffer = buffer_of(clock, level(lambda: [Reading(1.0, f"day{(clock.now - MIDNIGHT) // 86_400:.0f}")]))
    for hour in range(24 * 4):
        clock.now = MIDNIGHT + 3600.0 * hour
        buffer.sample()
    assert buffer.devices() == ["day2", "day3"]


def test_the_task_samples_in_each_second_and_ends_when_it_is_cancelled() -> None:
    clock, sampled = Clock(MIDNIGHT + 0.999), list[float]()

    def read() -> list[Reading]:
        sampled.append(clock.now)
        clock.now = math.floor(clock.now) + 1.999  # the next second begins in a millisecond
        return [Reading(1.0)]

    async def inside() -> None:
        task = asyncio.create_task(buffer_of(clock, level(read)).run())
        await until(lambda: len(sampled) >= 3, "three samples", 10)
        task.cancel()
        await asyncio.wait({task})
        assert task.cancelled()

    asyncio.run(inside())
    assert [int(at) - MIDNIGHT for at in sampled[:3]] == [0, 1, 2]
