"""A small published hazard model whose forecasts can be computed by hand."""

from __future__ import annotations

from pharoah_protocol.hazard_model import Curve, PublishedHazardModel
from pharoah_protocol.vocabulary import Resource

STRAIGHT = Curve(low=-10.0, high=10.0, probabilities=(0.0, 0.5, 1.0))
MODEL = PublishedHazardModel(
    made_at=1_700_000_000.0,
    features=("hot.level", "down.level"),
    resources=(Resource.COMPUTE, None),
    horizons=(1, 6, 24),
    low=((-9.0, -9.0), (0.5, 9.0)),
    high=(2.0, 10.0),
    coefficients=(
        (1.0, 0.0, 2.0, 0.0, 3.0, 0.0),
        (0.0, 1.0, 0.0, 0.5, 0.0, 0.5),
        (4.0, 0.0, 0.0, 0.0, 0.0, 0.0),
        (0.0, 0.0, 0.0, 0.0, 0.0, 0.0),
    ),
    constants=(-5.0, -6.0, -4.0, -6.0, -3.0, -5.0),
    calibrations=(STRAIGHT, STRAIGHT, STRAIGHT),
    alarm_risk=-2.0,
    failures=30,
    nodes=100,
)
