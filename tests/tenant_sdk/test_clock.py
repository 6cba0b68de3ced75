from __future__ import annotations

import threading
from pathlib import Path

import pytest
import torch

from pharoah.capture.clock import FORGOTTEN_AFTER, Cycle, StepClock
from pharoah_protocol.rank_messages import Steps
from pharoah_system import process_memory


class Optimizer:
    """Stands for one; only its identity counts here."""


class Sink:
    def __init__(self) -> None:
        self.durations: list[int] = []
        self.threads: list[int] = []

    def send(self, message: Steps) -> bool:
        self.durations += message.durations
        self.threads.append(message.thread)
        return True


def test_several_optimizers_are_one_step_a_cycle() -> None:
    clock = StepClock(Sink())  # type: ignore[arg-type]
    first, second = Optimizer(), Optimizer()
    for _ in range(2):
        clock.tick("optimizer", first)
        clock.tick("optimizer", second)
    assert clock.steps == 2


def test_session_steps_and_optimizer_steps_are_not_counted_twice() -> None:
    clock, optimizer = StepClock(Sink()), Optimizer()  # type: ignore[arg-type]
    for _ in range(2):
        clock.tick("optimizer", optimizer)
        clock.tick("session")
    assert clock.steps == 2


def test_a_new_optimizer_takes_over_when_the_first_has_stopped() -> None:
    cycle, first, second = Cycle(), Optimizer(), Optimizer()
    assert cycle.is_completed_by(first)
    assert [cycle.is_completed_by(second) for _ in range(FORGOTTEN_AFTER + 2)].count(True) == 2


def test_a_new_optimizer_takes_over_when_several_have_stopped() -> None:
    cycle, first, second, third = Cycle(), Optimizer(), Optimizer(), Optimizer()
    assert [cycle.is_completed_by(one) for _ in range(3) for one in (first, second)] == [True, False] * 3
    completed = [cycle.is_completed_by(third) for _ in range(2 * FORGOTTEN_AFTER + 3)]
    assert completed.count(True) == 2 and completed[-2:] == [True, True]


def test_an_optimizer_that_is_gone_gives_its_place_away_at_once() -> None:
    cycle, second = Cycle(), Optimizer()
    assert cycle.is_completed_by(Optimizer())
    assert cycle.is_completed_by(second)


def test_one_optimizer_for_each_parameter_is_still_one_step_a_cycle() -> None:
    cycle, optimizers = Cycle(), [Optimizer() for _ in range(3 * FORGOTTEN_AFTER)]
    completed = [cycle.is_completed_by(optimizer) for _ in range(4) for optimizer in optimizers]
    assert completed.count(True) == 4


def test_parameters_that_are_watched_can_be_swapped() -> None:
    """`model.to()` swaps the parameters of FSDP2, and torch refuses that for a tensor with a weak reference."""
    model = torch.nn.Linear(2, 2)
    optimizer, cycle = torch.optim.SGD(model.parameters()), Cycle()
    assert cycle.is_completed_by(optimizer) and cycle.is_completed_by(optimizer)
    torch.utils.swap_tensors(model.weight, torch.nn.Parameter(torch.zeros(2, 2)))
    assert cycle.is_completed_by(optimizer)


def test_where_the_kernel_shows_no_memory_steps_are_sent_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No descriptor is left, or there is no /proc."""
    monkeypatch.setattr(process_memory, "_PROC", str(tmp_path))
    sink, optimizer, now = Sink(), Optimizer(), [0]
    clock = StepClock(sink, now=lambda: now[0])  # type: ignore[arg-type]
    for now[0] in range(0, 5 * 10**9, 10**9):
        clock.tick("optimizer", optimizer)
    assert len(sink.durations) >= 2 and set(sink.durations) == {10**9}


def test_the_thread_that_steps_is_sent_and_not_the_one_that_ends_the_job() -> None:
    sink, optimizer, now = Sink(), Optimizer(), [0]
    clock = StepClock(sink, now=lambda: now[0])  # type: ignore[arg-type]

    def train() -> None:
        for now[0] in (10**9, 2 * 10**9, 2 * 10**9 + 1):
            clock.tick("optimizer", optimizer)

    thread = threading.Thread(target=train)
    thread.start()
    thread.join()
    clock.flush()
    assert sink.durations == [10**9, 1]
    assert sink.threads == [thread.native_id] * 2


def test_what_was_timed_is_sent() -> None:
    sink, optimizer = Sink(), Optimizer()
    clock = StepClock(sink)  # type: ignore[arg-type]
    for _ in range(2):
        clock.tick("optimizer", optimizer)
    clock.flush()
    assert len(sink.durations) == 1 and all(duration > 0 for duration in sink.durations)
