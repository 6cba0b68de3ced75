"""CSV and Parquet: any table with one row for each run."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from typing import IO

import numpy as np
import pyarrow as pa
from pyarrow import csv as arrow_csv

from pharoah_learning.effects import Names
from pharoah_provider.backfill._source import BackfillError, BackfillSource, LazyColumns, Table
from pharoah_system.bounded_reading import BoundedStream, UnreadableInput, open_regular

MAX_COLUMNS = 4_096
_HEAD_BYTES = 1 << 20
"""The parser reads as much at once, so that no row is longer."""
MAX_SMALL_CELLS, MAX_CELLS_OF_BYTE = 1_000_000, 64
"""Values of a Parquet file: so many in any, else so many for each byte."""
_CODECS = {".gz": "gzip", ".bz2": "bz2", ".lz4": "lz4", ".zst": "zstd"}
"""What pyarrow finds by the end of a name."""
_TEXT = pa.dictionary(pa.int32(), pa.string())
"""Text whose equal values are stored once. A file is read so without pyarrow.compute, which loads slowly."""
_FIRST_ROW = 2
"""The row of the first run, counted from 1: the names of the columns come before it."""


def read(path: Path) -> Table:
    """All columns as text. A name that ends in `.parquet` is Parquet, everything else is CSV, also compressed."""
    try:
        found = _parquet(path) if path.suffix == ".parquet" else _csv(path)
    except UnreadableInput as error:
        raise BackfillError(str(error)) from None
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


def _parquet(path: Path) -> pa.Table:
    """A column that repeats one value takes some bytes, whatever the number of its rows."""
    from pyarrow import parquet  # here: a CSV needs none of it

    with open_regular(path) as file:
        found = parquet.ParquetFile(file)
        size, cells = os.fstat(file.fileno()).st_size, found.metadata.num_rows * found.metadata.num_columns
        if cells > max(MAX_SMALL_CELLS, MAX_CELLS_OF_BYTE * size) or found.metadata.num_columns > MAX_COLUMNS:
            raise UnreadableInput(path, f"{cells:,} values in {size:,} bytes: write the table as CSV, and look at it")
        return found.read()


def _csv(path: Path) -> pa.Table:
    """Every column is text, so that a version such as 12.10 does not become a number."""
    parse = arrow_csv.ParseOptions(newlines_in_values=True)
    with _stream(path) as head:
        if head.read(_HEAD_BYTES).partition(b"\n")[0].count(b",") > MAX_COLUMNS:
            raise UnreadableInput(path, f"more than {MAX_COLUMNS:,} columns", "row 1")
    with _stream(path) as stream, arrow_csv.open_csv(stream, parse_options=parse) as begin:
        names = begin.schema.names
    convert = arrow_csv.ConvertOptions(column_types=dict.fromkeys(names, _TEXT), strings_can_be_null=False)
    with _stream(path) as stream:
        return arrow_csv.read_csv(stream, parse_options=parse, convert_options=convert)


def _stream(path: Path) -> IO[bytes]:
    """The text of a file, also of one that is compressed, by the end of its name."""
    raw = open_regular(path)
    if codec := _CODECS.get(path.suffix):
        return BoundedStream(raw, path, pa.CompressedInputStream(raw, codec))  # type: ignore[return-value]
    return raw


def _text(column: pa.ChunkedArray) -> Names:
    """Equal values of a chunk are one object. Raises ArrowException for values that are no text, such as lists."""
    chunks = column.chunks
    if column.type != _TEXT or column.null_count:
        chunks = [one.dictionary_encode(null_encoding="encode") for one in column.cast(pa.string()).chunks]
    texts = [np.zeros(0, dtype=object)]
    for chunk in chunks:
        values = np.array([value or "" for value in chunk.dictionary.to_pylist()], dtype=object)
        texts.append(values[np.from_dlpack(chunk.indices)])  # to_numpy would load pandas
    return np.concatenate(texts)


SOURCE = BackfillSource("csv", "a table with one row for each run, CSV or Parquet", read)
