"""Column maps: a TOML file that says what each column of a table of past runs is."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from pharoah_learning.effects import Names
from pharoah_provider.backfill._source import BackfillError, Table
from pharoah_system.bounded_reading import BoundedPattern, UnreadableInput, parse_toml, read_text

SINGLE = ("model", "end_state", "error", "exit_status", "throughput", "time")
"""What a run has one of."""
GROUPS = ("context", "confounders", "clusters")
"""What a run has any number of, each with a name."""
_DAY, _DAY_LENGTH = "%Y%m%d", 8
_FIRST_YEAR = 1970
"""No run is older: Unix time begins here."""


@dataclass(frozen=True)
class Field:
    """Where one value comes from: the first of the columns that is not empty."""

    name: str
    """What the map calls it, such as `context.driver`."""
    columns: tuple[str, ...]
    pattern: BoundedPattern | None = None
    """Only what its first group matches is taken; a value that it does not match is unknown."""
    values: Mapping[str, str] = field(default_factory=dict)
    """What a value of the file means; `*` stands for all that are not listed, which otherwise stay as they are."""
    format: str = ""
    """How a time is written, as `datetime.strptime` reads it; empty for seconds since 1970, for ISO 8601, and for a
    column of days such as 20240102."""

    def read_texts(self, table: Table) -> Names:
        """The text of each run. Raises BackfillError."""
        found = table.column(self.columns[0])
        for other in self.columns[1:]:
            found = np.where(found == "", table.column(other), found)
        texts = found.tolist()
        read = {text: self._read(text) for text in set(texts)}
        return np.array([read[text] for text in texts], dtype=object)

    def _read(self, text: str) -> str:
        if self.pattern and text:
            try:
                matched = self.pattern.search(text)
            except UnreadableInput as error:
                raise BackfillError(str(error)) from None
            text = "" if matched is None else (matched[1] or "" if matched.re.groups else matched[0])
        return self.values.get(text, self.values.get("*", text))

    def detect_day_format(self, texts: Names) -> Field:
        """The field, with the format of days such as 20240102 where all texts are such days: one of them alone can be
        seconds as well."""
        kinds = {text for text in texts.tolist() if text}
        return replace(self, format=_DAY) if kinds and not self.format and all(map(_is_day, kinds)) else self

    def seconds(self, text: str) -> float:
        """Raises ValueError."""
        if self.format:
            return _unix_seconds(datetime.strptime(text, self.format))
        try:
            return float(text)
        except ValueError:
            return _unix_seconds(datetime.fromisoformat(text))


@dataclass(frozen=True)
class ColumnMap:
    """What the columns of a table are."""

    single: Mapping[str, Field]
    context: Mapping[str, Field]
    confounders: Mapping[str, Field]
    clusters: Mapping[str, Field]
    identity: tuple[str, ...]
    """Columns that together name a run: a run that is listed twice counts once. Empty: every row is a run."""

    def __iter__(self) -> Iterator[Field]:
        for group in (self.single, self.context, self.confounders, self.clusters):
            yield from group.values()


def _unix_seconds(time: datetime) -> float:
    """A time without a zone counts as UTC: what a file says does not depend on the machine that reads it."""
    return (time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp()


def _is_day(text: str) -> bool:
    try:
        return len(text) == _DAY_LENGTH and text.isdecimal() and datetime.strptime(text, _DAY).year >= _FIRST_YEAR
    except ValueError:
        return False


def read_map(text: str, origin: object) -> ColumnMap:
    """The column map of a text in TOML. Raises BackfillError that names `origin` and the key."""
    try:
        data = parse_toml(text, origin)
    except UnreadableInput as error:
        raise BackfillError(str(error)) from None
    if unknown := sorted(data.keys() - {*SINGLE, *GROUPS, "identity"}):
        known = ", ".join((*SINGLE, *GROUPS, "identity"))
        raise BackfillError(f"{origin}: {unknown[0]} is not a key of a column map; there are {known}")
    for name in ("model", "end_state"):
        if name not in data:
            raise BackfillError(f"{origin}: {name} is missing: it names the column with the {name.replace('_', ' ')}")
    groups = {}
    for name in GROUPS:
        if not isinstance(data.get(name, {}), dict):
            raise BackfillError(f"{origin}: {name} must be a table of names and columns")
        groups[name] = {key: _field(origin, f"{name}.{key}", entry) for key, entry in data.get(name, {}).items()}
    identity = data.get("identity", [])
    if not isinstance(identity, list) or not all(isinstance(one, str) for one in identity):
        raise BackfillError(f"{origin}: identity must be a list of columns")
    single = {name: _field(origin, name, data[name]) for name in SINGLE if name in data}
    return ColumnMap(single, groups["context"], groups["confounders"], groups["clusters"], tuple(identity))


def _field(origin: object, name: str, entry: Any) -> Field:
    """`"column"`, `["first", "second"]`, or a table with `column`, `pattern`, `values` and `format`."""
    data = entry if isinstance(entry, dict) else {"column": entry}
    if unknown := sorted(data.keys() - {"column", "pattern", "values", "format"}):
        raise BackfillError(f"{origin}: {name}: {unknown[0]} is not one of column, pattern, values, format")
    columns = data.get("column")
    columns = [columns] if isinstance(columns, str) else columns
    if not isinstance(columns, list) or not columns or not all(isinstance(one, str) for one in columns):
        raise BackfillError(f"{origin}: {name}: column must name a column, or list several")
    values = data.get("values", {})
    if not isinstance(values, dict) or not all(isinstance(one, str) for one in values.values()):
        raise BackfillError(f"{origin}: {name}: values must map texts to texts")
    if not isinstance(data.get("pattern", ""), str) or not isinstance(data.get("format", ""), str):
        raise BackfillError(f"{origin}: {name}: pattern and format must be texts")
    try:
        where = f"{origin}: {name}: pattern"
        pattern = BoundedPattern.compile_pattern(data["pattern"], where) if "pattern" in data else None
    except UnreadableInput as error:
        raise BackfillError(str(error)) from None
    return Field(name, tuple(columns), pattern, values, data.get("format", ""))


def read_map_file(path: Path) -> ColumnMap:
    """The column map of a file. Raises BackfillError."""
    try:
        return read_map(read_text(path), path)
    except OSError as error:
        raise BackfillError(f"{path}: {error.strerror}") from None
    except UnreadableInput as error:
        raise BackfillError(str(error)) from None
