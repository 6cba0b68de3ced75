"""The rows of a file of `fleet_file`, and the rules that they must keep.

Rules are checked before there are arrays of all units and hours: a single wrong hour would make these very large. Hours
without a row would be taken for hours in which a unit was healthy and nothing was measured.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pharoah_learning.models.mantel_haenszel import Array

PARTS = ("train", "calibrate", "test")
NAMED = ("unit", "hour", "part", "archetype", "failed_of", "degraded", "true_hazard")
PREFIX = "count:"
NOT_READ = (pa.ArrowInvalid, pa.ArrowNotImplementedError)
"""What pyarrow raises for values that are not of a type, and for types that are never made from each other."""


class FleetFileError(ValueError):
    """A file that holds no fleet; the message names the file and the column."""


class FleetColumns:
    """The columns of a table, by name."""

    def __init__(self, table: pa.Table, path: Path) -> None:
        """Raises FleetFileError without a row, and for names of which one would be taken for another."""
        self._table, self._path = table, path
        if not table.num_rows:
            raise FleetFileError(f"{path}: there is no row; expected is one for each unit and hour")
        # features have the names of their signals without the prefix
        names = Counter((name in NAMED, name.removeprefix(PREFIX)) for name in table.column_names)
        (_, name), times = names.most_common(1)[0]
        if times > 1:
            raise self.error(name, f"{times} columns have this name, with or without {PREFIX}; expected is one")

    def has(self, name: str) -> bool:
        return name in self._table.column_names

    def signals(self) -> list[str]:
        """The names of the columns of signals."""
        signals = [name for name in self._table.column_names if name not in NAMED]
        if not signals:
            raise FleetFileError(f"{self._path}: there is no column of a signal beside {', '.join(NAMED)}")
        return signals

    def hours(self) -> NDArray[np.int64]:
        """The hour of each row, a whole number from 0 on."""
        column = self._column("hour")
        self.check_filled("hour", np.asarray(column.is_null()))
        try:
            hours: NDArray[np.int64] = column.cast(pa.int64()).to_numpy()
        except NOT_READ:
            hours = np.array([-1])
        if not pa.types.is_integer(column.type) or hours.min() < 0:
            raise self.error("hour", f"it must hold whole numbers from 0 on; its type is {column.type}")
        return hours

    def numbers(self, name: str) -> Array:
        """What a column of numbers holds, NaN where it is empty."""
        column = self._column(name)
        try:
            values: Array = column.cast(pa.float64()).to_numpy()
        except NOT_READ:
            raise self.error(name, f"it must hold numbers; its type is {column.type}") from None
        return values

    def texts(self, name: str, may_be_empty: bool = False) -> tuple[np.ndarray, NDArray[np.intp]]:
        """The different texts of a column, sorted, and the number of the text of each row."""
        column = self._column(name)
        try:
            encoded = column.cast(pa.large_string()).fill_null("").combine_chunks().dictionary_encode()
        except NOT_READ:
            raise self.error(name, f"it must hold text; its type is {column.type}") from None
        texts, number = np.unique(encoded.dictionary.to_numpy(zero_copy_only=False).astype(str), return_inverse=True)
        text = number[encoded.indices.to_numpy()]
        if not may_be_empty:
            self.check_filled(name, (texts == "")[text])
        return texts, text

    def error(self, column: str, message: str) -> FleetFileError:
        """What to raise for a column that breaks a rule."""
        return FleetFileError(f"{self._path}: column {column}: {message}")

    def _column(self, name: str) -> pa.ChunkedArray:
        if not self.has(name):
            has = ", ".join(self._table.column_names)
            raise FleetFileError(f"{self._path}: there is no column {name}; it has {has}")
        return self._table.column(name)

    def check_filled(self, name: str, empty: np.ndarray) -> None:
        """Raises FleetFileError where a row of a column is empty."""
        if empty.any():
            rows = f"{np.count_nonzero(empty)} rows, the first of them row {empty.argmax() + 1} after the header"
            raise self.error(name, f"it is empty in {rows}; expected is a value in each row")


class FleetRows:
    """The rows of a table, by unit and hour.

    `part`, `archetype` and `failed_of` hold a text for each unit, `last` its last hour; `failed_of` is empty where a
    unit did not fail.
    """

    def __init__(self, columns: FleetColumns) -> None:
        """Raises FleetFileError where rows break a rule."""
        self._columns = columns
        self._units, self.unit = columns.texts("unit")
        self.hour = columns.hours()
        self.last, self._end = self._ends()
        self.part, self.archetype = self._of_units("part"), self._of_units("archetype")
        self.failed_of = self._failures()
        self._check_parts()

    def numbers(self, name: str) -> Array:
        """The numbers of a column in each row, NaN where it is empty. What was counted is never negative."""
        least, expected = (0.0, "finite numbers from 0 on") if name.startswith(PREFIX) else (-np.inf, "finite numbers")
        return self._numbers_between(name, least, np.inf, f"{expected}, or nothing")

    def probabilities(self, name: str) -> Array:
        """The numbers from 0 to 1 that a column holds in each row."""
        values = self._numbers_between(name, 0.0, 1.0, "numbers from 0 to 1")
        self._columns.check_filled(name, np.isnan(values))
        return values

    def flags(self, name: str) -> np.ndarray:
        """Whether a column holds 1 in a row, and not 0 or nothing."""
        values = self._numbers_between(name, 0.0, 1.0, "0 and 1")
        fractions = np.flatnonzero(values % 1 > 0)
        if len(fractions):
            what = f"it holds {values[fractions[0]]:g} in {self._place(fractions[0])}"
            raise self._columns.error(name, f"{what}; expected are 0 and 1")
        found: np.ndarray = values == 1
        return found

    def _numbers_between(self, name: str, least: float, most: float, expected: str) -> Array:
        values = self._columns.numbers(name)
        wrong = np.flatnonzero(np.isinf(values) | (values < least) | (values > most))
        if len(wrong):
            what = f"it holds {values[wrong[0]]:g} in {self._place(wrong[0])}"
            raise self._columns.error(name, f"{what}; expected are {expected}")
        return values

    def _ends(self) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """The last hour of each unit, and the row of that hour."""
        order, count = np.lexsort((self.hour, self.unit)), np.bincount(self.unit)
        after = np.cumsum(count)
        due = np.arange(len(order)) - (after - count)[self.unit[order]]
        wrong = np.flatnonzero(self.hour[order] != due)
        if len(wrong):
            row, hour = order[wrong[0]], due[wrong[0]]
            unit, twice = self._unit_of(row), self.hour[row] < hour
            what = (
                f"two rows of unit {unit} have hour {hour - 1}" if twice else f"unit {unit} has no row of hour {hour}"
            )
            raise self._columns.error("hour", f"{what}; expected is one row for each of the hours 0, 1, 2 and so on")
        return count - 1, order[after - 1]

    def _of_units(self, name: str) -> np.ndarray:
        """The text that a column holds in all rows of each unit."""
        texts, text = self._columns.texts(name)
        own = text[self._end]
        others = np.flatnonzero(text != own[self.unit])
        if len(others):
            row = others[0]
            here, last = _shown(texts[text[row]]), _shown(texts[own[self.unit[row]]])
            what = f"it holds {here} in {self._place(row)}, and {last} in the last hour of that unit"
            raise self._columns.error(name, f"{what}; expected is the same in all rows of a unit")
        found: np.ndarray = texts[own]
        return found

    def _failures(self) -> np.ndarray:
        texts, text = self._columns.texts("failed_of", may_be_empty=True)
        early = np.flatnonzero((texts != "")[text] & (self.hour < self.last[self.unit]))
        if len(early):
            row = early[0]
            last = self.last[self.unit[row]]
            what = f"it holds {_shown(texts[text[row]])} in {self._place(row)}, whose last hour is {last}"
            raise self._columns.error("failed_of", f"{what}; expected is a resource in the last row of a unit only")
        found: np.ndarray = texts[text[self._end]]
        return found

    def _check_parts(self) -> None:
        """Nothing is learned of a part without a failure, or without a unit that did not fail."""
        if unknown := sorted(set(self.part) - set(PARTS)):
            raise self._columns.error("part", f"{_shown(unknown[0])} is none of {', '.join(PARTS)}")
        for name in PARTS:
            fails = self.failed_of[self.part == name] != ""
            if not len(fails):
                expected = f"expected are units in each of {', '.join(PARTS)}"
                raise self._columns.error("part", f"no unit is in {name}; {expected}")
            if fails.all() or not fails.any():
                what = f"{'each' if fails.all() else 'no'} unit of part {name} fails"
                raise self._columns.error("failed_of", f"{what}; expected are units that fail and units that do not")

    def _place(self, row: np.intp) -> str:
        return f"hour {self.hour[row]} of unit {self._unit_of(row)}"

    def _unit_of(self, row: np.intp) -> str:
        return _shown(self._units[self.unit[row]])


def _shown(text: str) -> str:
    """A text in quotes; that of numpy would name its type."""
    return repr(str(text))
