"""Forecasts of nodes: from stored telemetry and incidents to agents, listings and checks of idle nodes."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from dataclasses import replace
from math import inf
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from evaluation.survival.nodes import transitions, write_telemetry
from evaluation.survival.simulated_nodes import FIRST_HOUR, NodeHistory, SimulatedNodes, simulate_nodes
from pharoah_learning.hazard_check import HazardCheck
from pharoah_protocol.hazard_model import PublishedHazardModel
from pharoah_protocol.incident_states import CLEARED, CONFIRMED, DISMISSED, SUSPECTED
from pharoah_provider import node_forecasts
from pharoah_provider.agent_connection import OrderKind
from pharoah_provider.domain import IncidentKind, Node, Subject, Transition
from pharoah_provider.fleet import Fleet
from pharoah_provider.node_forecasts import WINDOW_SECONDS, NodeForecast, NodeForecasts, failures_of
from pharoah_provider.storage.duckdb import DuckStorage
from pharoah_serving.clock import Clock
from tests.harness.clock import SimulatedClock
from tests.harness.database import new_database
from tests.harness.hazard_models import MODEL
from tests.harness.listings import listed_at

NODE = Node("n0001", b"k" * 32, "boot", ("a=1",), ("d=1",), (0,), "1")
HOUR = 3600.0


def change(state: object, at: float, since: float = 5.0, incident_id: str = "i", **given: object) -> Transition:
    usual = {
        "incident_id": incident_id, "subject": Subject.node("n1"), "kind": IncidentKind.SLOW, "state": state,
        "raised_by": b"", "what": "", "evidence": "", "since": since, "changed_at": at, "step_ratio": 1.0,
    }  # fmt: skip
    return Transition(**{**usual, **given})  # type: ignore[arg-type]


def test_only_confirmed_incidents_of_nodes_are_failures() -> None:
    changes = [
        change(SUSPECTED, 6.0), change(CONFIRMED, 7.0), change(CLEARED, 9.0),
        change(SUSPECTED, 20.0, 19.0, "never confirmed"), change(DISMISSED, 21.0, 19.0, "never confirmed"),
        change(CONFIRMED, 30.0, 29.0, "goes on"),
        change(CONFIRMED, 31.0, 29.0, "one tenant says so", established=False),
    ]  # fmt: skip
    found = failures_of(changes)
    assert [(one.since, one.until) for one in found] == [(5.0, 9.0), (29.0, float("inf"))]


def test_what_checks_of_an_idle_node_confirm_is_a_failure_of_the_node() -> None:
    changes = [
        change(CONFIRMED, 7.0, subject=Subject.check("n1"), kind=IncidentKind.BELOW_FLEET),
        change(CLEARED, 9.0, subject=Subject.check("n1"), kind=IncidentKind.BELOW_FLEET),
        change(CONFIRMED, 8.0, 8.0, "agent", subject=Subject.agent("n1"), kind=IncidentKind.AGENT_LOST),
        change(CONFIRMED, 8.0, 8.0, "shared", subject=Subject.from_shared("switch=s1"), kind=IncidentKind.SHARED),
    ]
    assert [(one.node, one.since, one.until) for one in failures_of(changes)] == [("n1", 5.0, 9.0)]


def test_a_failure_that_began_before_the_window_is_one_as_long_as_it_goes_on(tmp_path: Path) -> None:
    new_database(tmp_path / "p.duckdb")
    store, now = DuckStorage(tmp_path / "p.duckdb"), 1000 * HOUR
    since = now - WINDOW_SECONDS

    async def inside() -> None:
        for one in (
            change(CONFIRMED, since - 90.0, since - 100.0, "goes on"),
            change(CONFIRMED, since - 80.0, since - 85.0, "over since then"),
            change(CLEARED, since + 10.0, since - 85.0, "over since then"),
            change(CONFIRMED, since - 70.0, since - 75.0, "over before"),
            change(CLEARED, since - 60.0, since - 75.0, "over before"),
        ):
            await store.incidents.put_transition(one)
        histories = await store.incidents.histories(since)
        assert {one.incident_id for one in histories} == {"goes on", "over since then"}
        ends = [(one.since, one.until) for one in failures_of(histories)]
        assert ends == [(since - 100.0, inf), (since - 85.0, since + 10.0)]

    asyncio.run(inside())
    store.close()


def test_forecasts_are_of_the_newest_hour_that_is_over_whatever_the_clock_of_one_node_says(tmp_path: Path) -> None:
    new_database(tmp_path / "p.duckdb")
    store, signal, full = DuckStorage(tmp_path / "p.duckdb"), "gpu_thermal_slowdown", FIRST_HOUR * HOUR
    model = replace(MODEL, features=(f"{signal}.level", "gpu_uncorrected_errors.level"))

    async def inside() -> None:
        async def send(node: str, begins: float, seconds: float) -> None:
            """Trouble without a pause."""
            times = [begins + 2.0 * at for at in range(int(seconds / 2))]
            await store.nodes.append_telemetry(
                node, times, [signal] * len(times), ["gpu0"] * len(times), [1.0] * len(times)
            )

        await store.hazards.put_model(model.encode().decode(), 1.0)
        assert await node_forecasts.forecasts(store, full) == []
        await send("n1", full, 60.0)
        assert await node_forecasts.forecasts(store, full + 60.0) == [], "no hour is over"
        await send("n1", full + 60.0, 2 * HOUR - 60.0)
        (expected,) = await node_forecasts.forecasts(store, full + 2 * HOUR)
        assert expected.forecast.risk > model.forecast({}).risk + 1
        await send("n1", full + 2 * HOUR, 60.0)
        await send("n2", full + 26 * HOUR, 60.0)
        assert await node_forecasts.forecasts(store, full + 2 * HOUR + 60.0) == [expected]

    asyncio.run(inside())
    store.close()


def test_stored_spans_become_hours_with_their_share_of_trouble(tmp_path: Path) -> None:
    """Three readings of trouble from the end of one hour on, a reading that is missing, and a calm signal."""
    new_database(tmp_path / "p.duckdb")
    store = DuckStorage(tmp_path / "p.duckdb")

    async def inside() -> None:
        def send(at: float, metric: str, value: float) -> object:
            return store.nodes.append_telemetry("n1", [at], [metric], ["gpu0"], [value])

        for at in (3598.0, 3600.0, 3602.0):
            await send(at, "hot", 1.0)
        await send(3604.0, "hot", float("nan"))
        await send(3 * HOUR + 1, "calm", 0.0)
        await send(3 * HOUR + 1, "invented", 1.0)
        observed = await store.hazards.list_observed_hours(0.0, 4 * HOUR)
        trouble = await store.hazards.trouble_hours(0.0, ("hot", "calm"))
        assert {node: sorted(hours) for node, hours in observed.items()} == {"n1": [0, 1, 3]}
        shares = {(one.signal, one.hour): one.share * HOUR for one in trouble}
        assert shares == pytest.approx({("hot", 0): 2.0, ("hot", 1): 4.0})
        assert await store.hazards.list_observed_hours(2 * HOUR, 4 * HOUR) == {"n1": [3]}
        assert await store.hazards.list_observed_hours(2 * HOUR, 4 * HOUR - 1) == {}, "the hour is not over"
        observed = await store.hazards.list_observed_hours(0.0, 3 * HOUR + 2)
        assert {node: sorted(hours) for node, hours in observed.items()} == {"n1": [0, 1]}

    asyncio.run(inside())
    store.close()


@pytest.fixture(scope="module")
def learned_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, NodeHistory]]:
    """A database with a history of nodes."""
    folder = tmp_path_factory.mktemp("history")
    history = simulate_nodes(SimulatedNodes(nodes=120, hours=240), np.random.default_rng(2))
    new_database(folder / "p.duckdb")
    write_telemetry(folder / "p.duckdb", history)
    yield folder, history


def test_a_model_is_learned_sent_listed_and_kept_over_a_restart(learned_folder: tuple[Path, NodeHistory]) -> None:
    folder, history = learned_folder
    store = DuckStorage(folder / "p.duckdb")
    clock = Clock(wall=lambda: history.ended_at, steady=time.monotonic)
    fleet = Fleet(clock)

    async def inside() -> None:
        for one in transitions(history):
            await store.incidents.put_transition(one)
        early = fleet.connect(NODE)
        learning = NodeForecasts(store, fleet, clock, lambda content: b"signed " + content)
        assert "among 120 nodes" in await learning.learn()
        content = (await store.hazards.newest_model() or "").encode()
        model = PublishedHazardModel.decode(content)
        orders = [early.orders.get_nowait() for _ in range(2)]
        assert [order.kind for order in orders if order] == [OrderKind.NODE_STATE, OrderKind.HAZARD_MODEL]
        assert orders[1] and orders[1].content == {"content": content, "signature": b"signed " + content}
        rows = await listed_at(store, "node-forecasts", history.ended_at)
        assert len(rows) == 120 and set(rows[0]) >= {"node", "within_24h", "alarming"}
        assert rows[0]["within_24h"] >= rows[-1]["within_24h"] > 0
        await learning.look()
        assert sum(learning.rates(rows[0]["node"]).values()) > 0
        assert learning.rates("unknown") == {}
        (row,) = await listed_at(store, "node-hazards", history.ended_at)
        check = HazardCheck.decode(await store.hazards.newest_check())
        assert check is not None and row["failures"] == check.failures > 0
        assert json.loads(json.dumps(row["hazard_check"])) == json.loads(check.encode())

        again = Fleet(clock)
        restarted = NodeForecasts(store, again, clock, lambda content: b"signed " + content)
        await restarted.restore()
        late = again.connect(NODE)
        sent = [late.orders.get_nowait() for _ in range(2)]
        assert sent[1] is not None and sent[1].kind is OrderKind.HAZARD_MODEL
        assert model.made_at == history.ended_at

    asyncio.run(inside())
    store.close()


def test_a_model_that_no_longer_holds_is_withdrawn(tmp_path: Path) -> None:
    new_database(tmp_path / "p.duckdb")
    store = DuckStorage(tmp_path / "p.duckdb")
    fleet, clock = Fleet(), Clock(wall=lambda: (FIRST_HOUR + 10) * HOUR, steady=time.monotonic)

    async def inside() -> None:
        learning = NodeForecasts(store, fleet, clock, lambda content: content)
        assert "0 failures of 0 nodes; 20 nodes that have failed are needed" in await learning.learn()
        await store.hazards.put_model("not a model", 1.0)
        await learning.restore()
        assert learning.rates("n0001") == {}
        await store.nodes.append_telemetry("n0001", [clock.wall() - 60], ["gpu_throttled"], ["gpu0"], [0.0])
        assert "0 failures of 0 nodes; 20 nodes that have failed are needed" in await learning.learn()
        assert await store.hazards.newest_model() is None
        assert await listed_at(store, "node-hazards", clock.wall()) == []

    asyncio.run(inside())
    store.close()


def test_a_model_that_is_withdrawn_while_it_is_used_leaves_no_rates(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    new_database(tmp_path / "p.duckdb")
    store, clock = DuckStorage(tmp_path / "p.duckdb"), SimulatedClock(now=(FIRST_HOUR + 10) * HOUR)
    honest, content = node_forecasts.forecasts, MODEL.encode().decode()

    async def inside() -> None:
        learning = NodeForecasts(store, Fleet(), clock.clock, lambda content: content)
        await store.nodes.append_telemetry("n0001", [clock.now - 60], ["gpu_throttled"], ["gpu0"], [0.0])
        await store.hazards.put_model(content, 1.0)
        await learning.restore()

        async def then_withdrawn(*arguments: Any) -> list[NodeForecast]:
            found = await honest(*arguments)
            assert "0 failures of 0 nodes; 20 nodes that have failed are needed" in await learning.learn()
            return found

        with monkeypatch.context() as meanwhile:
            meanwhile.setattr(node_forecasts, "forecasts", then_withdrawn)
            await learning.look()
        assert learning.rates("n0001") == {}
        await store.hazards.put_model(content, 2.0)
        await learning.restore()
        await learning.look()
        assert learning.rates("n0001"), "without the withdrawal there are rates"

    asyncio.run(inside())
    store.close()
