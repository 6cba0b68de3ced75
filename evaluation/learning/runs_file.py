"""Other people's runs: `--simulator-data FILE`, a table with one row for each run, and the truth beside it.

`FILE` is CSV or Parquet. Its columns are `archetype`, `failed` (0 or 1), one column `context:NAME` (0 or 1) for each
context, or one column `context` that names the only context of a run, any number of columns `cluster:NAME` that name
the cluster of a run, such as its host, and any number of others, which are confounders.
`FILE.truth.csv` lists the pairs that are incompatible: `archetype,context`. A further column `strength` may say what
each is: `strong`, `medium` or `weak`; or `own cause`, where a hidden cause of the pair only makes it look incompatible.
Pairs are strong where it is not given.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow import csv as arrow_csv
from pyarrow import parquet

from evaluation.learning.rollout_runs import Strength
from pharoah_learning.observations import Flags, Observations, codes_of

PREFIX = "context:"
CLUSTER = "cluster:"


class RunsFileError(ValueError):
    """A file that holds no table of runs; the message names the file and the column."""


def read_runs(path: Path) -> tuple[Observations, NDArray[np.bool_]]:
    """The runs of a file, and the mask of its incompatible pairs. Raises RunsFileError and OSError."""
    seen, strengths = read_strengths(path)
    return seen, incompatible_pairs(seen, strengths)


def incompatible_pairs(seen: Observations, strengths: Mapping[tuple[int, int], Strength]) -> NDArray[np.bool_]:
    """The mask of the pairs that are incompatible, shape (archetypes, contexts)."""
    incompatible = np.zeros((len(seen.archetypes), len(seen.contexts)), dtype=bool)
    for pair, strength in strengths.items():
        incompatible[pair] = strength is not Strength.OWN_CAUSE
    return incompatible


def read_strengths(path: Path) -> tuple[Observations, dict[tuple[int, int], Strength]]:
    """The runs of a file, and what its pairs of an archetype and a context are. Raises RunsFileError and OSError."""
    try:
        table = parquet.read_table(path) if path.suffix == ".parquet" else arrow_csv.read_csv(path)
    except pa.ArrowInvalid as error:
        raise RunsFileError(f"{path}: {error}") from None
    archetype_of = _column(table, "archetype", path).astype(str)
    archetypes, archetype = np.unique(archetype_of, return_inverse=True)
    contexts, in_context = _contexts(table, path)
    used = {"archetype", "failed", "context", *(PREFIX + name for name in contexts)}
    others = {name: codes_of(_column(table, name, path)) for name in table.column_names if name not in used}
    clusters = {name.removeprefix(CLUSTER): codes for name, codes in others.items() if name.startswith(CLUSTER)}
    confounders = {name: codes for name, codes in others.items() if not name.startswith(CLUSTER)}
    seen = Observations(
        tuple(archetypes.tolist()),
        contexts,
        archetype,
        in_context,
        confounders,
        _flags(table, "failed", path),
        clusters,
    )
    return seen, _truth(path.with_name(path.name + ".truth.csv"), seen)


def _contexts(table: pa.Table, path: Path) -> tuple[tuple[str, ...], Flags]:
    named = [name for name in table.column_names if name.startswith(PREFIX)]
    if named:
        columns = [_flags(table, name, path) for name in named]
        return tuple(name.removeprefix(PREFIX) for name in named), np.stack(columns, axis=1)
    names, place = np.unique(_column(table, "context", path).astype(str), return_inverse=True)
    return tuple(names.tolist()), place[:, None] == np.arange(len(names))


def _column(table: pa.Table, name: str, path: Path) -> np.ndarray:
    if name not in table.column_names:
        raise RunsFileError(f"{path}: there is no column {name}; it has {', '.join(table.column_names)}")
    column = table.column(name)
    if column.null_count:
        raise RunsFileError(f"{path}: column {name} is empty in {column.null_count} rows")
    values: np.ndarray = column.to_numpy()
    return values


def _flags(table: pa.Table, name: str, path: Path) -> Flags:
    values = _column(table, name, path)
    if not np.isin(values, (0, 1)).all():
        raise RunsFileError(f"{path}: column {name} must hold 0 or 1")
    return values.astype(bool)


def _truth(path: Path, seen: Observations) -> dict[tuple[int, int], Strength]:
    found = {}
    with path.open(newline="") as file:
        for row in csv.DictReader(file):
            try:
                pair = seen.archetypes.index(row["archetype"]), seen.contexts.index(row["context"])
            except (KeyError, ValueError) as error:
                raise RunsFileError(f"{path}: {row} is no pair of the runs: {error}") from None
            try:
                found[pair] = Strength(row.get("strength") or Strength.STRONG)
            except ValueError:
                raise RunsFileError(f"{path}: {row}: column strength must be one of {', '.join(Strength)}") from None
    return found
