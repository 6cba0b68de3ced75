"""What is made of the telemetry of degraded cells: from the agent's samples to the listing."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from pharoah_benchmarks.campaign.cell import Cell, CellResult, Degradation
from pharoah_learning.evidence import DegradedRun
from pharoah_learning.fault_responses import fault_responses
from pharoah_protocol.telemetry_samples import MAX_SAMPLES, TelemetrySample
from pharoah_protocol.vocabulary import Outcome, WorseDirection
from pharoah_protocol.windows import Window
from pharoah_provider.agent.cell_telemetry import CellTelemetry
from pharoah_provider.agent.signals import TROUBLE_UNIT, AgentSignal, Reading, Resource, SignalKind
from pharoah_provider.agent.telemetry import Telemetry
from pharoah_provider.domain import Node
from pharoah_provider.storage.duckdb import DuckStorage
from tests.harness.listings import listed

CELL = Cell("c", "mlp", {}, degradation=Degradation(fault="cpu_share", dose=0.5, onset_seconds=2.0))
NODE = Node("n1", bytes(32), "boot", ("device=cpu",), ("device=cpu",), (0,))


def sample(at: float, **values: float) -> TelemetrySample:
    return TelemetrySample(at_seconds=at, values=values)


def run(fault: str, after: float, loss: float = 1.0, dose: float = 0.0) -> DegradedRun:
    """Four samples of 0.1 s steps before the onset, and four of other ones after it; the loss falls meanwhile."""
    before = [sample(-at, step_seconds=0.1 + 0.001 * at, loss=loss + at, resident_bytes=1e8) for at in (4, 3, 2, 1)]
    later = [sample(at, step_seconds=after, loss=loss - at, resident_bytes=1e8 + at) for at in (0, 1, 2, 3)]
    return DegradedRun(fault, (), died=False, dose=dose, telemetry=(*before, *later))


def test_only_what_no_control_run_shows_has_moved() -> None:
    control = [run("none", 0.1025, loss) for loss in (1.0, 2.0)]
    response = fault_responses([*control, run("cpu_share", 0.2, dose=0.5), run("cpu_share", 0.3, dose=0.5)])
    healthy, slow = sorted(response, key=lambda one: one.dose)
    assert (healthy.fault, healthy.runs, healthy.moved) == ("none", 2, {})
    assert (slow.fault, slow.dose, slow.runs) == ("cpu_share", 0.5, 2)
    assert slow.moved == {"step_seconds": 2}, "the loss and the memory change in each run"
    assert slow.slowdown_ratio == pytest.approx(0.25 / 0.1025)
    assert slow.growth_bytes == pytest.approx(3)


def test_a_signal_that_falls_has_moved_as_well() -> None:
    """A loader that stalls leaves the cores of its node idle: more time for a step, and less computing."""

    def computing(fault: str, after: float, cores: float) -> DegradedRun:
        one = run(fault, after)
        telemetry = (
            replace(each, values={**each.values, "cpu_ratio": 0.9 if each.at_seconds < 0 else cores})
            for each in one.telemetry
        )
        return replace(one, telemetry=tuple(telemetry))

    control = [computing("none", 0.1025, 0.9), computing("none", 0.1025, 0.88)]
    responses = fault_responses([*control, computing("loader_stall", 0.3, 0.2)])
    moved = {one.fault: one.moved for one in responses}
    assert moved == {"none": {}, "loader_stall": {"step_seconds": 1, "cpu_ratio": 1}}


def test_a_little_more_than_all_control_runs_is_no_move() -> None:
    control = [run("none", 0.1025), run("none", 0.1125)]
    slower = [run("cpu_share", 0.1225, dose=1.0), run("cpu_share", 0.1235, dose=2.0)]
    _, within, beyond = sorted(fault_responses([*control, *slower]), key=lambda one: one.dose)
    assert (within.moved, beyond.moved) == ({}, {"step_seconds": 1})


def test_nothing_has_moved_where_no_control_run_has_the_signal() -> None:
    (alone,) = fault_responses([run("cpu_share", 5.0)])
    assert alone.moved == {} and alone.slowdown_ratio == pytest.approx(5.0 / 0.1025)


def test_a_window_outside_the_dead_band_after_the_onset_detects() -> None:
    levels = {1.0: 1.3, 2.0: 1.0, 2.5: 1.0, 3.5: 1.19, 4.0: 2.0}
    windows = tuple(Window(at_seconds=at, values={"step_ratio": ratio}) for at, ratio in levels.items())
    seen = DegradedRun("nan", windows, died=False, outcome=Outcome.NAN, onset_seconds=2.0)
    unseen = DegradedRun("nan", windows[:3], died=False, onset_seconds=2.0)
    (response,) = fault_responses([seen, unseen])
    assert (response.detected, response.detect_seconds) == (1, 1.5)
    assert response.outcomes == {"nan": 1, "ok": 1}
    assert response.slowdown_ratio is None and response.growth_bytes is None


def test_the_listing_shows_what_was_stored(tmp_path: Path) -> None:
    async def inside() -> list[dict[str, object]]:
        storage = DuckStorage(tmp_path / "p.duckdb")
        for one in (run("none", 0.1025), run("none", 0.1025, 3.0), run("cpu_share", 0.4, dose=0.5)):
            cell = Cell("c", "mlp", {}, degradation=Degradation(fault=one.fault, dose=one.dose))
            result = CellResult(cell="c", outcome=Outcome.OK, telemetry=list(one.telemetry))
            await storage.evidence.append_cell("x", NODE, cell, CellResult.from_json(result.to_json()))
        rows = await listed(storage, "fault-responses")
        storage.close()
        return rows

    slow, healthy = asyncio.run(inside())
    assert (healthy["fault"], healthy["runs"], healthy["moved"]) == ("none", 2, "")
    assert (slow["fault"], slow["dose"], slow["outcomes"], slow["slowdown"]) == ("cpu_share", 0.5, "ok 1", 3.9)
    assert (slow["detected"], slow["moved"]) == ("0/1", "step_seconds 1")


def waiting(times: list[float], stays: bool = True) -> Telemetry:
    """Telemetry with a signal whose value is the time, and which stays on the node."""
    clock = iter(times)
    signal = AgentSignal(
        name="waiting", measures="the time", unit=TROUBLE_UNIT, worse=WorseDirection.HIGHER, leaves_node=not stays,
        resource=Resource.COMPUTE, kind=SignalKind.GAUGE,
        read=lambda: [Reading(7.0), Reading(8.0, "gpu0")],
    )  # fmt: skip
    return Telemetry(clock=lambda: next(clock, times[-1]), signals=[signal])


def watched(telemetry: Telemetry, samples: int) -> CellTelemetry:
    seen = CellTelemetry(telemetry, period_seconds=0.0)

    async def inside() -> None:
        task = asyncio.create_task(seen.watch())
        while len(seen.samples) < samples:
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait({task})

    asyncio.run(inside())
    return seen


def test_the_agent_adds_what_it_saw_since_the_cell_began_in_times_relative_to_the_onset() -> None:
    seen = watched(waiting([99.0, 101.0, 103.5]), 6)
    result = CellResult(cell="c", outcome=Outcome.OK, telemetry=[sample(-0.5, loss=1.0)], began_at=100.0)
    telemetry = CellResult.from_json(seen.add_to(CELL, result.to_json())).telemetry
    assert [(one.at_seconds, one.values) for one in telemetry][:4] == [
        (-1.0, {"waiting": 7.0}),
        (-1.0, {"waiting:gpu0": 8.0}),
        (-0.5, {"loss": 1.0}),
        (1.5, {"waiting": 7.0}),
    ]


def test_no_more_is_added_than_a_result_may_have() -> None:
    seen = watched(waiting([float(at) for at in range(100, 5_000)]), MAX_SAMPLES // 2)
    own = [sample(float(at), loss=1.0) for at in range(MAX_SAMPLES // 2)]
    result = CellResult(cell="c", outcome=Outcome.OK, telemetry=own, began_at=100.0)
    assert len(CellResult.from_json(seen.add_to(CELL, result.to_json())).telemetry) <= MAX_SAMPLES


@pytest.mark.parametrize("outcome", ["", "{", "[" * 5000, json.dumps({"cell": "c", "outcome": "slow"})])
def test_a_result_that_cannot_be_read_goes_to_the_provider_as_it_is(outcome: str) -> None:
    assert watched(waiting([100.0]), 2).add_to(CELL, outcome) == outcome


class EndOfCell(Exception):
    """The cell of a test is over."""


def test_a_cell_that_lasts_is_seen_to_its_end_on_a_node_with_many_devices() -> None:
    """Samples are thinned out evenly when there is no more room, and no count is lost."""
    lasts_seconds, devices, now = 1000.0, 40, [0.0]

    async def pause(seconds: float) -> None:
        now[0] += seconds
        if now[0] > lasts_seconds:
            raise EndOfCell

    errors = AgentSignal(
        name="errors", measures="errors", unit="errors", worse=WorseDirection.HIGHER, resource=Resource.NETWORK,
        kind=SignalKind.COUNTER, leaves_node=False,
        read=lambda: [Reading(int(10 * now[0]), f"port{number}") for number in range(devices)],
    )  # fmt: skip
    seen = CellTelemetry(Telemetry(clock=lambda: now[0], signals=[errors]), pause=pause)
    with pytest.raises(EndOfCell):
        asyncio.run(seen.watch())
    assert MAX_SAMPLES // 4 - devices <= len(seen.samples) <= MAX_SAMPLES // 2
    one = [sample for sample in seen.samples if sample.device == "port7"]
    assert sum(sample.values["errors"] for sample in one) == int(10 * one[-1].sampled_at)
    times = [0.0, *(sample.sampled_at for sample in one), lasts_seconds]
    assert max(later - earlier for earlier, later in pairwise(times)) <= 2 * seen.period_seconds


def test_a_signal_that_stays_on_the_node_is_in_no_other_telemetry() -> None:
    assert waiting([100.0]).sample() == []
    assert waiting([100.0], stays=False).sample() != []
