"""The picture of a hazard model of nodes: what became of forecasts, which signals matter, calibration, lead times."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from pharoah_learning.hazard_check import DAY_HOURS, ForecastGroup, HazardCheck
from pharoah_learning.models.proportions import wilson
from pharoah_provider.pictures._canvas import COLOURS, GREY, blank, open_sides, save

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_COLOUR_OF = {ForecastGroup.ALARM: COLOURS[1], ForecastGroup.NO_ALARM: COLOURS[0]}
_MAX_SIGNALS = 10
_RATIO_TICKS = (0.01, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 100.0)
_MIN_EXPECTED = 1e-4
"""The smallest probability that is drawn: axes are logarithmic."""


def draw_node_hazards(path: Path, check: HazardCheck) -> None:
    """Raises ProviderError without matplotlib, and where the file cannot be written."""
    save(figure_of(check), path)


def figure_of(check: HazardCheck) -> Figure:
    """Four panels. Raises ProviderError without matplotlib."""
    figure = blank(11.0, 8.6)
    panels = figure.subplots(2, 2)
    _survival(panels[0, 0], check)
    _hazard_ratios(panels[0, 1], check)
    _calibration(panels[1, 0], check)
    _lead_times(panels[1, 1], check)
    for axes in panels.flat:
        open_sides(axes, ("top", "right"))
        axes.title.set_fontsize(11)
    return figure


def _survival(axes: Axes, check: HazardCheck) -> None:
    hours = np.arange(DAY_HOURS + 1)
    for curve in check.curves:
        colour = _COLOUR_OF[curve.group]
        axes.step(hours, curve.share, where="post", color=colour, label=f"{curve.group}: {curve.forecasts:,} forecasts")
        axes.fill_between(hours, curve.low, curve.high, step="post", color=colour, alpha=0.2, lw=0)
    axes.set_title("Nodes without a failure after a forecast", loc="left")
    axes.set_xlabel("hours after the forecast")
    axes.set_ylabel("share of nodes")
    axes.set_xticks(range(0, DAY_HOURS + 1, 6))
    axes.set_ylim(top=1.005)
    if check.curves:
        axes.legend(frameon=False, loc="lower left")


def _hazard_ratios(axes: Axes, check: HazardCheck) -> None:
    shown = check.hazards[:_MAX_SIGNALS][::-1]
    for row, one in enumerate(shown):
        axes.plot([one.low, one.high], [row, row], color=COLOURS[0], lw=1.4)
        axes.plot(one.ratio, row, "o", color=COLOURS[0], ms=5)
    axes.set_yticks(range(len(shown)), [f"{one.signal.replace('_', ' ')} ({one.failures})" for one in shown])
    axes.axvline(1.0, color=GREY, lw=0.8, ls="--")
    axes.set_xscale("log")
    low, high = min([0.5, *(one.low for one in shown)]), max([2.0, *(one.high for one in shown)])
    ticks = [tick for tick in _RATIO_TICKS if low <= tick <= high]
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.set_xticks([], minor=True)
    axes.margins(y=0.1)
    axes.set_title("Hazard with trouble for 36 of 360 minutes, over none", loc="left")
    axes.set_xlabel("hazard ratio, 95 % interval (failures with trouble before them)")
    if not shown:
        axes.text(0.5, 0.5, "no signal had trouble before three failures", ha="center", transform=axes.transAxes)


def _calibration(axes: Axes, check: HazardCheck) -> None:
    points = [(max(one.expected, _MIN_EXPECTED), one) for one in check.bins]
    for expected, one in points:
        low, high = wilson(one.failed, one.forecasts)
        axes.plot([expected] * 2, [max(low, _MIN_EXPECTED), high], color=COLOURS[0], lw=1.4)
        axes.plot(expected, max(one.failed / one.forecasts, _MIN_EXPECTED), "o", color=COLOURS[0], ms=5)
    axes.plot([_MIN_EXPECTED, 1], [_MIN_EXPECTED, 1], color=GREY, lw=0.8, ls="--")
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_title("Failures within a day: forecast and seen", loc="left")
    axes.set_xlabel("forecast probability")
    axes.set_ylabel("share that failed, 95 % interval")


def _lead_times(axes: Axes, check: HazardCheck) -> None:
    lead = np.sort(check.lead_hours)
    per_days = check.false_alarms / max(check.healthy_days, 1e-9) * 1000
    if len(lead):
        # From the right: the share of all failures that an alarm came at least so long before.
        axes.step(np.append(0, lead), np.append(len(lead), np.arange(len(lead), 0, -1)) / check.failures,
                  where="pre", color=COLOURS[1])  # fmt: skip
        axes.set_xscale("symlog", linthresh=24)
        ticks = [hours for hours in (0, 6, 12, 24, 72, 168, 336, 672) if hours <= max(lead[-1], 24)]
        axes.set_xticks(ticks, [str(hours) for hours in ticks])
        axes.set_xticks([], minor=True)
    axes.set_ylim(0, 1)
    axes.set_title("Failures with an alarm at least so long before", loc="left")
    axes.set_xlabel(f"hours; {per_days:.2g} false alarms in 1,000 days of healthy nodes")
    axes.set_ylabel(f"share of {check.failures} failures")
