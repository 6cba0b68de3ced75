"""From a table and its column map to the columns that learning reads."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np

from pharoah_archetypes.catalogue import catalogue
from pharoah_learning.effects import Names
from pharoah_learning.observations import strata_of
from pharoah_learning.past_runs import PastRuns
from pharoah_protocol.attribution import UNEXPLAINED, Cause, rules
from pharoah_protocol.vocabulary import EndState
from pharoah_provider.backfill._column_map import ColumnMap, Field
from pharoah_provider.backfill._source import BackfillError, BackfillSource, Table

_STATUS = re.compile(r"-?[0-9]{1,9}(:[0-9]{0,9})?")
_WORD_AND_SIZE = re.compile(r"([a-z_]*[a-z])[-_ ]?\d+")


class Became(NamedTuple):
    """What one column of the file became."""

    column: str
    became: str
    values: int
    unknown: int
    """Runs without a value."""


@dataclass(frozen=True)
class Imported:
    """The runs of one file."""

    runs: PastRuns
    causes: tuple[Cause, ...]
    """What is known about the end of each run."""
    became: tuple[Became, ...]
    unused: tuple[str, ...]
    """Columns that the map does not name."""
    repeated: int
    """Rows that list a run once more."""


def columns_of(path: Path, source: BackfillSource, columns: ColumnMap) -> Imported:
    """The runs of a file. Raises BackfillError that names the file, and the row and column where known."""
    try:
        table = source.read(path)
    except OSError as error:
        raise BackfillError(f"{path}: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise BackfillError(f"{path}: not a text in UTF-8") from None
    if not len(table):
        raise BackfillError(f"{path}: holds no run")
    first = _first_of_each(table, columns.identity)
    repeated = len(table) - len(first)
    end_state, causes = _ends(table, columns)
    clusters = {name: field.read_texts(table) for name, field in columns.clusters.items()}
    if "time" in columns.single:
        clusters["day"] = _days(table, columns.single["time"])
    model = columns.single["model"].read_texts(table)
    if (empty := np.flatnonzero(model == "")).size:
        raise table.error(int(empty[0]), "/".join(columns.single["model"].columns), "the model is empty")
    names, place = np.unique(model, return_inverse=True)
    runs = PastRuns(
        model=model[first],
        archetype=np.array([archetype_of(str(name)) for name in names], dtype=str)[place][first],
        context={name: field.read_texts(table)[first] for name, field in columns.context.items()},
        confounders={name: field.read_texts(table)[first] for name, field in columns.confounders.items()},
        clusters={name: values[first] for name, values in clusters.items()},
        end_state=end_state[first],
        attribution=np.array([cause.attribution for cause in causes], dtype=object)[first],
        throughput=_numbers(table, columns.single.get("throughput"))[first],
    )
    used = {*columns.identity, *(one for field in columns for one in field.columns)}
    unused = tuple(name for name in table.columns if name not in used)
    became = tuple(_became(table.choose(first), columns))
    return Imported(runs, tuple(causes[run] for run in first), became, unused, repeated)


def archetype_of(model: str) -> str:
    """The archetype of the catalogue whose variant has this name, also with a size behind it (`resnet50`); empty for a
    name that the catalogue does not have."""
    name = model.lower()
    sized = _WORD_AND_SIZE.fullmatch(name)
    return _variants().get(name) or (_variants().get(sized[1], "") if sized else "")


@cache
def _variants() -> dict[str, str]:
    """Name of a variant to the only archetype that has it."""
    found: dict[str, set[str]] = {}
    for entry in catalogue().values():
        for name in (entry.id, *entry.variants):
            found.setdefault(name.lower(), set()).add(entry.id)
    return {name: next(iter(ids)) for name, ids in found.items() if len(ids) == 1}


def _first_of_each(table: Table, identity: tuple[str, ...]) -> np.ndarray:
    """The first row of each run, in the order of the file."""
    if not identity:
        return np.arange(len(table))
    columns = [np.unique(table.column(name), return_inverse=True)[1] for name in identity]
    return np.sort(np.unique(strata_of(columns, len(table)), return_index=True)[1])


def _ends(table: Table, columns: ColumnMap) -> tuple[np.ndarray, list[Cause]]:
    field = columns.single["end_state"]
    states = []
    for run, text in enumerate(field.read_texts(table)):
        try:
            states.append(EndState(str(text)))
        except ValueError:
            known = ", ".join(EndState)
            what = f"{str(text)!r} is no end state; in a --map, end_state.values must make it one of {known}"
            raise table.error(run, "/".join(field.columns), what) from None
    nothing = np.full(len(table), "")
    errors = columns.single["error"].read_texts(table) if "error" in columns.single else nothing
    statuses = _statuses(table, columns.single.get("exit_status"))
    causes = [
        UNEXPLAINED if state is EndState.OK else rules().cause(state, str(error).splitlines(), status)
        for state, error, status in zip(states, errors, statuses, strict=True)
    ]
    return np.array(states, dtype=object), causes


def _statuses(table: Table, field: Field | None) -> Iterator[int | None]:
    """Exit statuses as a shell has them: `9`, or `0:9` as Slurm writes status and signal."""
    for run, text in enumerate(field.read_texts(table) if field else np.full(len(table), "")):
        status, _, signal = str(text).partition(":")
        if field and text and not _STATUS.fullmatch(str(text)):
            raise table.error(run, "/".join(field.columns), f"{str(text)!r} is no exit status")
        yield None if not text else 128 + int(signal) if int(signal or 0) else int(status)


def _numbers(table: Table, field: Field | None) -> np.ndarray:
    found = np.full(len(table), np.nan)
    for run, text in enumerate(field.read_texts(table) if field else ()):
        if text == "":
            continue
        try:
            found[run] = float(text)
        except ValueError:
            assert field
            raise table.error(run, "/".join(field.columns), f"{str(text)!r} is no number") from None
    return found


def _days(table: Table, field: Field) -> Names:
    """The day of each run in UTC: runs of one day are often one sweep."""
    days, texts = [], field.read_texts(table)
    field = field.detect_day_format(texts)
    for run, text in enumerate(texts):
        try:
            days.append(datetime.fromtimestamp(field.seconds(str(text)), UTC).date().isoformat() if text else "")
        except (ValueError, OverflowError, OSError):
            shown = field.format or "seconds since 1970 or ISO 8601"
            raise table.error(run, "/".join(field.columns), f"{str(text)!r} is no time; expected {shown}") from None
    return np.array(days, dtype=str)


def _became(table: Table, columns: ColumnMap) -> Iterator[Became]:
    for field in columns:
        values = field.read_texts(table)
        yield Became(
            " or ".join(field.columns), field.name, len(np.unique(values[values != ""])), int((values == "").sum())
        )
