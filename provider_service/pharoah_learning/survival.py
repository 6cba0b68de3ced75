"""The survival model of degradation: a time-varying Cox model (lifelines) over windows of degraded runs.

Failure event: the process died, or its step time stayed at 1.5 times its own baseline or more for four windows.
Everything else censors.

One node proves nothing (ADR 21): in the fit every node weighs the same, however many runs and windows it has. And
whatever a node reports, a run whose steps stay 1.5 times as long as its baseline is risky, and a run within 15 % of its
baseline, without a trend and without growth, is not.
"""

from __future__ import annotations

import warnings
from collections import Counter, defaultdict
from collections.abc import Sequence
from math import log
from statistics import median_low
from typing import Any, NamedTuple

from pharoah_learning.evidence import DegradedRun
from pharoah_learning.models.hazard import risk
from pharoah_learning.release import FALLBACK_SLOWDOWN, SurvivalModel
from pharoah_learning.signals import feature_names, features
from pharoah_protocol.vocabulary import NO_FAULT
from pharoah_protocol.windows import STEP_RATIO

FAILURE_RATIO = 1.5
FAILURE_WINDOWS = 4
LEAST_EVENTS = 4
RIDGES = (5.0, 25.0)
"""Strengths of the penalty on the scale of events (lifelines multiplies its penalizer by the number of rows), tried
in turn: where few events separate the runs completely, only a stronger one converges."""
THRESHOLD_MARGIN = 0.05
"""The threshold is the highest risk of a healthy run plus this."""
_SLOWDOWN, _WEIGHT = "slowdown", "weight"
"""The feature that the bounds of the threshold are about, and the column of weights, which is no feature."""


class _Fit(NamedTuple):
    coefficients: dict[str, float]
    means: dict[str, float]


def event_index(run: DegradedRun) -> int | None:
    """Index of the window at which the run failed; None when it was censored."""
    held = 0
    for at, window in enumerate(run.windows):
        held = held + 1 if window.values.get(STEP_RATIO, 1.0) >= FAILURE_RATIO else 0
        if held == FAILURE_WINDOWS:
            return at
    return len(run.windows) - 1 if run.died and run.windows else None


class FittedSurvival(NamedTuple):
    """A survival model, and how its fit went."""

    model: SurvivalModel
    note: str
    """One line for people."""


def fit_survival(runs: Sequence[DegradedRun]) -> FittedSurvival:
    """Fit the model. With fewer than four events, a plain threshold on slowdown instead."""
    weights = _weights(runs)
    rows = [row | {_WEIGHT: weights[run.node]} for number, run in enumerate(runs) for row in _intervals(number, run)]
    events = int(sum(row["event"] for row in rows))
    if events < LEAST_EVENTS:
        note = f"survival: {events} events are too few; plain slowdown threshold"
        return FittedSurvival(model=SurvivalModel.threshold_only(len(runs), events), note=note)
    fitted = next((fit for ridge in RIDGES if (fit := _fit(rows, ridge)) is not None), None)
    if fitted is None or fitted.coefficients.get(_SLOWDOWN, 0.0) <= 0:
        why = "no convergence" if fitted is None else "slowdowns do not count in the fit"
        note = f"survival: {why}; plain slowdown threshold"
        return FittedSurvival(model=SurvivalModel.threshold_only(len(runs), events), note=note)
    threshold = _threshold(fitted, [run for run in runs if run.fault == NO_FAULT])
    model = SurvivalModel(fitted.coefficients, fitted.means, threshold, len(runs), events)
    shown = ", ".join(f"{name} {value:+.2f}" for name, value in fitted.coefficients.items())
    note = f"survival: {len(runs)} runs, {events} events; log hazard ratios {shown}; threshold {threshold:.2f}"
    return FittedSurvival(model=model, note=note)


def _weights(runs: Sequence[DegradedRun]) -> dict[str, float]:
    """Weight of a run by its node: all nodes weigh the same, and together as much as there are runs."""
    runs_of = Counter(run.node for run in runs)
    return {node: len(runs) / (len(runs_of) * count) for node, count in runs_of.items()}


