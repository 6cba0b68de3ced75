"""Other people's fleets: `--simulator-data FILE`, a table with one row for each unit and hour.

`FILE` is CSV or Parquet. Its columns are

* `unit`, and `hour`: 0, 1, 2, and so on, from the same hour of the life of each unit;
* `part`: `train`, `calibrate` or `test`, the same in all rows of a unit;
* `archetype`: the group of the unit's work, the same in all its rows;
* `failed_of`: empty, or in the last row of a unit that failed within the hour after: the resource of which it failed;
* `degraded` (optional, 0 or 1): whether that failure came after a degradation, so that there was something to see;
* `true_hazard` (optional): the true probability to fail within the next hour;
* `count:NAME`: what a counter has counted in this hour, empty where nothing was measured;
* any others: the values of gauges, empty where nothing was measured.

Units that fail, and units that do not, are to be observed for more than a day.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from pyarrow import csv as arrow_csv
from pyarrow import parquet

from evaluation.survival.simulated_fleet import FleetTruth
from pharoah_learning.fleet_features import fleet_features
from pharoah_learning.hazard_fits import Fleet
from pharoah_learning.models.mantel_haenszel import Array
from pharoah_protocol.signal_features import FEATURES, SignalKind, worse_features

PARTS = ("train", "calibrate", "test")
NAMED = ("unit", "hour", "part", "archetype", "failed_of", "degraded", "true_hazard")
PREFIX = "count:"


class FleetFileError(ValueError):
    """A file that holds no fleet; the message names the file and the column."""


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
    except pa.ArrowInvalid as error:
        raise FleetFileError(f"{path}: {error}") from None
    rows = _Rows(table, path)
    part = rows.of_units("part")
    if unknown := sorted(set(part) - set(PARTS)):
        raise FleetFileError(f"{path}: column part: {str(unknown[0])!r} is none of {', '.join(PARTS)}")
    if missing := [name for name in PARTS if name not in part]:
        raise FleetFileError(f"{path}: column part: no unit is in {missing[0]}")
    whole = rows.fleet()
    train, calibrate, test = (_only(whole, part == name) for name in PARTS)
    return Fleets(train, calibrate, test, rows.has("true_hazard"))


class _Rows:
    """The columns of a file, by unit and hour."""

    def __init__(self, table: pa.Table, path: Path) -> None:
        self._table, self._path = table, path
        units, self._unit = np.unique(self._values("unit").astype(str), return_inverse=True)
        self._hour = self._values("hour")
        if self._hour.dtype.kind not in "iu" or self._hour.min() < 0:
            raise FleetFileError(f"{path}: column hour must hold whole numbers from 0 on")
        self._shape = (len(units), int(self._hour.max()) + 1)
        place = self._unit * self._shape[1] + self._hour
        if len(np.unique(place)) < len(place):
            raise FleetFileError(f"{path}: column hour: two rows of one unit have the same hour")
        self._last = np.zeros(len(units), dtype=np.intp)
        np.maximum.at(self._last, self._unit, self._hour)

    def has(self, name: str) -> bool:
        return name in self._table.column_names

    def of_units(self, name: str) -> np.ndarray:
        """What a column of text holds in the last row of each unit."""
        found = np.empty(self._shape[0], dtype=object)
        ending = self._hour == self._last[self._unit]
        found[self._unit[ending]] = self._values(name, or_empty="")[ending].astype(str)
        return found.astype(str)

    def samples(self, name: str) -> Array:
        """What a column of numbers holds, shape (units, hours), NaN where there is nothing."""
        found = np.full(self._shape, np.nan)
        found[self._unit, self._hour] = self._numbers(name)
        return found

    def fleet(self) -> FleetTruth:
        """All units, and what is known of them."""
        failed_of, archetype = self.of_units("failed_of"), self.of_units("archetype")
        resources, groups = (tuple(sorted(set(found) - {""})) for found in (failed_of, archetype))
        if not resources:
            raise FleetFileError(f"{self._path}: column failed_of: no unit fails")
        cause = np.array([0 if not one else 1 + resources.index(one) for one in failed_of])
        degraded = self.samples("degraded")[np.arange(len(cause)), self._last] == 1 if self.has("degraded") else True
        features = self._features()
        names, columns = tuple(features), np.stack([*features.values()], axis=2).astype(np.float32)
        worse = tuple(one for name in self._signals() for one in worse_features(_kind(name), None))
        group = np.array([groups.index(one) for one in archetype])
        hazard = self.samples("true_hazard") if self.has("true_hazard") else np.full(self._shape, np.nan)
        fleet = Fleet(names, worse, resources, groups, columns, self._last, cause, group)
        never = 10 * self._shape[1]  # of who did not fail nobody knows when that would have been
        return FleetTruth(fleet, hazard, (cause > 0) & degraded, np.where(cause > 0, self._last, never))

    def _signals(self) -> list[str]:
        """Columns of signals; nobody says in which direction a gauge is worse."""
        signals = [name for name in self._table.column_names if name not in NAMED]
        if not signals:
            raise FleetFileError(f"{self._path}: there is no column of a signal beside {', '.join(NAMED)}")
        return signals

    def _features(self) -> Mapping[str, Array]:
        found: dict[str, Array] = {}
        for name in self._signals():
            kind = _kind(name)
            columns = fleet_features(self.samples(name), kind)
            signal = name.removeprefix(PREFIX)
            found |= {f"{signal}.{feature}": columns[..., at] for at, feature in enumerate(FEATURES[kind])}
        return found

    def _values(self, name: str, or_empty: str | None = None) -> np.ndarray:
        if not self.has(name):
            has = ", ".join(self._table.column_names)
            raise FleetFileError(f"{self._path}: there is no column {name}; it has {has}")
        column = self._table.column(name)
        if column.null_count and or_empty is None:
            raise FleetFileError(f"{self._path}: column {name} is empty in {column.null_count} rows")
        if column.null_count:
            column = column.cast(pa.string()).fill_null(or_empty)
        values: np.ndarray = column.to_numpy()
        return values

    def _numbers(self, name: str) -> Array:
        try:
            column = self._table.column(name).cast(pa.float64())
        except pa.ArrowInvalid:
            raise FleetFileError(f"{self._path}: column {name} must hold numbers") from None
        values: Array = column.to_numpy()
        return values


def _only(truth: FleetTruth, chosen: np.ndarray) -> FleetTruth:
    """These units alone."""
    fleet, place = truth.fleet, np.flatnonzero(chosen)
    part = fleet._replace(**{name: getattr(fleet, name)[place] for name in ("features", "last", "cause", "group")})
    return FleetTruth(part, truth.hazard[place], truth.degrading[place], truth.would_fail[place])


def _kind(column: str) -> SignalKind:
    return SignalKind.COUNTER if column.startswith(PREFIX) else SignalKind.GAUGE
