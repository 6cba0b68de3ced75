"""CSV and Parquet: any table with one row for each run."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyarrow import csv as arrow_csv
from pyarrow import parquet

from pharoah_provider.backfill._source import BackfillError, BackfillSource, Table


def read(path: Path) -> Table:
    """All columns as text. A name that ends in `.parquet` is Parquet, everything else is CSV, also compressed."""
    try:
        found = parquet.read_table(path) if path.suffix == ".parquet" else _csv(path)
    except (pa.ArrowInvalid, UnicodeDecodeError) as error:
        raise BackfillError(f"{path}: {error}") from None
    if twice := next((name for name, count in Counter(found.column_names).items() if count > 1), None):
        raise BackfillError(f"{path}: two columns have the name {twice}; rename one of them")
    return Table(path, {name: _text(found, name, path) for name in found.column_names})


def _csv(path: Path) -> pa.Table:
    """Every column is text, so that a version such as 12.10 does not become a number."""
    parse = arrow_csv.ParseOptions(newlines_in_values=True)
    with arrow_csv.open_csv(path, parse_options=parse) as begin:
        names = begin.schema.names
    convert = arrow_csv.ConvertOptions(column_types=dict.fromkeys(names, pa.string()), strings_can_be_null=False)
    return arrow_csv.read_csv(path, parse_options=parse, convert_options=convert)


def _text(table: pa.Table, name: str, path: Path) -> np.ndarray:
    column = table.column(name)
    try:
        return np.array(column.cast(pa.string()).fill_null("").to_pylist(), dtype=str)
    except pa.ArrowInvalid as error:
        raise BackfillError(f"{path}: column {name}: {error}") from None


SOURCE = BackfillSource("csv", "a table with one row for each run, CSV or Parquet", read)
