"""The hazard model of nodes on its whole way: from the database of a provider to the forecast in a sidecar.

The history of simulated nodes is written into a real database as telemetry and incidents. The model is learned and
published from there, as `pharoah-provider learn` does it, and tried on nodes that it has not seen, beside simple
scores of the same trouble.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import duckdb
import numpy as np
import pandas as pd

from evaluation.figures import OUTPUT, Figures
from evaluation.pages import DOCS
from evaluation.survival.simulated_nodes import NodeHistory, SimulatedNodes, simulate_nodes
from pharoah_learning.hazard_check import FORECAST_HOURS, HazardCheck, alarm_counts
from pharoah_learning.hazards import place_among
from pharoah_learning.models.mantel_haenszel import Array
from pharoah_learning.node_failures import HOUR_SECONDS
from pharoah_learning.node_hazards import FALSE_ALARMS_PER_HOUR, as_arrays, newest_scores
from pharoah_learning.node_lives import NodeHours, NodeLives, node_hours, node_lives
from pharoah_protocol.hazard_model import PublishedHazardModel
from pharoah_protocol.incident_states import CLEARED, CONFIRMED
from pharoah_provider.domain import IncidentKind, Subject, Transition
from pharoah_provider.fleet import Fleet
from pharoah_provider.node_forecasts import NodeForecasts, forecasts, trouble_signals
from pharoah_provider.pictures.node_hazards import draw_node_hazards
from pharoah_provider.storage.duckdb import DuckStorage
from pharoah_serving.clock import Clock

PICTURE = Path("pictures/node_hazards.png")
QUICK_NODES = 150
MODEL = "hazard model"


def measure(figures: Figures, arguments: argparse.Namespace) -> None:
    """Learn from some nodes, and forecast the failures of others."""
    parameters = replace(SimulatedNodes(), nodes=QUICK_NODES) if arguments.quick else SimulatedNodes()
    rng = np.random.default_rng(arguments.seed)
    known, new = simulate_nodes(parameters, rng), simulate_nodes(parameters, rng)
    with tempfile.TemporaryDirectory() as folder:
        content, check, seconds = asyncio.run(_learned(Path(folder) / "p.duckdb", known, figures))
    if content is None or check is None:
        figures.add("node_hazard_learned", False, "true", False)
        return
    draw_node_hazards(DOCS / PICTURE if arguments.docs else OUTPUT / PICTURE.name, check)
    model = PublishedHazardModel.decode(content.encode())
    figures.add("node_hazard_learn_seconds", seconds, interval=f"{len(known.observed)} nodes, {parameters.hours} h")
    figures.add("node_hazard_model_bytes", len(content))
    hours = node_hours(new.observed, new.trouble, trouble_signals())
    lives = node_lives(hours, new.failures)
    scored = _scores(model, hours, lives)
    _add_places(figures, scored, lives)
    _add_alarms(figures, model, scored[MODEL], lives)
    _add_difference(figures, model, hours)


class _Learned(NamedTuple):
    """The published model, how it does on nodes that were held out, and how long it took from the database on."""

    content: str | None
    check: HazardCheck | None
    seconds: float


async def _learned(path: Path, history: NodeHistory, figures: Figures) -> _Learned:
    DuckStorage(path).close()
    write_telemetry(path, history)
    store = DuckStorage(path)
    try:
        for change in transitions(history):
            await store.incidents.put_transition(change)
        clock = Clock(wall=lambda: history.ended_at, steady=time.monotonic)
        learning = NodeForecasts(store, Fleet(), clock, lambda content: content)
        began = time.perf_counter()
        print(await learning.learn())
        seconds = time.perf_counter() - began
        listed = await forecasts(store, history.ended_at)
        figures.add("node_forecasts_alarming", sum(one.alarming for one in listed), interval=f"of {len(listed)} nodes")
        check = HazardCheck.decode(await store.hazards.newest_check())
        return _Learned(await store.hazards.newest_model(), check, seconds)
    finally:
        store.close()


def write_telemetry(path: Path, history: NodeHistory) -> None:
    """The spans that agents would have caused: trouble at the beginning of an hour, and one signal that never has
    any."""
    period = 2.0
    spans = [
        (one.node, one.signal, one.device, 1.0, one.hour * HOUR_SECONDS,
         one.hour * HOUR_SECONDS + max(one.share * HOUR_SECONDS - period, 0.0))
        for one in history.trouble
    ] + [
        (node, "memory_uncorrected_errors", "", 0.0, hour * HOUR_SECONDS, (hour + 1) * HOUR_SECONDS - period)
        for node, seen in history.observed.items()
        for hour in seen
    ]  # fmt: skip
    columns = ("node", "metric", "device", "value", "first_at", "last_at")
    frame = {name: [span[at] for span in spans] for at, name in enumerate(columns)}
    with duckdb.connect(str(path)) as connection:
        connection.register("spans", pd.DataFrame(frame))
        connection.execute(
            "INSERT INTO telemetry_spans (node, metric, device, value, first_at, last_at, readings) "
            "SELECT node, metric, device, value, first_at, last_at, CAST((last_at - first_at) / 2 + 1 AS BIGINT) "
            "FROM spans"
        )


def transitions(history: NodeHistory) -> list[Transition]:
    """The incidents of the failures, as checks of idle nodes confirm them, and their ends."""
    changes = []
    for number, failure in enumerate(history.failures):
        began = Transition(
            incident_id=f"i{number}",
            subject=Subject.check(failure.node),
            kind=IncidentKind.BELOW_FLEET,
            state=CONFIRMED,
            raised_by=b"",
            what="simulated",
            evidence="",
            since=failure.since,
            changed_at=failure.since,
            step_ratio=1.0,
            resource=failure.resource,
        )
        changes += [began, began.change(CLEARED, failure.until, "")]
    return sorted(changes, key=lambda one: one.changed_at)


def _scores(model: PublishedHazardModel, hours: NodeHours, lives: NodeLives) -> dict[str, Array]:
    """Scores of all hours of all lives, shape (lives, hours), NaN where a life is over."""
    features, names = lives.fleet.features, list(hours.names)
    unit, hour = np.nonzero(lives.fleet.observed)
    places = [names.index(name) for name in model.features]
    rows = features[unit, hour][:, places]
    levels = [at for at, name in enumerate(names) if name.endswith(".level")]
    found = {
        MODEL: as_arrays(model).score(rows, np.full(len(rows), -1)).risk,
        "time with trouble in six hours": features[unit, hour][:, levels].sum(axis=1),
        "any trouble in six hours": (features[unit, hour][:, levels] > 0).any(axis=1),
    }
    return {name: lives.fleet.place(values) for name, values in found.items()}


def _add_places(figures: Figures, scored: dict[str, Array], lives: NodeLives) -> None:
    """For each failure, the share of the other nodes that were at risk at the time and had a lower score."""
    fleet, rows, means = lives.fleet, [], {}
    for name, scores in scored.items():
        places = []
        for unit in np.flatnonzero(fleet.cause):
            others = (fleet.last >= fleet.last[unit]) & (np.arange(len(fleet.last)) != unit)
            places.append(place_among(scores[others, fleet.last[unit]], float(scores[unit, fleet.last[unit]])))
        means[name] = float(np.mean(places))
        rows.append([name, f"{means[name]:.3f}", f"{np.std(places) / np.sqrt(len(places)):.3f}"])
    best = max(value for name, value in means.items() if name != MODEL)
    figures.add("node_hazard_place", means[MODEL], "no less than simple scores - 0.02", means[MODEL] >= best - 0.02,
                f"best simple score {best:.3f}; {int((fleet.cause > 0).sum())} failures")  # fmt: skip
    figures.table("Place of the nodes that fail next among those at risk.", ["score", "mean", "standard error"], rows)


def _add_alarms(figures: Figures, model: PublishedHazardModel, scores: Array, lives: NodeLives) -> None:
    if model.alarm_risk is None:
        figures.skip("node_alarm_recall", "needs more healthy nodes")
        return
    found = alarm_counts(lives.fleet, scores, model.alarm_risk)
    lead, days = found.lead_hours, found.healthy_hours / 24
    promised = FALSE_ALARMS_PER_HOUR * 24 * 1000
    recall, false = len(lead) / found.failures, found.false_alarms / days * 1000
    figures.add("node_alarm_recall", recall, interval=f"within {FORECAST_HOURS} h; some failures have no sign")
    figures.add("node_alarm_lead_hours", float(np.median(lead)) if lead else 0.0, interval="median")
    figures.add("node_false_alarms_per_1000_days", false, interval=f"{promised:g} promised, {days:.0f} days")


def _add_difference(figures: Figures, model: PublishedHazardModel, hours: NodeHours) -> None:
    """A sidecar forecasts in pure Python what the provider computes for all nodes at once."""
    scores = newest_scores(model, hours)
    largest = max(
        abs(
            model.forecast(dict(zip(hours.names, map(float, hours.features[at, -1]), strict=True))).risk
            - scores.risk[at]
        )
        for at in range(len(hours.nodes))
    )
    figures.add("node_forecast_difference", float(largest), "<= 0.001", largest <= 1e-3, "sidecar and provider")
