"""The hazard model of a provider's nodes as it is published, and the forecast for one node, in pure Python.

The provider learns how soon nodes fail, and of what, from the trouble that its agents report
(`pharoah_learning.node_hazards`). Every agent has the whole model, signed, and hands it to the sidecars of its node.
They compute the forecast from exact signals of the node. Nobody is asked, so nothing of a job is revealed.

`pharoah_learning.hazards.HazardModel` computes the same for a whole fleet; a test holds the two together.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import exp, isfinite, log
from typing import NamedTuple

from pharoah_protocol.signal_features import FEATURES, SignalKind
from pharoah_protocol.typed_json import FieldError, read_object, to_json
from pharoah_protocol.vocabulary import Resource
from pharoah_system.bounded_reading import UnreadableInput, parse_json

NODE_FEATURES = FEATURES[SignalKind.GAUGE]
"""Features of each trouble signal: its value is 1 while there is trouble, so its mean is a share of the time."""
MAX_MODEL_BYTES = 1 << 18
"""A model of ten signals with four features each, six pieces, six resources and three horizons has 4,320 coefficients;
those of a fleet with 500 nodes took 6 kB (`python -m evaluation survival --part nodes`)."""
_MAX_EXPONENT, _MAX_LOGIT, _MIN_HAZARD = 50.0, 30.0, 1e-300
"""Keep exponentials and logarithms finite."""


class HazardModelError(ValueError):
    """Bytes that are no hazard model; the message names the field."""


@dataclass(frozen=True, kw_only=True)
class Curve:
    """A calibration: a rising curve on an even grid of scores, linear between its points and constant beyond them."""

    low: float
    """The score of the first point."""
    high: float
    """The score of the last one."""
    probabilities: tuple[float, ...]

    def __call__(self, score: float) -> float:
        last = len(self.probabilities) - 1
        place = (score - self.low) * last / max(self.high - self.low, 1e-12)
        place = min(max(place, 0.0), float(last))
        before = min(int(place), last - 1)
        begins, ends = self.probabilities[before : before + 2]
        return begins + (ends - begins) * (place - before)


class Forecast(NamedTuple):
    """How soon a node fails, and of what."""

    risk: float
    """Orders nodes by how soon they fail; larger is sooner (`pharoah_learning.hazards.Scores`)."""
    probability: tuple[float, ...]
    """The probability of a failure within each horizon of the model."""
    hazard: tuple[float, ...]
    """The hazard of each resource of the model, per hour."""


@dataclass(frozen=True, kw_only=True)
class PublishedHazardModel:
    """Everything that a forecast needs besides the features of the node."""

    made_at: float
    """Unix seconds."""
    features: tuple[str, ...]
    """Names: signal and feature, joined by a point."""
    resources: tuple[Resource | None, ...]
    """What nodes failed of; None where that was not known."""
    horizons: tuple[int, ...]
    """Hours. The first one is an hour, for which the hazard of now stands."""
    low: tuple[tuple[float, ...], ...]
    """Lower bounds of pieces (`pharoah_learning.hazards.Pieces`): pieces, features."""
    high: tuple[float, ...]
    """The highest value of each feature that counts."""
    coefficients: tuple[tuple[float, ...], ...]
    """Pieces x features, models: those of hazards, one for each resource, then those of the second horizon, one for
    each resource, and so on."""
    constants: tuple[float, ...]
    """One for each model."""
    calibrations: tuple[Curve, ...]
    """One for each horizon."""
    alarm_risk: float | None
    """The risk above which a node is likely to fail; None where too few healthy nodes were seen to promise anything."""
    failures: int
    """Failures of nodes that it was learned from."""
    nodes: int
    """Nodes that it was learned from."""

    def encode(self) -> bytes:
        """What is signed and handed on."""
        return to_json(self).encode()

    @classmethod
    def decode(cls, content: bytes) -> PublishedHazardModel:
        """Raises HazardModelError."""
        if len(content) > MAX_MODEL_BYTES:
            raise HazardModelError(f"{len(content)} bytes, at most {MAX_MODEL_BYTES} are accepted")
        try:
            model = read_object(cls, parse_json(content, "hazard_model"), "hazard_model")
        except FieldError as error:
            raise HazardModelError(str(error)) from None
        except UnreadableInput as error:
            raise HazardModelError(str(error)) from None
        model._check()
        return model

    def forecast(self, features: Mapping[str, float]) -> Forecast:
        """The forecast for a node with these features; a feature that is absent is 0."""
        outputs = list(self.constants)
        values = [min(features.get(name, 0.0), high) for name, high in zip(self.features, self.high, strict=True)]
        rows = iter(self.coefficients)
        for bounds in self.low:
            for value, bound in zip(values, bounds, strict=True):
                piece = max(value, bound)
                for at, coefficient in enumerate(next(rows)):
                    outputs[at] += coefficient * piece
        count = len(self.resources)
        hazard = tuple(exp(min(output, _MAX_EXPONENT)) for output in outputs[:count])
        logits = [log(max(sum(hazard), _MIN_HAZARD))]
        logits += [_logit_of_any(outputs[at : at + count]) for at in range(count, len(outputs), count)]
        risk = (logits[-1] + logits[-2] + logits[0]) / 3
        curves = zip(self.calibrations, logits, strict=True)
        return Forecast(risk, tuple(curve(logit) for curve, logit in curves), hazard)

    def is_alarming(self, forecast: Forecast) -> bool:
        """Whether a node is likely to fail."""
        return self.alarm_risk is not None and forecast.risk > self.alarm_risk

    def likely_resource(self, forecast: Forecast) -> Resource | None:
        """What the node most probably fails of; None where that was not known of nodes like it."""
        return self.resources[max(range(len(self.resources)), key=lambda at: forecast.hazard[at])]

    def _check(self) -> None:
        """Raises HazardModelError for numbers that do not belong together."""
        width, outputs = len(self.features), len(self.resources) * len(self.horizons)
        if not self.resources or len(self.horizons) < 3:
            raise HazardModelError("hazard_model.resources, hazard_model.horizons: one and three are the fewest")
        lengths = {
            "high": (len(self.high), width),
            "low": ({len(bounds) for bounds in self.low}, {width}),
            "coefficients": ({len(row) for row in self.coefficients}, {outputs} if width else set()),
            "coefficients, rows": (len(self.coefficients), width * len(self.low)),
            "constants": (len(self.constants), outputs),
            "calibrations": (len(self.calibrations), len(self.horizons)),
        }
        for name, (found, expected) in lengths.items():
            if found != expected:
                raise HazardModelError(f"hazard_model.{name}: {found} does not fit to {expected}")
        for at, curve in enumerate(self.calibrations):
            if len(curve.probabilities) < 2 or any(not 0 <= share <= 1 for share in curve.probabilities):
                raise HazardModelError(f"hazard_model.calibrations[{at}]: not two or more probabilities")
        numbers = [self.high, self.constants, *self.low, *self.coefficients, [self.alarm_risk or 0.0, self.made_at],
                   *([curve.low, curve.high] for curve in self.calibrations)]  # fmt: skip
        if not all(isfinite(number) for row in numbers for number in row):
            raise HazardModelError("hazard_model: a number is not finite")


def _logit_of_any(logits: Sequence[float]) -> float:
    """The logit of a failure of any resource, from those of each."""
    odds = 0.0
    for logit in logits:
        one = exp(min(logit, _MAX_LOGIT))
        odds += one + odds * one
    return log(max(odds, _MIN_HAZARD))


def node_features(devices: Iterable[Mapping[str, float]]) -> dict[str, float]:
    """Features of a node from those of its devices, by name: each is that of the worst device, and at least 0.

    That trouble becomes less says nothing that a model needs, and a node without a device is as one without trouble.
    """
    found: dict[str, float] = {}
    for features in devices:
        for name, value in features.items():
            found[name] = max(found.get(name, 0.0), value)
    return found


def feature_names(signals: Sequence[str]) -> tuple[str, ...]:
    """Names of all features of some trouble signals."""
    return tuple(f"{signal}.{feature}" for signal in signals for feature in NODE_FEATURES)
