"""Pictures of the demo: step time with the alert, and the incompatibility table."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

os.environ.setdefault("MPLBACKEND", "Agg")

import matplotlib.pyplot as plt
from matplotlib.patches import Rectangle

BLUE, RED, GREY, AMBER, GREEN = "#2b6cb0", "#c53030", "#718096", "#dd9a1f", "#2f855a"


def step_time(summary: dict[str, Any], path: Path) -> None:
    """Step time of the main job over its own baseline, with the real degradation and the alert."""
    rows = [row for row in summary["reports"] if row["run"].lower() == summary["main"]["run"].lower()]
    if not rows:
        return
    start = rows[0]["started_at"]
    figure, axis = plt.subplots(figsize=(9, 4.2), dpi=120)
    stressor = summary["stressor"]
    axis.axvspan(
        stressor["began"] - start,
        stressor["ended"] - start,
        color=AMBER,
        alpha=0.18,
        label="copy loop on the job's core",
    )
    axis.axhline(1.0, color=GREY, lw=0.8)
    seen = [row for row in rows if not row["masked"]]
    masked = [row for row in rows if row["masked"]]
    times = [r[side] - start for r in rows for side in ("started_at", "ended_at")]
    axis.plot(times, [r["step_ratio"] for r in rows for _ in range(2)], color=BLUE, lw=1, alpha=0.5)
    axis.plot(
        [r["ended_at"] - start for r in seen],
        [r["step_ratio"] for r in seen],
        "o",
        color=BLUE,
        ms=4,
        label="end of a stretch of equal reports",
    )
    axis.plot(
        [r["ended_at"] - start for r in masked],
        [r["step_ratio"] for r in masked],
        "o",
        mfc="white",
        mec=BLUE,
        ms=4,
        label="masked: a micro-benchmark ran",
    )
    top = max(r["step_ratio"] for r in rows) * 1.12
    for alert in summary["alerts"]:
        if alert["run"].lower() != summary["main"]["run"].lower() or alert["state"] != "cleared":
            continue  # the script receives no message about a dismissed incident
        axis.axvline(alert["changed_at"] - start, color=GREEN, lw=1.2, ls="--")
        axis.text(alert["changed_at"] - start, top, " cleared", color=GREEN, va="top", fontsize=9)
    confirmed = stressor["ended"] - start
    axis.axvline(confirmed, color=RED, lw=1.2, ls="--")
    axis.text(confirmed, top, "confirmed alert \n reached the script ", color=RED, va="top", ha="right", fontsize=9)
    axis.set_ylim(0, top * 1.02)
    axis.set_xlabel("seconds since the first report")
    axis.set_ylabel("step time / own baseline")
    axis.set_title("A node degrades under a training job, is validated, and recovers", loc="left", fontsize=11)
    axis.legend(loc="upper left", bbox_to_anchor=(0, -0.16), ncols=3, frameon=False, fontsize=9)
    axis.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, bbox_inches="tight")
    plt.close(figure)


def incompatibility(table: list[dict[str, Any]], path: Path) -> None:
    """Exact rows by context: failures of runs, coloured by severity."""
    rows = [row for row in table if row["rung"] == "exact" and row["scope"] == "server"]
    contexts = sorted({(row["nodes"], row["context"]) for row in rows})
    titles = sorted({row["title"] for row in rows})
    colours = {"ok": "#d5ead8", "warn": "#f6dfa4", "block": "#eeb0a8"}
    figure, axis = plt.subplots(figsize=(8.2, 0.42 * len(titles) + 1.6), dpi=120)
    cells = {(row["title"], row["context"]): row for row in rows}
    for y, title in enumerate(titles):
        for x, (_, context) in enumerate(contexts):
            row = cells.get((title, context))
            face = colours.get(row["severity"], "white") if row else "white"
            axis.add_patch(
                Rectangle((x, y), 1, 1, facecolor=face, edgecolor="white", lw=2, hatch=None if row else "///")
            )
            text = f"{row['outcome']}  {row['failures']}/{row['runs']}" if row and row["failures"] else ""
            text = text or (f"ok  0/{row['runs']}" if row else "no data")
            axis.text(x + 0.5, y + 0.5, text, ha="center", va="center", fontsize=9)
    axis.set_xlim(0, len(contexts))
    axis.set_ylim(len(titles), 0)
    axis.set_xticks([x + 0.5 for x in range(len(contexts))], [nodes for nodes, _ in contexts])
    axis.xaxis.tick_top()
    axis.set_yticks([y + 0.5 for y in range(len(titles))], titles, fontsize=8)
    axis.tick_params(length=0)
    axis.spines[:].set_visible(False)
    axis.set_title("Rows of epoch 1: failures of runs by context", loc="left", fontsize=11, pad=22)
    handles = [Rectangle((0, 0), 1, 1, facecolor=colour) for colour in colours.values()]
    labels = ["compatible", "warn", "block"]
    axis.legend(handles, labels, loc="upper left", bbox_to_anchor=(0, -0.01), ncols=3, frameon=False, fontsize=9)
    figure.savefig(path, bbox_inches="tight")
    plt.close(figure)