def _threshold(fitted: _Fit, healthy: Sequence[DegradedRun]) -> float:
    """Above the risk of all healthy runs of a node, as conformal prediction does (Vovk, Gammerman and Shafer 2005): the
    lower median over nodes. It lies between the risks of a steady slowdown of 15 % and of one that is a failure.
    """
    peaks: dict[str, list[float]] = defaultdict(list)
    for run in healthy:
        if scores := _risks(run, fitted):
            peaks[run.node].append(_sustained_peak(scores) + THRESHOLD_MARGIN)
    lowest, highest = (_steady_risk(fitted, slowdown) for slowdown in (FALLBACK_SLOWDOWN, log(FAILURE_RATIO)))
    seen = median_low(max(found) for found in peaks.values()) if peaks else lowest
    return min(max(lowest, seen), highest)


def _steady_risk(fitted: _Fit, slowdown: float) -> float:
    """The risk of a run that has slowed down by this log ratio and shows nothing else."""
    return risk(dict.fromkeys(fitted.coefficients, 0.0) | {_SLOWDOWN: slowdown}, fitted.coefficients, fitted.means)


def _intervals(number: int, run: DegradedRun) -> list[dict[str, float]]:
    """One row of the fit per window: the features that were known before it, and whether the run failed in it."""
    failed = event_index(run)
    last = failed if failed is not None else len(run.windows) - 1
    rows: list[dict[str, float]] = []
    for at in range(1, last + 1):
        start, stop = run.windows[at - 1].at_seconds, run.windows[at].at_seconds
        if stop > start:
            row = {"id": float(number), "start": start, "stop": stop, "event": float(at == failed)}
            rows.append(row | features(run.windows[:at]))
    return rows


def _fit(rows: list[dict[str, float]], ridge: float) -> _Fit | None:
    """Coefficients and feature means; None when the fit does not converge.

    Every feature is made so that larger is worse. With few events one can come out negative by chance, and would
    then excuse a node that gets worse: it is left out and the rest fitted again.
    """
    import pandas as pd  # takes half a second, and the monitor imports this module

    names = list(feature_names())
    frame = pd.DataFrame(rows)
    fitted_names = [name for name in names if frame[name].std() > 0]  # nothing can be learned from a constant
    while fitted_names:
        fitted = _cox(frame[["id", "start", "stop", "event", _WEIGHT, *fitted_names]], ridge)
        if fitted is None or not fitted.notna().all():
            return None
        if (fitted >= 0).all():
            break
        fitted_names.remove(str(fitted.idxmin()))
    else:
        return None
    coefficients = fitted.reindex(names).fillna(0.0).to_numpy(dtype=float).tolist()
    means = frame[names].to_numpy(dtype=float).mean(axis=0).tolist()
    return _Fit(dict(zip(names, coefficients, strict=True)), dict(zip(names, means, strict=True)))


def _cox(frame: Any, ridge: float) -> Any:
    """Log hazard ratios by feature, or None without convergence. lifelines multiplies its penalizer by the rows."""
    from lifelines import CoxTimeVaryingFitter

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
                weights_col=_WEIGHT,
                fit_options={"step_size": 0.3},
            )
        except Exception:  # noqa: BLE001 - besides ConvergenceError: what numpy and pandas raise for odd numbers
            return None
    return fitter.params_


def _risks(run: DegradedRun, fitted: _Fit) -> list[float]:
    """The risk after each window of a run."""
    return [risk(features(run.windows[: at + 1]), fitted.coefficients, fitted.means) for at in range(len(run.windows))]


def _sustained_peak(scores: Sequence[float]) -> float:
    """Highest risk that two of three windows in a row reach: what the monitor would act on."""
    if len(scores) < 3:
        return sorted(scores)[-2] if len(scores) == 2 else scores[0]
    return max(sorted(scores[i : i + 3])[1] for i in range(len(scores) - 2))
