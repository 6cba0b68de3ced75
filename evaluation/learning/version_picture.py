"""The picture of a campaign over versions: a heatmap of step times, with failures and changes."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from evaluation.learning.version_trials import Campaign

LIMIT = 0.5
"""Colours end at this logarithm of a ratio: 1.65 times as slow, or as fast."""
WORDS = {"error": "error", "memory": "memory", "crash": "crash", "timeout": "late", "nan": "NaN", "hang": "hang"}


def draw(campaign: Campaign, path: Path) -> None:
    """Write the picture as PNG."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    rows, columns = campaign.versions, campaign.families
    values = np.full((len(rows), len(columns)), np.nan)
    for (version, family), speed in campaign.speeds.items():
        values[rows.index(version), columns.index(family)] = speed
    figure, axes = pyplot.subplots(figsize=(1.0 * len(columns) + 2.6, 0.32 * len(rows) + 2.2), layout="constrained")
    shades = matplotlib.colormaps["RdBu_r"].with_extremes(bad="#d9d9d9")
    shown = axes.imshow(np.ma.masked_invalid(values), cmap=shades, vmin=-LIMIT, vmax=LIMIT, aspect="auto")
    for row, version in enumerate(rows):
        for column, family in enumerate(columns):
            cell = campaign.cell(version, family)
            if cell is None:
                text = "not built"
            elif cell.worked:
                text = f"{np.exp(values[row, column]):.2f}"
            else:
                failing = next(outcome for outcome in cell.outcomes if outcome != "ok")
                text = WORDS.get(failing, failing)
            dark = abs(np.nan_to_num(values[row, column])) > 0.8 * LIMIT
            axes.text(column, row, text, ha="center", va="center", fontsize=8, color="white" if dark else "black")
    kinds = (
        (campaign.structure_changes(), "black", "-", 2.2),
        (campaign.speed_changes(), "#e07b00", (0, (2, 1)), 2.2),
    )
    for pairs, colour, style, width in kinds:
        for pair in pairs:
            column, row = columns.index(pair.family), rows.index(pair.later)
            shift = 0.06 if colour != "black" else -0.06
            axes.plot([column - 0.47, column + 0.47], [row - 0.5 + shift] * 2, color=colour, ls=style, lw=width)
    neighbours = set(campaign.neighbours())
    for pair in set(campaign.same_code()) & neighbours:
        column, row = columns.index(pair.family), rows.index(pair.later)
        axes.plot([column + 0.38] * 2, [row - 0.8, row - 0.2], color="#1a7f37", lw=2.2, solid_capstyle="butt")
    axes.set_xticks(range(len(columns)), columns)
    axes.xaxis.tick_top()
    axes.set_yticks(range(len(rows)), rows)
    axes.set_ylabel("version of transformers, old to new")
    axes.tick_params(length=0)
    bar = figure.colorbar(shown, ax=axes, fraction=0.04, pad=0.02)
    ticks = [0.65, 0.8, 1.0, 1.25, 1.6]
    bar.set_ticks([float(np.log(tick)) for tick in ticks], labels=[f"{tick:g}" for tick in ticks])
    bar.set_label("step time relative to the newest version that works")
    figure.legend(
        handles=[
            Line2D([], [], color="black", lw=2.2, label="the structure changes"),
            Line2D([], [], color="#e07b00", lw=2.2, ls=(0, (2, 1)), label="the speed changes"),
            Line2D([], [], color="#1a7f37", lw=2.2, label="both versions execute the same code"),
            Patch(color="#d9d9d9", label="fails"),
        ],
        loc="outside lower center",
        ncols=2,
        frameon=False,
        fontsize=9,
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110, metadata={"Software": None})
    pyplot.close(figure)
