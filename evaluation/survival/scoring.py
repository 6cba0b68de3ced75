"""Time to score ten thousand units, on one core, beside lifelines.

lifelines has one model for each resource, fitted on the same columns without pieces. It is asked for the cumulative
hazard within each horizon, which probabilities are made of, and for the hazard ratios alone.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable

import numpy as np
import pandas as pd
from lifelines import CoxPHFitter

from evaluation.figures import Figures
from evaluation.survival.simulated_fleet import NAMES, Simulated, simulate
from pharoah_learning.hazard_fits import learn_hazards
from pharoah_learning.hazards import HORIZONS

UNITS = 10_000
ROUNDS = 30
"""Times that both sides score in turn; the fastest of each counts."""
MAX_SECONDS, MIN_RATIO = 0.005, 10.0


def measure(figures: Figures, arguments: argparse.Namespace) -> None:
    """Score the same units with both."""
    rng = np.random.default_rng(arguments.seed)
    parameters = Simulated(units=3000, degrading_share=0.2)
    fleet, held_out = simulate(parameters, rng).fleet, simulate(parameters, rng).fleet
    model = learn_hazards(fleet, held_out, arguments.seed)
    features = np.tile(fleet.features[np.arange(len(fleet.last)), fleet.last], (4, 1))[:UNITS]
    group = np.tile(fleet.group, 4)[:UNITS]
    frame = pd.DataFrame(features, columns=list(NAMES))
    peers = [_peer(frame, fleet.last, fleet.cause == place + 1) for place in range(len(fleet.resources))]
    ours, theirs, ratios = [], [], []
    for _ in range(ROUNDS):
        ours.append(_seconds(lambda: model.score(features, group)))
        theirs.append(_seconds(lambda: [peer.predict_cumulative_hazard(frame, times=HORIZONS) for peer in peers]))
        ratios.append(_seconds(lambda: [peer.predict_partial_hazard(frame) for peer in peers]))
    seconds, ratio = min(ours), min(theirs) / min(ours)
    interval = f"{len(NAMES)} features, {min(ours) * 1e3:.2g} to {max(ours) * 1e3:.2g} ms"
    figures.add("score_10k_jobs_seconds", seconds, f"<= {MAX_SECONDS}", seconds <= MAX_SECONDS, interval)
    figures.add("score_ratio_to_lifelines", ratio, f">= {MIN_RATIO:g}", ratio >= MIN_RATIO, "within each horizon")
    figures.add("score_ratio_to_lifelines_hazard_ratios", min(ratios) / min(ours), interval="hazard ratios alone")


def _peer(frame: pd.DataFrame, last: np.ndarray, failed: np.ndarray) -> CoxPHFitter:
    data = frame[: len(last)].assign(stop=last + 1.0, failed=failed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return CoxPHFitter(penalizer=0.1).fit(data, "stop", "failed")


def _seconds(work: Callable[[], object]) -> float:
    """Seconds of the processor, so that more than one core is no advantage."""
    began = time.process_time()
    work()
    return time.process_time() - began
