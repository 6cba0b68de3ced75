"""Forecasts in the sidecar: which model is accepted, and what alert comes of it."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from pharoah._settings import Settings
from pharoah.local_alerts import NodeForecast, View
from pharoah.local_alerts.node_failure import DETECTOR
from pharoah.sidecar.node_forecaster import OLDEST_SECONDS, NodeForecaster
from pharoah_protocol.agent_messages import ForecastAnswer, NodeStateAnswer
from pharoah_protocol.node_profile import NO_LIMITS
from pharoah_protocol.tables import signed_messages
from pharoah_protocol.tables.epoch_head import sign
from pharoah_protocol.vocabulary import Attribution, Resource
from pharoah_provider.agent.local_socket import ticket_socket
from tests.harness.hazard_models import MODEL

KEY, OTHER = (Ed25519PrivateKey.from_private_bytes(byte * 32) for byte in (b"p", b"q"))
SICK = {"hot.level": 2.0}


def answer(model: bytes = MODEL.encode(), key: Ed25519PrivateKey = KEY, **features: float) -> ForecastAnswer:
    signature = sign(signed_messages.hazard_model(model), key).hex()
    return ForecastAnswer(
        model.decode(), signature, {name.replace("_", "."): value for name, value in features.items()}
    )


def forecasts(
    folder: Path, answers: list[ForecastAnswer], wall: Callable[[], float] = lambda: MODEL.made_at + 60
) -> list[NodeForecast | None]:
    """What one forecaster makes of the answers of an agent on a real socket, one after another."""
    (folder / "provider.pub").write_text(KEY.public_key().public_bytes_raw().hex() + "\n")
    settings = Settings(node_socket=str(folder / "agent.sock"), provider_key_file=str(folder / "provider.pub"))
    left = list(answers)

    async def forecast(_: socket.socket) -> ForecastAnswer:
        return left.pop(0)

    async def inside() -> list[NodeForecast | None]:
        agent = ticket_socket(
            folder / "agent.sock",
            "n1",
            "boot",
            Ed25519PrivateKey.generate(),
            NO_LIMITS,
            NodeStateAnswer,
            forecast=forecast,
        )
        forecaster = NodeForecaster(settings, wall)
        async with agent:
            found = [await forecaster.forecast() for _ in answers]
        assert await forecaster.forecast() is None, "the agent is gone"
        return found

    return asyncio.run(inside())


def test_a_signed_model_and_the_features_of_the_node_make_a_forecast(tmp_path: Path) -> None:
    calm, sick = forecasts(tmp_path, [answer(), answer(hot_level=2.0)])
    assert calm is not None and not calm.alarming
    assert sick is not None and sick.alarming
    assert (sick.hours, sick.resource, sick.failures, sick.nodes) == (24, Resource.COMPUTE, 30, 100)
    assert sick.probability == pytest.approx(MODEL.forecast(SICK).probability[-1])


def test_a_model_of_somebody_else_an_old_one_and_nonsense_are_not_used(tmp_path: Path) -> None:
    changed = replace(MODEL, constants=(9.0, 9.0, 9.0, 9.0)).encode()
    bad = [
        answer(key=OTHER),
        replace(answer(), model=changed.decode()),
        replace(answer(), signature="no hex"),
        answer(b"no model"),
        ForecastAnswer(),
    ]
    assert forecasts(tmp_path, [*bad, answer()])[:-1] == [None] * len(bad)
    assert forecasts(tmp_path, [answer()], lambda: MODEL.made_at + OLDEST_SECONDS + 1) == [None]


def test_a_node_that_is_likely_to_fail_is_one_alert_until_the_horizon_of_the_last_forecast_is_over() -> None:
    forecast = NodeForecast(
        probability=0.31, hours=24, resource=Resource.MEMORY_CAPACITY, alarming=True, failures=30, nodes=100
    )
    watching = DETECTOR.start()
    assert not list(watching.look(View(at=1.0, unix=100.0)))
    (found,) = watching.look(View(at=2.0, unix=101.0, forecast=forecast))
    (later,) = watching.look(View(at=3.0, unix=102.0, forecast=forecast))
    assert found.since == later.since == 101.0
    assert found.what == "this node fails within 24 hours with a probability of 31%"
    assert found.fault_domain is Attribution.NODE and found.resource is Resource.MEMORY_CAPACITY
    assert found.checkpoint and not found.validation, "a question would show the provider which node somebody is on"
    calm, day = replace(forecast, alarming=False, probability=0.01), 24 * 3600.0
    for view in (View(at=2.0 + day, unix=0.0, forecast=calm), View(at=2.5 + day, unix=0.0)):
        assert list(watching.look(view)) == [later], "a risk that falls below its threshold for a while"
    assert not list(watching.look(View(at=3.0 + day, unix=102.0, forecast=calm)))
    (unclear,) = watching.look(View(at=4.0 + day, unix=103.0, forecast=replace(forecast, resource=None)))
    assert unclear.since == 103.0 and unclear.resource is None and unclear.likely.startswith("its trouble")
