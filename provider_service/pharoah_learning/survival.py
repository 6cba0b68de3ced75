"""The survival model of degradation: a time-varying Cox model (lifelines) over windows of degraded runs.

Failure event: the process died, or its step time stayed at 1.5 x its own baseline or more for a stated time. Everything
else censors.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from pharoah_learning.evidence import DegradedRun
from pharoah_learning.models.hazard import FEATURES, features, risk
from pharoah_learning.release import SurvivalModel

FAILURE_RATIO = 1.5
FAILURE_WINDOWS = 4
LEAST_EVENTS = 4
RIDGES = (5.0, 25.0)
"""Strengths of the penalty on the scale of events (lifelines multiplies its penalizer by the number of rows), tried
in turn: where few events separate the runs completely, only a stronger one converges."""
THRESHOLD_MARGIN = 0.05
FALLBACK_SLOWDOWN = float(np.log(1.15))


def event_index(run: DegradedRun) -> int | None:
    """Index of the window at which the run failed; None when it was censored."""
    held = 0
    for at, (_, step_ratio, _) in enumerate(run.windows):
        held = held + 1 if step_ratio >= FAILURE_RATIO else 0
        if held == FAILURE_WINDOWS:
            return at
    return len(run.windows) - 1 if run.died and run.windows else None


def fit_survival(runs: Sequence[DegradedRun]) -> tuple[SurvivalModel, str]:
    """The model and a note for people. With fewer than four events, a plain threshold on slowdown instead."""
    rows = [row for number, run in enumerate(runs) for row in _intervals(number, run)]
    events = sum(row["event"] for row in rows)
    if events < LEAST_EVENTS:
        return _fallback(
            len(runs), int(events)
        ), f"survival: {int(events)} events are too few; plain slowdown threshold"
    fitted = next((fit for ridge in RIDGES if (fit := _fit(rows, ridge)) is not None), None)
    if fitted is None:
        return _fallback(len(runs), int(events)), "survival: no convergence; plain slowdown threshold"
    coefficients, means, hazard = fitted
    healthy = [_risks(run, coefficients, means) for run in runs if run.kind == "none"]
    peaks = [_sustained_peak(scores) for scores in healthy if scores]
    floor = risk(np.array([FALLBACK_SLOWDOWN, 0.0, 0.0]), coefficients, means)
    # Conformal in spirit: above all healthy runs seen; with few of them, never below a 15 % slowdown at rest.
    threshold = max([floor, *(peak + THRESHOLD_MARGIN for peak in peaks)]) if peaks else floor
    model = SurvivalModel(tuple(coefficients), tuple(means), hazard, threshold, len(runs), int(events))
    shown = ", ".join(f"{name} {value:+.2f}" for name, value in zip(FEATURES, coefficients, strict=True))
    return (
        model,
        f"survival: {len(runs)} runs, {int(events)} events; log hazard ratios {shown}; threshold {threshold:.2f}",
    )


def _intervals(number: int, run: DegradedRun) -> list[dict[str, float]]:
    failed = event_index(run)
    last = failed if failed is not None else len(run.windows) - 1
    rows: list[dict[str, float]] = []
    for at in range(1, last + 1):
        seen = run.windows[:at]
        x = features([w[1] for w in seen], [w[2] for w in seen])
        row = {
            "id": float(number),
            "start": seen[-1][0],
            "stop": run.windows[at][0],
            "event": float(at == failed),
        }
        if row["stop"] > row["start"]:
            rows.append(row | dict(zip(FEATURES, x, strict=True)))
    return rows


def _fit(rows: list[dict[str, float]], ridge: float) -> tuple[list[float], list[float], float] | None:
    """Coefficients, feature means and baseline hazard per second; None when the fit does not converge.

    Every feature is made so that larger is worse. With few events one can come out negative by chance, and would
    then excuse a node that gets worse: it is left out and the rest fitted again.
    """
    import pandas as pd

    frame = pd.DataFrame(rows)
    told = [name for name in FEATURES if frame[name].std() > 0]  # a feature that never varied tells nothing
    while told:
        fitted = _cox(frame[["id", "start", "stop", "event", *told]], ridge)
        if fitted is None or not fitted.notna().all():
            return None
        if (fitted >= 0).all():
            break
        told.remove(str(fitted.idxmin()))
    else:
        return None
    coefficients = fitted.reindex(list(FEATURES)).fillna(0.0).to_numpy(dtype=float)
    observed = frame[list(FEATURES)].to_numpy(dtype=float)
    means = observed.mean(axis=0)
    spans = (frame["stop"] - frame["start"]).to_numpy(dtype=float)
    exposure = float((spans * np.exp((observed - means) @ coefficients)).sum())
    return coefficients.tolist(), means.tolist(), float(frame["event"].sum()) / exposure


def _cox(frame: Any, ridge: float) -> Any:
    """Log hazard ratios by feature, or None without convergence. lifelines multiplies its penalizer by the rows."""
    from lifelines import CoxTimeVaryingFitter
    from lifelines.exceptions import ConvergenceError

    fitter = CoxTimeVaryingFitter(penalizer=ridge / len(frame))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # near-separation is expected with few events; the ridge is there for it
        try:
            fitter.fit(
                frame,
                id_col="id",
                event_col="event",
                start_col="start",
                stop_col="stop",
                fit_options={"step_size": 0.3},
            )
        except ConvergenceError:
            return None
    return fitter.params_


def _risks(run: DegradedRun, coefficients: Sequence[float], means: Sequence[float]) -> list[float]:
    steps, memory = [w[1] for w in run.windows], [w[2] for w in run.windows]
    return [risk(features(steps[: i + 1], memory[: i + 1]), coefficients, means) for i in range(len(steps))]


def _sustained_peak(scores: Sequence[float]) -> float:
    """Highest risk that two of three windows in a row reach: what the monitor would act on."""
    if len(scores) < 3:
        return sorted(scores)[-2] if len(scores) == 2 else scores[0]
    return max(sorted(scores[i : i + 3])[1] for i in range(len(scores) - 2))


def _fallback(runs: int, events: int) -> SurvivalModel:
    return SurvivalModel((1.0, 0.0, 0.0), (0.0, 0.0, 0.0), 0.0, FALLBACK_SLOWDOWN, runs, events, method="threshold")
