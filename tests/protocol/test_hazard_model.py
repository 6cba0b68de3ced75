"""A published hazard model: what is read back, what is rejected, and what a forecast is."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from math import exp, log, prod
from typing import Any

import pytest

from pharoah_protocol.hazard_model import (
    MAX_MODEL_BYTES,
    HazardModelError,
    PublishedHazardModel,
    feature_names,
    node_features,
)
from pharoah_protocol.vocabulary import Resource
from tests.harness.hazard_models import MODEL


def test_a_model_is_read_as_it_was_written() -> None:
    assert PublishedHazardModel.decode(MODEL.encode()) == MODEL
    assert PublishedHazardModel.decode(replace(MODEL, alarm_risk=None).encode()).alarm_risk is None


def logit_of_any(*logits: float) -> float:
    """By the definition: a node does not fail when no resource does."""
    survives = prod(1 - 1 / (1 + exp(-logit)) for logit in logits)
    return log((1 - survives) / survives)


def test_a_forecast_adds_up_pieces_and_limits_values() -> None:
    """By hand: the first feature counts from -9 to 2, and from 0.5 on once more; the second one from -9 on."""
    found = MODEL.forecast({"hot.level": 3.0, "down.level": 1.0})
    assert found.hazard == pytest.approx((exp(-5 + 2 + 4 * 2), exp(-6 + 1)))
    now = log(sum(found.hazard))
    logits = (now, logit_of_any(-4 + 2 * 2, -6 + 0.5), logit_of_any(-3 + 3 * 2, -5 + 0.5))
    assert found.probability == pytest.approx([(logit + 10) / 20 for logit in logits])
    assert found.risk == pytest.approx(sum(logits) / 3)
    assert MODEL.is_alarming(found) and MODEL.likely_resource(found) is Resource.COMPUTE


def test_a_node_without_trouble_does_not_alarm_and_without_a_promise_none_does() -> None:
    calm, sick = MODEL.forecast({}), MODEL.forecast({"hot.level": 2.0})
    assert not MODEL.is_alarming(calm) and MODEL.is_alarming(sick)
    assert not replace(MODEL, alarm_risk=None).is_alarming(sick)


def test_a_node_is_as_its_worst_device_and_never_better_than_one_without_trouble() -> None:
    assert node_features([{"a": 0.1, "b": -2.0}, {"a": 0.3, "b": -1.0}]) == {"a": 0.3, "b": 0.0}
    assert feature_names(["hot"]) == ("hot.level", "hot.slope", "hot.excess", "hot.outlook")


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("high", [1.0], "high"),
        ("low", [[0.0]], "low"),
        ("coefficients", [[0.0] * 6] * 3, "coefficients, rows"),
        ("coefficients", [[0.0] * 3] * 4, "coefficients"),
        ("constants", [0.0], "constants"),
        ("resources", [], "resources"),
        ("resources", ["soul", None], "resources"),
        ("horizons", [1, 6], "horizons"),
        ("calibrations", [], "calibrations"),
        ("calibrations", [{"low": 0.0, "high": 1.0, "probabilities": [0.5]}] * 3, "calibrations"),
        ("calibrations", [{"low": 0.0, "high": 1.0, "probabilities": [0.0, 1.5]}] * 3, "calibrations"),
        ("alarm_risk", float("nan"), "NaN is no number"),
        ("constants", [float("inf"), 0.0, 0.0, 0.0, 0.0, 0.0], "Infinity is no number"),
        ("nodes", "many", "nodes"),
    ],
)
def test_numbers_that_do_not_belong_together_are_rejected(field: str, value: Any, message: str) -> None:
    data = json.loads(json.dumps(asdict(MODEL))) | {field: value}
    with pytest.raises(HazardModelError, match=message):
        PublishedHazardModel.decode(json.dumps(data).encode())


@pytest.mark.parametrize("content", [b"", b"no JSON", b"[]", b"[" * 100_000, b"x" * (MAX_MODEL_BYTES + 1)])
def test_what_is_no_model_is_rejected(content: bytes) -> None:
    with pytest.raises(HazardModelError):
        PublishedHazardModel.decode(content)
