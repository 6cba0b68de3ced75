"""The partial likelihood on the lives of 14,000 GPUs of the machine Titan, beside lifelines.

The file is that of Ostrouchov and others (2020): a row for each GPU with its years, whether it failed, and where it
stood. Columns are indicators of the cage and the node on a blade and of the batch.
"""

from __future__ import annotations

import argparse
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
from lifelines import CoxPHFitter

from evaluation.figures import Figures
from pharoah_learning.hazard_fits import CONTROLS
from pharoah_learning.models.cox import Spells, fit_cox, fit_sampled, sample_sets

FILE = Path("titan_gpu_life/gc_summary_loc.csv.gz")
DRAWS, QUICK_DRAWS = 20, 3
"""Times that controls are drawn. The figure is the mean over draws of the largest difference of a coefficient."""
MAX_ERROR, MAX_SE = 0.002, 0.3
TIGHTEST = 1e-12
"""The precision at which lifelines stops."""


def measure(figures: Figures, arguments: argparse.Namespace) -> None:
    """Fit both likelihoods. Raises SystemExit without `--data`."""
    if arguments.data is None:
        raise SystemExit("--data DIR: the folder that holds titan_gpu_life")
    lives = pd.read_csv(arguments.data / FILE)
    lives = lives[lives.years > 0]
    columns = pd.DataFrame(
        {
            **{f"cage {cage}": lives.cage == cage for cage in (1, 2)},
            **{f"node {node}": lives.node == node for node in (1, 2, 3)},
            "new batch": lives.batch == "new",
        }
    ).astype(float)
    failed = lives.dead.to_numpy(dtype=bool)
    spells = Spells(np.zeros(len(lives)), lives.years.to_numpy(), failed, columns.to_numpy())
    none = np.zeros(columns.shape[1])
    ours, theirs = fit_cox(spells, none), _lifelines(columns, lives.years, failed)
    error = float(np.abs(ours.value / theirs.params_.to_numpy() - 1).max())
    of = f"{failed.sum()} failures of {len(lives)} GPUs"
    figures.add("titan_cox_max_relative_error", error, f"<= {MAX_ERROR}", error <= MAX_ERROR, of)
    errors = np.sqrt(np.diag(ours.covariance))
    apart = []
    for draw in range(QUICK_DRAWS if arguments.quick else DRAWS):
        sets = sample_sets(spells, CONTROLS, np.random.default_rng([arguments.seed, draw]))
        apart.append(float((np.abs(fit_sampled(spells.columns, sets, none).value - ours.value) / errors).max()))
    se = float(np.mean(apart))
    interval = f"{CONTROLS} controls, {len(apart)} draws, largest {max(apart):.2g}"
    figures.add("titan_ncc_max_se", se, f"<= {MAX_SE}", se <= MAX_SE, interval)
    figures.table(
        "Hazard ratios of GPUs of Titan, with 95 % intervals; lifelines at its tightest setting.",
        ["", "ratio", "interval", "lifelines"],
        [
            [name, f"{np.exp(value):.4f}", _interval(value, error), f"{ratio:.4f}"]
            for name, value, error, ratio in zip(columns, ours.value, errors, np.exp(theirs.params_), strict=True)
        ],
    )


def _interval(value: float, error: float) -> str:
    return f"[{np.exp(value - 1.96 * error):.3f}, {np.exp(value + 1.96 * error):.3f}]"


def _lifelines(columns: pd.DataFrame, years: pd.Series, failed: np.ndarray) -> CoxPHFitter:
    frame = columns.assign(years=years, failed=failed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about columns that are rare
        return CoxPHFitter().fit(frame, "years", "failed", fit_options={"precision": TIGHTEST})
