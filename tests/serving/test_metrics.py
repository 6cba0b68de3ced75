"""Metrics of connected agents."""

from __future__ import annotations

from pharoah_provider.fleet import Fleet
from pharoah_serving.metrics import Metrics
from pharoah_serving.time_guard import TimeGuard
from tests.harness.clock import SimulatedClock
from tests.harness.loopback import node


def up(metrics: Metrics) -> float:
    (line,) = [line for line in metrics.text().decode().splitlines() if line.startswith("pharoah_agents_up ")]
    return float(line.split()[1])


def test_agents_are_up_by_the_clock_by_which_they_were_heard() -> None:
    """The wall clock jumps, and the guard continues the time from before."""
    clock, metrics = SimulatedClock(), Metrics()
    fleet = Fleet(TimeGuard(clock.clock, None).clock)
    metrics.watch_agents(fleet.last_seen, fleet.now)
    fleet.connect(node("n1"))
    for error in (0.0, 40 * 86_400.0, -40 * 86_400.0):
        clock.error = error
        assert up(metrics) == 1.0
    clock.forward(31.0)
    assert up(metrics) == 0.0
