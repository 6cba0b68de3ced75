"""The registry of signals: features by name, models by name, and signals of other distributions."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize

from pharoah_learning.degradation import COEFFICIENT_SPREAD, fit_degradation
from pharoah_learning.evidence import DegradedRun
from pharoah_learning.recipe import failure_index, learn_recipe
from pharoah_learning.release import DegradationModel, Release
from pharoah_learning.signals import (
    GROUP,
    SIGNALS,
    Feature,
    Signal,
    Source,
    WorseDirection,
    feature_names,
    features,
    features_over_time,
)
from pharoah_protocol.vocabulary import NO_FAULT
from pharoah_protocol.windows import MEMORY_RATIO, STEP_RATIO, Window
from tests.harness.plugins import write_plugin

WEIGHTS = {"slowdown": 7.3748521919793095, "trend": 4.336196675146061, "growth": 2.5257597782868846}
MEANS = {"slowdown": 0.05094101476879616, "trend": 0.034002091936449506, "growth": 0.13661018064019828}
"""A survival model, as releases up to format 5 had it."""


def planted(number: int) -> DegradedRun:
    """A run that is healthy, slows down or grows, with a fixed pattern in place of noise."""
    fault = ("none", "cpu_share", "host_leak")[number % 3]
    windows = []
    for at in range(14):
        wobble = 1 + 0.03 * ((7 * number + 5 * at) % 11 - 5) / 5
        step = wobble * (1 + (0.12 * max(0, at - 2 - number % 2) if fault == "cpu_share" else 0))
        memory = 1 + 0.002 * ((3 * number + at) % 5) + (0.15 * max(0, at - 3) if fault == "host_leak" else 0)
        windows.append(Window(at_seconds=0.5 * (at + 1), values={STEP_RATIO: step, MEMORY_RATIO: memory}))
    return DegradedRun(fault, tuple(windows), fault == "host_leak")


RUNS = [planted(number) for number in range(24)]


def test_the_fit_is_that_of_a_general_optimizer() -> None:
    """The penalised likelihood of a logistic regression, maximised by scipy from the features of all windows."""
    rows = [list(features(run.windows[: at + 1]).values()) for run in RUNS for at in range(len(run.windows))]
    x, sick = np.array(rows), np.array([run.fault != NO_FAULT for run in RUNS for _ in run.windows])

    def loss(beta: np.ndarray) -> float:
        odds = beta[0] + x @ beta[1:]
        return float(np.logaddexp(0, np.where(sick, -odds, odds)).sum() + (beta[1:] ** 2).sum() / 200)

    assert COEFFICIENT_SPREAD == 10
    expected = minimize(loss, np.zeros(4), method="BFGS", options={"gtol": 1e-6}).x[1:]
    assert (expected > 0).all()
    model, note = fit_degradation(RUNS)
    assert list(model.coefficients) == ["slowdown", "trend", "growth"]
    assert list(model.coefficients.values()) == pytest.approx(expected, rel=1e-3)
    assert (model.runs, model.degraded, model.fitted) == (24, 16, True)
    assert note.startswith("degradation: 24 runs, 16 degraded; log odds ratios slowdown +")


@given(
    st.lists(st.dictionaries(st.sampled_from([STEP_RATIO, MEMORY_RATIO, "unknown"]), st.floats(0.01, 100)), max_size=9)
)
def test_features_over_time_are_those_of_all_windows_until_then(measured: list[dict[str, float]]) -> None:
    windows = [Window(at_seconds=float(at), values=values) for at, values in enumerate(measured)]
    assert list(features_over_time(windows)) == [features(windows[: at + 1]) for at in range(len(windows))]


class CountedValues(dict[str, float]):
    """The values of a window; it counts how often one of them is read."""

    reads = 0

    def __getitem__(self, name: str) -> float:
        CountedValues.reads += 1
        return super().__getitem__(name)


def reads(count: int) -> int:
    """How often learning reads values of runs with so many windows."""
    before = CountedValues.reads
    runs = []
    for number in range(8):
        windows = [
            Window(at_seconds=float(at), values=CountedValues({STEP_RATIO: 1.0 + at % 3})) for at in range(count)
        ]
        fault = "cpu_share" if number % 2 else NO_FAULT
        runs.append(DegradedRun(fault, tuple(windows), False, node=f"n{number}", archetype="ab" * 16))
    assert fit_degradation(runs).model.runs == len(runs) and learn_recipe(runs)
    return CountedValues.reads - before


def test_learning_reads_the_windows_of_a_run_a_fixed_number_of_times() -> None:
    assert reads(80) == 2 * reads(40) > 0


@pytest.mark.parametrize(
    ("number", "count", "event", "expected", "score"),
    [
        (0, 14, None, (0.0, 0.031036010579507445, 0.005982071677547469), -0.7184791900790315),
        (1, 14, 10, (0.708075201144182, 0.13904436524146147, 0.001998002662673058), 4.961753426266802),
        (2, 14, 13, (0.0, 0.0, 0.9194856227706742), 1.454233090709568),
        (4, 1, None, (0.005982071677547469, 0.0, 0.003992021269537457), -0.8139669308172665),
        (4, 2, None, (0.0, 0.0, 0.005982071677547469), -0.8530574359636897),
        (4, 3, None, (0.0, 0.0, 0.007968169649176881), -0.848041029591211),
        (4, 5, None, (0.14288748754854774, 0.18414944268901876, 0.001998002662673058), 0.9891620646365683),
    ],
)
def test_features_and_risk_are_those_of_windows_without_names(
    number: int, count: int, event: int | None, expected: tuple[float, float, float], score: float
) -> None:
    windows = RUNS[number].windows[:count]
    if count == 14:
        assert failure_index(RUNS[number]) == event
    found = features(windows)
    assert tuple(found) == feature_names()
    assert tuple(found.values()) == pytest.approx(expected, rel=1e-12, abs=1e-15)
    stored = {"coefficients": WEIGHTS, "means": MEANS, "threshold": 0.0, "runs": 24, "events": 16, "method": "cox"}
    model = DegradationModel.from_survival_model(stored)
    assert model.score(found) - model.threshold == pytest.approx(score, rel=1e-12)


def test_less_memory_than_in_the_beginning_excuses_no_slow_steps() -> None:
    slow, grown, shrunk = (
        features([Window(at_seconds=1.0, values={STEP_RATIO: 1.4, MEMORY_RATIO: ratio})]) for ratio in (1.0, 1.5, 0.5)
    )
    assert shrunk == slow and grown["growth"] > 0.4
    faster = features([Window(at_seconds=1.0, values={STEP_RATIO: 0.5, MEMORY_RATIO: 1.5})])
    assert faster == {**grown, "slowdown": 0.0}
    model = DegradationModel(WEIGHTS, 0.0, 24, 16)
    assert model.score(shrunk) == model.score(slow) > 0


def test_a_signal_that_was_not_measured_speaks_for_nothing() -> None:
    without_memory = [Window(at_seconds=1.0, values={STEP_RATIO: 2.0})]
    assert features(without_memory)["growth"] == 0.0
    assert features(without_memory)["slowdown"] > 0.6


def test_a_stored_release_of_the_first_format_scores_as_before() -> None:
    """The coefficients were a list, and the model and the baselines had figures that nobody read."""
    first = {
        "release": 3,
        "rows": [],
        "survival": {
            "coefficients": list(WEIGHTS.values()),
            "means": list(MEANS.values()),
            "hazard_per_second": 0.031,
            "threshold": 0.16,
            "runs": 24,
            "events": 16,
            "method": "cox",
        },
        "baselines": [
            {
                "node": "n1",
                "benchmark": "gemm",
                "beside_job": True,
                "seconds": 0.01,
                "spread_ratio": 0.1,
                "rounds": 2,
            }
        ],
        "notes": [],
    }
    release = Release.from_dict(first)
    assert release.degradation is not None and release.degradation.coefficients == WEIGHTS
    above = sum(WEIGHTS[name] * MEANS[name] for name in WEIGHTS)
    assert release.degradation.threshold == pytest.approx(0.16 + above, rel=1e-12)
    assert release.baselines[0].seconds == 0.01
    assert Release.from_dict(asdict(release)) == release
    with pytest.raises(ValueError, match="format 99"):
        Release.from_dict({**first, "format": 99})


def test_windows_of_the_first_format_are_read() -> None:
    assert Window.from_data([0.5, 1.5, 1.1]) == Window(at_seconds=0.5, values={STEP_RATIO: 1.5, MEMORY_RATIO: 1.1})
    with pytest.raises(ValueError, match="expected 3 numbers"):
        Window.from_data([0.5, 1.5])


def test_a_signal_checks_its_parameters() -> None:
    feature = Feature(name="heat", measures="m", compute=max)
    for changes in ({"name": "GPU heat"}, {"features": ()}, {"features": (feature, feature)}, {"worse": "higher"}):
        parameters = {
            "name": "heat",
            "measures": "m",
            "source": Source.TELEMETRY,
            "worse": WorseDirection.HIGHER,
            "features": (feature,),
        }
        with pytest.raises(ValueError, match="signal"):
            Signal(**{**parameters, **changes})  # type: ignore[arg-type]


PLUGIN = """
from pharoah_learning.signals import GROUP, SIGNALS, Feature, Signal, Source, WorseDirection

