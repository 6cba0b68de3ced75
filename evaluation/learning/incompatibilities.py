"""Incompatible pairs in simulated production runs: how many of those that are called are true, and how many are found.

Two observers stand beside the method: simpler ones on the same runs, and an oracle that knows the true odds of every
run and so needs no adjustment.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit
from scipy.stats import poisson

from evaluation.figures import Figures
from evaluation.learning.rollout_pairs import add_figures_of_file, called_mask
from evaluation.learning.runs_file import RunsFileError, incompatible_pairs, read_strengths
from evaluation.learning.simpler_methods import SIMPLER, Mask
from evaluation.learning.simulated_runs import Simulated, simulate
from pharoah_learning.incompatible_pairs import find_incompatible_pairs
from pharoah_learning.models.contrasts import MAX_FALSE_RATE
from pharoah_learning.models.false_discovery import q_values
from pharoah_learning.observations import Observations

SEEDS, QUICK_SEEDS = 12, 4
SIZES = {"": 30_000, "_1e5": 100_000}
"""Suffixes of the figures to numbers of runs."""
BOUNDS = {"": (0.95, 0.75), "_1e5": (0.95, 0.95)}


def measure(figures: Figures, arguments: argparse.Namespace) -> None:
    """Precision and recall over fresh fleets, with the hidden cause on."""
    rows = []
    for suffix, runs in SIZES.items():
        fleets = [
            simulate(runs, 1000 * arguments.seed + n, hidden=True)
            for n in range(QUICK_SEEDS if arguments.quick else SEEDS)
        ]
        called = [_called(fleet.seen) for fleet in fleets]
        precision, recall = BOUNDS[suffix]
        hits, calls, planted = _counted(fleets, called)
        figures.ratio(f"incompat_precision{suffix}", hits, calls, precision)
        figures.ratio(f"incompat_recall{suffix}", hits, planted, recall)
        rows.append([f"{runs:,}", "this method", *_shares(hits, calls, planted)])
        for name, method in SIMPLER.items():
            counted = _counted(fleets, [method(fleet.seen) for fleet in fleets])
            shares = _shares(*counted)
            figures.add(f"incompat_{name}_precision{suffix}", counted[0] / max(1, counted[1]))
            figures.add(f"incompat_{name}_recall{suffix}", counted[0] / counted[2])
            rows.append([f"{runs:,}", name.replace("_", " "), *shares])
        rows.append([f"{runs:,}", "oracle", *_shares(*_counted(fleets, [_oracle(fleet) for fleet in fleets]))])
    figures.table(
        "Incompatible pairs called in simulated runs with a hidden cause; the oracle knows the odds of every run.",
        ["runs", "method", "precision", "recall"],
        rows,
    )


def measure_file(figures: Figures, path: Path) -> None:
    """The same for runs of others. Exits with a message for a file that cannot be read."""
    try:
        seen, strengths = read_strengths(path)
    except (RunsFileError, OSError) as error:
        raise SystemExit(f"--simulator-data: {error}") from None
    incompatible = incompatible_pairs(seen, strengths)
    planted = int(incompatible.sum())
    figures.add("runs", len(seen))
    for name, method in {"": _called, **SIMPLER}.items():
        mask = method(seen)
        key = f"{name}_" if name else ""
        figures.ratio(f"incompat_{key}precision", int((mask & incompatible).sum()), int(mask.sum()))
        figures.ratio(f"incompat_{key}recall", int((mask & incompatible).sum()), planted)
    add_figures_of_file(figures, seen, strengths)


def _called(seen: Observations) -> Mask:
    return called_mask(seen, find_incompatible_pairs(seen, seed=1))


def _oracle(fleet: Simulated) -> Mask:
    """Failures of each pair against those that the true odds without its own effect give."""
    seen, p_values = fleet.seen, np.ones(fleet.incompatible.shape)
    for a, c in np.ndindex(*p_values.shape):
        chosen = (seen.archetype == a) & seen.in_context[:, c]
        p: NDArray[np.float64] = expit(fleet.log_odds[chosen] - fleet.effects[a, c])
        p_values[a, c] = poisson.sf(seen.failed[chosen].sum() - 1, p.sum())
    found: Mask = q_values(p_values) <= MAX_FALSE_RATE
    return found


def _counted(fleets: list[Simulated], called: list[Mask]) -> tuple[int, int, int]:
    """True calls, calls, and planted pairs, over all fleets."""
    hits = sum(int((mask & fleet.incompatible).sum()) for fleet, mask in zip(fleets, called, strict=True))
    return hits, sum(int(mask.sum()) for mask in called), sum(int(fleet.incompatible.sum()) for fleet in fleets)


def _shares(hits: int, calls: int, planted: int) -> list[str]:
    return [f"{hits / calls:.2f} of {calls}" if calls else "no calls", f"{hits / planted:.2f}"]
