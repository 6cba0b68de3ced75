"""CSV and Parquet: any table with one row for each run."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyarrow import csv as arrow_csv
from pyarrow import parquet

from pharoah_learning.effects import Names
from pharoah_provider.backfill._source import BackfillError, BackfillSource, LazyColumns, Table

_FIRST_ROW = 2
"""The row of the first run, counted from 1: the names of the columns come before it."""


def read(path: Path) -> Table:
    """All columns as text. A name that ends in `.parquet` is Parquet, everything else is CSV, also compressed."""
    try:
        found = parquet.read_table(path) if path.suffix == ".parquet" else _csv(path)
    except (pa.ArrowException, UnicodeDecodeError) as error:
        raise BackfillError(f"{path}: {error}") from None
    if twice := next((name for name, count in Counter(found.column_names).items() if count > 1), None):
        raise BackfillError(f"{path}: two columns have the name {twice}; rename one of them")

    def column(name: str) -> Names:
        try:
            return _text(found.column(name))
        except pa.ArrowException as error:
            raise BackfillError(f"{path}: column {name}: {error}") from None

    return Table(path, LazyColumns(found.column_names, column), rows=np.arange(_FIRST_ROW, _FIRST_ROW + len(found)))


def _csv(path: Path) -> pa.Table:
    """Every column is text, so that a version such as 12.10 does not become a number."""
    parse = arrow_csv.ParseOptions(newlines_in_values=True)
    with arrow_csv.open_csv(path, parse_options=parse) as begin:
        names = begin.schema.names
    convert = arrow_csv.ConvertOptions(column_types=dict.fromkeys(names, pa.string()), strings_can_be_null=False)
    return arrow_csv.read_csv(path, parse_options=parse, convert_options=convert)


def _text(column: pa.ChunkedArray) -> Names:
    """Equal values of a chunk are one object. Raises ArrowException for values that are no text, such as lists."""
    chunks = [chunk.dictionary_encode() for chunk in column.cast(pa.string()).fill_null("").chunks]
    texts = [np.array(chunk.dictionary.to_pylist(), dtype=object)[chunk.indices.to_numpy()] for chunk in chunks]
    return np.concatenate([np.zeros(0, dtype=object), *texts])


SOURCE = BackfillSource("csv", "a table with one row for each run, CSV or Parquet", read)