ENTRY = Signal(
    name="{name}",
    measures="clock of the GPU over its highest clock, a ratio",
    source=Source.TELEMETRY,
    worse=WorseDirection.LOWER,
    features=(Feature(name="{feature}", measures="newest clock ratio less 1", compute=lambda v: v[-1] - 1),),
)
"""
SHOW = """
from pharoah_learning.signals import SIGNALS, features
from pharoah_protocol.windows import Window
print(list(SIGNALS.entries))
print(features([Window(at_seconds=1.0, values={"clock_ratio": 0.25})]))
"""


def shown(folder: Path, name: str, feature: str) -> subprocess.CompletedProcess[str]:
    write_plugin(folder, GROUP, PLUGIN.format(name=name, feature=feature), name="clock")
    environ = {**os.environ, "PYTHONPATH": str(folder)}
    return subprocess.run([sys.executable, "-c", SHOW], capture_output=True, text=True, env=environ)


def test_a_plug_in_adds_a_signal_and_its_feature(tmp_path: Path) -> None:
    done = shown(tmp_path, "clock_ratio", "clock_loss")
    assert done.returncode == 0, done.stderr
    names, found = done.stdout.splitlines()
    assert names == "['clock_ratio', 'memory_ratio', 'step_ratio']"
    # A lower value is worse, so the feature is turned round: 1 - 0.25.
    assert "'clock_loss': 0.75" in found


@pytest.mark.parametrize(
    ("name", "feature", "named"),
    [
        (
            "step_ratio",
            "clock_loss",
            "entry point 'clock' of pharoah.signals (clock:ENTRY): "
            "pharoah.signals has an entry with the name 'step_ratio' already",
        ),
        ("clock_ratio", "growth", "signal clock_ratio: memory_ratio has a feature 'growth', too"),
        ("Clock", "clock_loss", "entry point 'clock' of pharoah.signals (clock:ENTRY) cannot be loaded: ValueError"),
    ],
)
def test_a_plug_in_that_cannot_be_used_is_named(tmp_path: Path, name: str, feature: str, named: str) -> None:
    done = shown(tmp_path, name, feature)
    assert done.returncode != 0 and named in done.stderr


def test_the_signals_that_come_with_pharoah() -> None:
    assert {STEP_RATIO, MEMORY_RATIO} <= set(SIGNALS.entries)
    assert feature_names()[:3] == ("slowdown", "trend", "growth")
