"""A simulated fleet: what the hazard models see, beside simpler detectors and the true hazard.

Models are fitted on one fleet, calibrated on a second and measured on a third. A fleet has some hundred failures, so
what one draw of three fleets gives says little: ranking, alarms and calibration are means over several draws.
Everything is simulated; it ranks methods, and forecasts nothing (`simulated_fleet`).
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import inf
from pathlib import Path
from typing import NamedTuple

import numpy as np

from evaluation.figures import Figures
from evaluation.survival.fleet_file import FleetFileError, Fleets, check_comparable, read_fleets
from evaluation.survival.metrics import Alarms, Ranking, alarms_of, ranking, recall_if_repeated
from evaluation.survival.simple_detectors import simple_scores
from evaluation.survival.simulated_fleet import FleetTruth, Simulated, drifted, simulate
from pharoah_learning.hazard_fits import Fleet, TooLittleSeen, learn_hazards
from pharoah_learning.hazards import HORIZONS, HazardModel
from pharoah_learning.models.alarm_budget import conformal_threshold
from pharoah_learning.models.mantel_haenszel import Array

BUDGETS = (0.5, 2.0)
"""False alarms in a thousand unit-days."""
MIN_RECALL = {0.5: 0.65, 2.0: 0.85}
MIN_LEAD_HOURS = {0.5: 10.0, 2.0: 20.0}
MIN_C, MIN_AUC, MIN_OF_ORACLE = 0.78, 0.84, 0.85
SHARES = (0.05, 0.02, 0.01)
"""Shares of healthy runs that may ever alarm, as promised."""
MAX_OVER_NOMINAL = 1.2
OE = (0.9, 1.1)
DRAWS, QUICK_DRAWS = 5, 2
QUICK_UNITS = 6_000
MODEL, FREE, ORACLE = "hazards and horizons", "the same, effects may fall", "true hazard"


class Draw(NamedTuple):
    """What methods see on one draw, by name."""

    ranked: dict[str, Ranking]
    alarmed: dict[str, dict[float, Alarms]]
    """By budget of false alarms."""
    repeated: dict[float, float]
    """By budget: the recall of the model if an alarm that goes on counted once a day."""
    over_expected: tuple[float, ...] = ()
    """For each horizon, failures that would have come without cancelling over those that the model expects. Empty where
    it is not known when cancelled runs would have failed."""


def measure(figures: Figures, arguments: argparse.Namespace) -> None:
    """Fit, calibrate and measure. The first draw gives everything, the others ranking, alarms and calibration of
    the models."""
    rng = np.random.default_rng(arguments.seed)
    parameters = replace(Simulated(), units=QUICK_UNITS) if arguments.quick else Simulated()
    fleets = _fleets(parameters, rng)
    first, model, calibrated = _measured(figures, fleets, arguments.seed)
    first = first._replace(over_expected=_over_expected(model, fleets.test))
    drifting = simulate(drifted(parameters), rng)
    _add_drift(figures, model, drifting, calibrated, fleets.calibrate.fleet)
    del fleets, drifting  # each draw takes a gigabyte
    seeds = [arguments.seed + further for further in range(1, QUICK_DRAWS if arguments.quick else DRAWS)]
    _add_draws(figures, [first, *_further(parameters, seeds)])


def measure_file(figures: Figures, path: Path, seed: int) -> None:
    """The same for a fleet of others (`fleet_file`). When runs that were cancelled would have failed is not known."""
    try:
        fleets = read_fleets(path)
        check_comparable(fleets, path)
        draw, _, _ = _measured(figures, fleets, seed)
    except (FleetFileError, TooLittleSeen, OSError) as error:
        raise SystemExit(f"--simulator-data: {error}") from None
    _add_draws(figures, [draw])
    figures.skip("calibration_oe_ratio", "needs to be known for cancelled runs")


def _fleets(parameters: Simulated, rng: np.random.Generator) -> Fleets:
    train, held_out = simulate(parameters, rng), simulate(replace(parameters, units=parameters.units // 2), rng)
    return Fleets(train, held_out, simulate(parameters, rng), has_hazard=True)


def _further(parameters: Simulated, seeds: Sequence[int]) -> Iterator[Draw]:
    """What the model and the true hazard see on other draws, one after the other, and how it is calibrated there."""
    for seed in seeds:
        fleets = _fleets(parameters, np.random.default_rng(seed))
        model = learn_hazards(fleets.train.fleet, fleets.calibrate.fleet, seed)
        test, held_out = ({MODEL: _scores(model, truth)} for truth in (fleets.test, fleets.calibrate))
        draw = _draw(fleets, test | {ORACLE: np.log(fleets.test.hazard)}, held_out)
        yield draw._replace(over_expected=_over_expected(model, fleets.test))


def _scores(model: HazardModel, truth: FleetTruth) -> Array:
    """The risk, shape (units, hours), NaN where a unit is not observed."""
    unit, hour = np.nonzero(truth.fleet.observed)
    return truth.fleet.place(model.score(truth.fleet.features[unit, hour], truth.fleet.group[unit]).risk)


def _draw(fleets: Fleets, scored: dict[str, Array], calibrated: dict[str, Array]) -> Draw:
    """Alarms are those of the methods that have scores of the fleet that they are calibrated on."""
    alarmed = {
        name: {
            budget: alarms_of(scored[name], fleets.test, calibrated[name], fleets.calibrate.fleet, budget)
            for budget in BUDGETS
        }
        for name in calibrated
    }
    repeated = {
        budget: recall_if_repeated(scored[MODEL], fleets.test, calibrated[MODEL], fleets.calibrate.fleet, budget)
        for budget in BUDGETS
    }
    return Draw({name: ranking(scores, fleets.test.fleet) for name, scores in scored.items()}, alarmed, repeated)


def _measured(figures: Figures, fleets: Fleets, seed: int) -> tuple[Draw, HazardModel, Array]:
    """What all methods see, the model, and its scores of the fleet that it was calibrated on."""
    train, held_out, test, has_hazard = fleets
    model = learn_hazards(train.fleet, held_out.fleet, seed)
    free = learn_hazards(train.fleet._replace(worse=(None,) * len(train.fleet.names)), held_out.fleet, seed)
    failures, degrading = int((test.fleet.cause > 0).sum()), int(test.degrading.sum())
    figures.add("failures", failures, interval=f"{degrading} after degradations")
    scored, calibrated = (_all_scores(model, free, train, one, has_hazard) for one in (test, held_out))
    draw = _draw(fleets, scored, calibrated)
    _add_conformal(figures, scored[MODEL], test.fleet, calibrated[MODEL], held_out.fleet)
    _add_table(figures, draw)
    return draw, model, calibrated[MODEL]


def _all_scores(
    model: HazardModel, free: HazardModel, train: FleetTruth, truth: FleetTruth, has_hazard: bool
) -> dict[str, Array]:
    """The scores of each method, shape (units, hours), NaN where a unit is not observed. `free`: the same model, whose
    effects may fall as well."""
    unit, hour = np.nonzero(truth.fleet.observed)
    found = model.outputs(truth.fleet.features[unit, hour], truth.fleet.group[unit])
    scores = {
        MODEL: _scores(model, truth),
        FREE: _scores(free, truth),
        "hazards alone": truth.fleet.place(np.log(np.exp(found.log_hazard, dtype=float).sum(axis=1))),
        "horizon of a day alone": truth.fleet.place(found.logit[:, -1].astype(float)),
    }
    scores |= simple_scores(train, truth)
    possible = np.maximum(truth.hazard, np.finfo(float).tiny)  # a file may state that nothing can fail
    return scores | {ORACLE: np.log(possible)} if has_hazard else scores


def _add_draws(figures: Figures, draws: Sequence[Draw]) -> None:
    """Ranking, alarms and calibration of the models, as means over draws."""
    own, best = ([draw.ranked[name] for draw in draws if name in draw.ranked] for name in (MODEL, ORACLE))
    _add_mean(figures, "c_index", [one.c_index for one in own], MIN_C)
    _add_mean(figures, "auc_24h", [one.auc_24h for one in own], MIN_AUC)
    if best:
        ratios = [one.average_precision / oracle.average_precision for one, oracle in zip(own, best, strict=True)]
        _add_mean(figures, "ap_over_oracle_ratio", ratios, MIN_OF_ORACLE)
    else:
        figures.skip("ap_over_oracle_ratio", "needs a column true_hazard")
    for budget in BUDGETS:
        alarms, name = [draw.alarmed[MODEL][budget] for draw in draws], f"{budget:g}".replace(".", "_")
        _add_mean(figures, f"recall_degrading_{name}", [one.recall for one in alarms], MIN_RECALL[budget])
        _add_mean(figures, f"lead_hours_{name}", [one.lead_hours for one in alarms], MIN_LEAD_HOURS[budget])
        _add_mean(figures, f"false_alarms_{name}", [one.per_1000_unit_days for one in alarms])
        _add_mean(figures, f"recall_degrading_{name}_if_repeated", [draw.repeated[budget] for draw in draws])

    if all(draw.over_expected for draw in draws):
        *shorter, day = np.array([draw.over_expected for draw in draws]).T
        _add_mean(figures, "calibration_oe_ratio", day, *OE)
        for horizon, found in zip(HORIZONS, shorter, strict=False):
            _add_mean(figures, f"calibration_oe_ratio_{horizon}h", found)


def _add_mean(
    figures: Figures, name: str, values: Sequence[float] | Array, least: float | None = None, most: float = inf
) -> None:
    """The mean over draws, and the range of the draws."""
    mean = float(np.mean(values))
    must = "" if least is None else f">= {least:g}" if most == inf else f"{least:g} to {most:g}"
    holds = least is None or least <= mean <= most
    figures.add(name, mean, must, holds, f"{min(values):.3g} to {max(values):.3g}, n={len(values)} draws")


def _add_conformal(figures: Figures, scores: Array, fleet: Fleet, calibrated: Array, held_out: Fleet) -> None:
    peaks, others = np.nanmax(scores[fleet.cause == 0], axis=1), np.nanmax(calibrated[held_out.cause == 0], axis=1)
    rows = []
    for share in SHARES:
        realised = float((peaks > conformal_threshold(others, share)).mean())
        rows.append([f"{share:g}", f"{realised:.4f}", f"{realised / share:.2f}"])
        if share == SHARES[0]:
            ratio = realised / share
            must, holds = f"<= {MAX_OVER_NOMINAL}", ratio <= MAX_OVER_NOMINAL
            figures.add("conformal_realised_over_nominal_ratio", ratio, must, holds, f"{share:g} promised")
    figures.table("Healthy runs that ever alarm.", ["promised share", "realised", "ratio"], rows)


def _over_expected(model: HazardModel, truth: FleetTruth) -> tuple[float, ...]:
    """Failures that would have come, had nobody cancelled a run, over those that were expected, for each horizon."""
    fleet, hours = truth.fleet, truth.fleet.features.shape[1]
    found = []
    for place, horizon in enumerate(HORIZONS):
        unit, hour = np.nonzero(fleet.observed & (np.arange(hours) + horizon <= hours))
        expected = model.score(fleet.features[unit, hour], fleet.group[unit]).probability[:, place].sum()
        found.append(float(((truth.would_fail[unit] - hour) < horizon).sum() / expected))
    return tuple(found)


def _add_drift(figures: Figures, model: HazardModel, truth: FleetTruth, calibrated: Array, held_out: Fleet) -> None:
    """A hall that becomes warmer, and counters that count more, of which no model knows."""
    scores = _scores(model, truth)
    found = alarms_of(scores, truth, calibrated, held_out, BUDGETS[1])
    over = found.per_1000_unit_days / BUDGETS[1]
    figures.add("drift_c_index", ranking(scores, truth.fleet).c_index)
    figures.add("drift_false_alarms_over_budget_ratio", over, interval="not calibrated again")
    figures.add("drift_recall_degrading", found.recall)


def _add_table(figures: Figures, draw: Draw) -> None:
    ranked, alarmed = draw.ranked, draw.alarmed
    rows = [
        [name, *(f"{value:.3f}" for value in ranked[name]), *(_shown(alarmed[name][budget]) for budget in BUDGETS)]
        for name in ranked
    ]
    columns = ["method", "C", "AUC 24 h", "average precision", *(f"alarms, budget {budget:g}" for budget in BUDGETS)]
    caption = (
        "Methods beside each other, in the first draw. Alarms: recall after degradations (of all failures), median "
        "lead, realised false alarms per 1,000 unit-days."
    )
    figures.table(caption, columns, rows)


def _shown(found: Alarms) -> str:
    return f"{found.recall:.2f} ({found.recall_all:.2f}), {found.lead_hours:.0f} h, {found.per_1000_unit_days:.2g}"
