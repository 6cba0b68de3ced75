"""Hazards of nodes: what a life is, what is learned from planted failures, and when nothing is published."""

from __future__ import annotations

from dataclasses import replace
from math import inf

import numpy as np
import pytest

from evaluation.survival.simulated_nodes import NodeHistory, SimulatedNodes, simulate_nodes
from pharoah_learning.node_failures import HOUR_SECONDS, NodeFailure, TroubleHour
from pharoah_learning.node_hazards import LearnedNodeHazards, learn_node_hazards, newest_scores
from pharoah_learning.node_lives import NodeHours, node_hours, node_lives
from pharoah_protocol.hazard_model import PublishedHazardModel, node_features
from pharoah_protocol.signal_features import HOURS, SignalHistory, SignalKind
from pharoah_protocol.vocabulary import Resource

SIGNALS = ("gpu_thermal_slowdown", "gpu_uncorrected_errors", "memory_stalled", "network_link_down")
SMALL = SimulatedNodes(nodes=150, hours=336)


def failure(node: str, since: float, until: float = inf, resource: Resource | None = Resource.NETWORK) -> NodeFailure:
    """Times in hours."""
    return NodeFailure(node, since * HOUR_SECONDS, until * HOUR_SECONDS, resource)


def lives_of(hours: list[int], *failures: NodeFailure) -> list[tuple[int, int]]:
    """The last hour of each life of one node, counted from its first, and its cause."""
    fleet = node_lives(node_hours({"a": hours}, [], SIGNALS), failures).fleet
    return list(zip(fleet.last.tolist(), fleet.cause.tolist(), strict=True))


def test_a_life_ends_with_a_failure_and_the_next_one_begins_when_it_is_over() -> None:
    assert lives_of(list(range(100, 110))) == [(9, 0)]
    assert lives_of(list(range(100, 110)), failure("a", 104.5)) == [(3, 1)], "nothing after a failure that goes on"
    assert lives_of(list(range(100, 120)), failure("a", 104.5, 108.2)) == [(3, 1), (10, 0)]
    assert lives_of([100, 103, 104, 109], failure("a", 106.0, 108.0)) == [(5, 1), (0, 0)]


def test_a_life_can_be_observed_until_the_end_of_the_window_of_all_nodes() -> None:
    hours = node_hours({"a": range(100, 120), "b": range(110, 115)}, [], SIGNALS)
    fleet = node_lives(hours, [failure("a", 104.5, 108.2)]).fleet
    assert fleet.last.tolist() == [3, 10, 4]
    assert fleet.observable_hours.tolist() == [20, 11, 10], "from hours 100, 109 and 110 to hour 119"


def test_a_failure_in_the_first_hour_or_before_it_is_no_life() -> None:
    assert lives_of(list(range(100, 110)), failure("a", 100.5, 103.0)) == [(6, 0)]
    assert lives_of(list(range(100, 110)), failure("a", 90.0, 95.0)) == [(9, 0)]
    with pytest.raises(ValueError, match="there are none"):
        lives_of([100, 101], failure("a", 99.0))
    with pytest.raises(ValueError, match="no node"):
        node_hours({"a": []}, [], SIGNALS)


def test_a_failure_after_the_last_hour_that_was_observed_is_within_the_window_or_none() -> None:
    assert lives_of(list(range(100, 110)), failure("a", 110.5)) == [(9, 1)], "within the hour after"
    assert lives_of(list(range(100, 110)), failure("a", 111.5)) == [(9, 0)], "nobody saw the hours before it"
    assert lives_of(list(range(100, 110)), failure("a", 104.5, 106.0), failure("a", 150.0)) == [(3, 1), (3, 0)]


def test_features_are_those_that_an_agent_computes() -> None:
    """The worst of two devices, hour by hour, with hours in which nobody saw the node."""
    rng = np.random.default_rng(3)
    hours = [hour for hour in range(60) if hour % 7 != 3]
    shares = {"gpu0": rng.random(60), "gpu1": np.where(rng.random(60) < 0.2, rng.random(60), 0.0)}
    trouble = [
        TroubleHour("a", SIGNALS[0], device, 1000 + hour, float(found[hour]))
        for device, found in shares.items()
        for hour in hours
        if found[hour] > 0
    ]
    found = node_hours({"a": [1000 + hour for hour in hours]}, trouble, SIGNALS)
    histories = {device: SignalHistory(SignalKind.GAUGE, HOURS) for device in shares}
    for hour in range(hours[-1] + 1):
        for device, history in histories.items():
            history.add(float(shares[device][hour]) if hour in hours else None)
        expected = node_features(
            {f"{SIGNALS[0]}.{name}": value for name, value in history.features().items()}
            for history in histories.values()
        )
        own = dict(zip(found.names, map(float, found.features[0, hour]), strict=True))
        assert own == pytest.approx({name: expected.get(name, 0.0) for name in own}, abs=1e-5)


