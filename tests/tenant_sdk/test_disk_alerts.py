"""Alerts of file systems: they fill up, are full, or do not answer."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pharoah._alert import Alert
from pharoah.local_alerts import AlertBook, View, detectors
from pharoah.local_alerts._readings import MachineReading
from pharoah_protocol.incident_states import CLEARED, CONFIRMED
from pharoah_protocol.vocabulary import Resource


def test_a_disk_that_fills_up_is_found_without_any_step() -> None:
    watching, raised = detectors()["disk"].start(), []
    for at in range(300):
        machine = MachineReading(free_bytes={"/data": 10**9 - at * 1_000_000})
        raised += watching.look(View(at=at, unix=at, machine=machine))
    assert raised[0].where == "/data"
    assert raised[0].resource is Resource.STORAGE


def filled(seconds: int, then: Callable[[int], MachineReading]) -> list[tuple[int, Alert]]:
    """The alerts, each with its second, of a disk that is full after 500 s and of what `then` follows."""
    watching, book, found = detectors()["disk"].start(), AlertBook("run"), list[tuple[int, Alert]]()
    for at in range(seconds):
        machine = MachineReading(free_bytes={"/data": 500_000_000 - at * 1_000_000}) if at < 500 else then(at)
        holding = list(watching.look(View(at=at, unix=at, machine=machine)))
        found += [(at, alert) for alert in book.update(at, at, holding)]
    return found


@pytest.mark.parametrize("left", [0, 4096])
def test_the_alert_of_a_disk_lasts_while_the_disk_is_full(left: int) -> None:
    free = {True: left, False: 10**9}
    alerts = filled(2000, lambda at: MachineReading(free_bytes={"/data": free[at < 1500]}))
    assert [alert.state for _, alert in alerts] == [CONFIRMED, CLEARED]
    assert alerts[0][0] < 400 and 1500 <= alerts[1][0] <= 1600


def test_the_alert_of_a_disk_ends_when_nothing_more_is_written_although_little_is_left() -> None:
    alerts = filled(3000, lambda _: MachineReading(free_bytes={"/data": 5_000_000}))
    assert [alert.state for _, alert in alerts] == [CONFIRMED, CLEARED]


def test_the_alert_of_a_disk_that_does_not_answer_goes_on() -> None:
    silent = MachineReading(silent_folders=frozenset({"/data"}))
    assert [alert.state for _, alert in filled(2000, lambda _: silent)] == [CONFIRMED]
    assert [alert.state for _, alert in filled(2000, lambda _: MachineReading())] == [CONFIRMED, CLEARED]


def test_a_disk_that_does_not_answer_from_the_start_raises_nothing() -> None:
    watching = detectors()["disk"].start()
    silent = MachineReading(silent_folders=frozenset({"/data"}))
    assert not [held for at in range(100) for held in watching.look(View(at=at, unix=at, machine=silent))]
