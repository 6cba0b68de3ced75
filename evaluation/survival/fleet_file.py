"""Other people's fleets: `--simulator-data FILE`, a table with one row for each unit and hour.

`FILE` is CSV or Parquet. Its columns are

* `unit`, and `hour`: 0, 1, 2, and so on without a gap, from the same hour of the life of each unit;
* `part`: `train`, `calibrate` or `test`, the same in all rows of a unit;
* `archetype`: the group of the unit's work, the same in all its rows;
* `failed_of`: empty, or in the last row of a unit that failed within the hour after: the resource of which it failed;
* `degraded` (optional, 0 or 1): whether that failure came after a degradation, so that there was something to see;
* `true_hazard` (optional): the true probability to fail within the next hour;
* `count:NAME`: what a counter has counted in this hour, 0 or more, empty where nothing was measured;
* any others: the values of gauges, empty where nothing was measured. No gauge has the `NAME` of a counter.

Each part has units that fail and units that do not; both are to be observed for more than a day.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from pyarrow import csv as arrow_csv
from pyarrow import parquet

from evaluation.survival.fleet_rules import NOT_READ, PARTS, PREFIX, FleetColumns, FleetRows
from evaluation.survival.fleet_rules import FleetFileError as FleetFileError
from evaluation.survival.simulated_fleet import FleetTruth
from pharoah_learning.fleet_features import fleet_features
from pharoah_learning.hazard_fits import Fleet
from pharoah_learning.models.mantel_haenszel import Array
from pharoah_protocol.signal_features import FEATURES, SignalKind, worse_features

DAY_HOURS = 24
"""How long before a failure an hour is to be distinguished from others."""


class Fleets(NamedTuple):
    """The parts of a file."""

    train: FleetTruth
    calibrate: FleetTruth
    test: FleetTruth
    has_hazard: bool
    """Whether the file states the true hazard."""


def read_fleets(path: Path) -> Fleets:
    """Read a file. Raises FleetFileError and OSError."""
    try:
        table = parquet.read_table(path) if path.suffix == ".parquet" else arrow_csv.read_csv(path)
    except NOT_READ as error:
        raise FleetFileError(f"{path}: {error}") from None
    columns = FleetColumns(table, path)
    rows = FleetRows(columns)
    whole = _whole(columns, rows)
    train, calibrate, test = (_only(whole, rows.part == name) for name in PARTS)
    return Fleets(train, calibrate, test, columns.has("true_hazard"))


def check_comparable(fleets: Fleets, path: Path) -> None:
    """Raises FleetFileError for a part in which failures cannot be compared with other hours or with other units."""
    for name, truth in zip(PARTS, (fleets.train, fleets.calibrate, fleets.test), strict=True):
        last, fails = truth.fleet.last, truth.fleet.cause > 0
        if last.max() < DAY_HOURS:
            raise FleetFileError(f"{path}: no unit of part {name} is observed for more than {DAY_HOURS} hours")
        first = last[fails].min()
        if not ((last > first) | ((last == first) & ~fails)).any():
            what = f"no unit of part {name} is observed after hour {first}, the first in which one fails"
            raise FleetFileError(f"{path}: {what}")
    if not fleets.test.degrading.any():
        raise FleetFileError(f"{path}: column degraded: no failure of part test has 1; expected is at least one")


def _whole(columns: FleetColumns, rows: FleetRows) -> FleetTruth:
    """All units, and what is known of them."""
    found, cause = np.unique(rows.failed_of, return_inverse=True)
    resources = tuple(found[1:].tolist())  # the first one is empty: in each part there are units that did not fail
    groups, group = np.unique(rows.archetype, return_inverse=True)
    features = _features(rows, columns.signals())
    names, values = tuple(features), np.stack([*features.values()], axis=2).astype(np.float32)
    # nobody says in which direction a gauge is worse
    worse = tuple(one for name in columns.signals() for one in worse_features(_kind(name), None))
    ends = np.arange(len(cause)), rows.last
    degraded = _by_hour(rows, rows.flags("degraded"))[ends] == 1 if columns.has("degraded") else True
    hazard = np.full(values.shape[:2], np.nan)
    if columns.has("true_hazard"):
        hazard = _by_hour(rows, rows.probabilities("true_hazard"))
    fleet = Fleet(names, worse, resources, tuple(groups.tolist()), values, rows.last, cause, group)
    never = 10 * values.shape[1]  # of who did not fail nobody knows when that would have been
    return FleetTruth(fleet, hazard, (cause > 0) & degraded, np.where(cause > 0, rows.last, never))


def _features(rows: FleetRows, signals: Sequence[str]) -> Mapping[str, Array]:
    found: dict[str, Array] = {}
    for name in signals:
        kind = _kind(name)
        columns = fleet_features(_by_hour(rows, rows.numbers(name)), kind)
        signal = name.removeprefix(PREFIX)
        found |= {f"{signal}.{feature}": columns[..., at] for at, feature in enumerate(FEATURES[kind])}
    return found


def _by_hour(rows: FleetRows, numbers: Array) -> Array:
    """A number of each row, as an array of the shape (units, hours), NaN where there is nothing."""
    found = np.full((len(rows.last), rows.last.max() + 1), np.nan)
    found[rows.unit, rows.hour] = numbers
    return found


def _only(truth: FleetTruth, chosen: np.ndarray) -> FleetTruth:
    """These units alone."""
    fleet, place = truth.fleet, np.flatnonzero(chosen)
    part = fleet._replace(**{name: getattr(fleet, name)[place] for name in ("features", "last", "cause", "group")})
    return FleetTruth(part, truth.hazard[place], truth.degrading[place], truth.would_fail[place])


def _kind(column: str) -> SignalKind:
    return SignalKind.COUNTER if column.startswith(PREFIX) else SignalKind.GAUGE