@pytest.fixture(scope="module")
def history() -> NodeHistory:
    return simulate_nodes(SMALL, np.random.default_rng(5))


@pytest.fixture(scope="module")
def hours(history: NodeHistory) -> NodeHours:
    return node_hours(history.observed, history.trouble, SIGNALS)


@pytest.fixture(scope="module")
def learned(history: NodeHistory, hours: NodeHours) -> LearnedNodeHazards:
    return learn_node_hazards(hours, history.failures, history.ended_at)


def test_failures_after_trouble_are_learned(learned: LearnedNodeHazards) -> None:
    assert learned.model is not None, learned.note
    calm = learned.model.forecast({})
    growing = {"level": 0.4, "slope": 0.1, "excess": 0.4, "outlook": 0.8}  # some nodes have steady trouble and stay
    sick = learned.model.forecast({f"gpu_uncorrected_errors.{name}": value for name, value in growing.items()})
    assert sick.probability[-1] > 3 * calm.probability[-1]
    assert learned.model.is_alarming(sick) and not learned.model.is_alarming(calm)
    assert PublishedHazardModel.decode(learned.model.encode()) == learned.model


def test_a_sidecar_forecasts_what_the_provider_computes_for_all(learned: LearnedNodeHazards, hours: NodeHours) -> None:
    assert learned.model is not None
    scores = newest_scores(learned.model, hours)
    for at in range(len(hours.nodes)):
        features = dict(zip(hours.names, map(float, hours.features[at, -1]), strict=True))
        alone = learned.model.forecast(features)
        assert alone.risk == pytest.approx(scores.risk[at], abs=1e-3)
        assert alone.probability == pytest.approx(scores.probability[at], abs=1e-4)


def test_the_same_history_gives_the_same_model(
    history: NodeHistory, hours: NodeHours, learned: LearnedNodeHazards
) -> None:
    assert learn_node_hazards(hours, history.failures, history.ended_at) == learned


def test_failures_without_a_sign_and_few_failures_give_no_model(history: NodeHistory, hours: NodeHours) -> None:
    few = learn_node_hazards(hours, history.failures[:19], history.ended_at)
    assert few.model is None and "19 failures of 19 nodes; 20 nodes that have failed are needed" in few.note
    sudden = simulate_nodes(replace(SMALL, sudden_share=1.0), np.random.default_rng(5))
    nothing = learn_node_hazards(node_hours(sudden.observed, sudden.trouble, SIGNALS), sudden.failures, sudden.ended_at)
    assert nothing.model is None and "chance gives as much" in nothing.note
    silent = learn_node_hazards(node_hours(history.observed, [], SIGNALS), history.failures, history.ended_at)
    assert silent.model is None and "chance gives as much" in silent.note


def with_nodes_that_fail_again_and_again(repeating: int, once: int) -> LearnedNodeHazards:
    """Some nodes fail six times, each time after trouble; others fail once, without a sign; sixty never fail."""
    observed = {f"n{number:03}": range(200) for number in range(repeating + once + 60)}
    names, signals, rng = list(observed), SIGNALS[:1], np.random.default_rng(4)
    often = [(name, at + int(rng.integers(0, 6))) for name in names[:repeating] for at in range(30, 180, 25)]
    rarely = [(name, int(rng.integers(30, 175))) for name in names[repeating : repeating + once]]
    trouble = [TroubleHour(name, signals[0], "", hour, 0.5) for name, at in often for hour in range(at - 8, at)]
    trouble += [TroubleHour(name, signals[0], "", 20, 0.5) for name in names]
    failures = [failure(name, at + 0.5, at + 8.0) for name, at in often + rarely]
    return learn_node_hazards(node_hours(observed, trouble, signals), failures, 200 * HOUR_SECONDS)


def test_a_node_that_fails_again_and_again_is_one_node() -> None:
    few = with_nodes_that_fail_again_and_again(6, 6)
    assert few.model is None and "42 failures of 12 nodes; 20 nodes that have failed are needed" in few.note
    many = with_nodes_that_fail_again_and_again(6, 60)
    assert "96 failures of 66 among 126 nodes" in many.note
    assert many.model is None and "chance gives as much" in many.note, "2 of 22 held-out nodes had a sign"
    clear = with_nodes_that_fail_again_and_again(20, 10)
    assert clear.model is not None and "130 failures of 30 among 90 nodes" in clear.note


def test_a_window_that_is_shorter_than_a_day_gives_no_model() -> None:
    names = [f"n{number}" for number in range(60)]
    hours = node_hours({name: range(20) for name in names}, [], SIGNALS)
    failures = [failure(name, 5 + number % 10) for number, name in enumerate(names[:30])]
    found = learn_node_hazards(hours, failures, 20 * HOUR_SECONDS)
    assert found.model is None and found.note.endswith("is known within 24 hours after what was observed")
