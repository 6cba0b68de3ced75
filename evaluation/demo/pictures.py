"""The picture of the demo: step time with the alert. `pharoah_provider.pictures.heatmap` draws the table."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

os.environ.setdefault("MPLBACKEND", "Agg")

import matplotlib.pyplot as plt
from matplotlib.axes import Axes

BLUE, RED, GREY, AMBER, GREEN = "#2b6cb0", "#c53030", "#718096", "#dd9a1f", "#2f855a"


def step_time(summary: dict[str, Any], path: Path) -> None:
    """Step time of the main job over its own baseline, with the real degradation and the alert."""
    rows = [row for row in summary["reports"] if row["run"].lower() == summary["main"]["run"].lower()]
    if not rows:
        return
    start = rows[0]["started_at"]
    figure, axis = plt.subplots(figsize=(9, 4.2), dpi=120)
    _reports(axis, rows, start)
    _events(axis, summary, start, top=max(row["step_ratio"] for row in rows) * 1.12)
    axis.set_xlabel("seconds since the first report")
    axis.set_ylabel("step time / own baseline")
    axis.set_title("A node degrades under a training job, is validated, and recovers", loc="left", fontsize=11)
    axis.legend(loc="upper left", bbox_to_anchor=(0, -0.16), ncols=3, frameon=False, fontsize=9)
    axis.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, bbox_inches="tight")
    plt.close(figure)


def _reports(axis: Axes, rows: list[dict[str, Any]], start: float) -> None:
    """The reports as a line, and a point at the end of each stretch of equal values. A stretch beside micro-benchmarks
    is dotted: steps do not count there, and reports repeat the level before it."""
    axis.axhline(1.0, color=GREY, lw=0.8)
    times = [row[side] - start for row in rows for side in ("started_at", "ended_at")]
    axis.plot(times, [row["step_ratio"] for row in rows for _ in range(2)], color=BLUE, lw=1, alpha=0.25)
    for masked, label, face, line in (
        (False, "end of a stretch of equal reports", BLUE, "-"),
        (True, "masked: a micro-benchmark ran,\nthe level before it is kept", "white", ":"),
    ):
        shown = [row for row in rows if bool(row["masked"]) is masked]
        for row in shown:
            axis.plot(
                [row["started_at"] - start, row["ended_at"] - start], [row["step_ratio"]] * 2, BLUE, ls=line, lw=2
            )
        x, y = [row["ended_at"] - start for row in shown], [row["step_ratio"] for row in shown]
        axis.plot(x, y, "o", mfc=face, mec=BLUE, ms=4, label=label)


def _events(axis: Axes, summary: dict[str, Any], start: float, top: float) -> None:
    """The copy loop, the alert that reached the script, and its end."""
    began, ended = summary["stressor"]["began"] - start, summary["stressor"]["ended"] - start
    axis.axvspan(began, ended, color=AMBER, alpha=0.18, label="copy loop on the job's core")
    for alert in summary["alerts"]:
        if alert["run"].lower() != summary["main"]["run"].lower() or alert["state"] != "cleared":
            continue  # the script receives no message about a dismissed incident
        axis.axvline(alert["changed_at"] - start, color=GREEN, lw=1.2, ls="--")
        axis.text(alert["changed_at"] - start, top, " cleared", color=GREEN, va="top", fontsize=9)
    # The copy loop stops when the script has received the alert.
    axis.axvline(ended, color=RED, lw=1.2, ls="--")
    axis.text(ended, top, "confirmed alert \n reached the script ", color=RED, va="top", ha="right", fontsize=9)
    axis.set_ylim(0, top * 1.02)
