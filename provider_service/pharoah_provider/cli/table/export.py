"""`pharoah-provider table export FILE`: write the rows of the newest release for other programs or providers."""

from __future__ import annotations

import argparse
import csv
import io
import json
from collections.abc import Callable, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Any

from pharoah_protocol.v1 import ExportTableRequest
from pharoah_provider import channel
from pharoah_provider.cli._calls import call, rows_of
from pharoah_provider.listings.table import LISTING
from pharoah_serving.errors import ProviderError
from pharoah_system.files import write_output
from pharoah_system.standard_streams import show

Row = dict[str, Any]


class Format(StrEnum):
    """How rows are written."""

    CSV = "csv"
    JSON = "json"
    PARQUET = "parquet"


def add_parser(actions: Any) -> None:
    """Add this action."""
    what = "write the rows of the newest release to a file: CSV, JSON or Parquet"
    parser = actions.add_parser("export", help=what, description=__doc__)
    parser.add_argument("file", type=Path, metavar="FILE")
    parser.add_argument(
        "--format", choices=[str(one) for one in Format], help="default: as the name of the file ends, else csv"
    )
    parser.add_argument(
        "--portable", action="store_true", help="rows about device models, signed, for `table import` of others"
    )
    channel.add_options(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Raises ProviderError for a call that is refused and for a file that cannot be written."""
    return _portable(arguments) if arguments.portable else _for_programs(arguments)


def _portable(arguments: argparse.Namespace) -> int:
    if arguments.format:
        raise ProviderError("--format: a portable table has a format of its own; leave one of the two options out")
    answer = call(arguments, "ExportTable", ExportTableRequest())
    write(arguments.file, answer.content.encode())
    show(f"{arguments.file}: {answer.rows} rows about device models, signed")
    show("importers need your public key as well: pharoah-provider key")
    return 0


def _for_programs(arguments: argparse.Namespace) -> int:
    rows = rows_of(arguments, LISTING.name)
    ending = arguments.file.suffix.removeprefix(".")
    chosen = Format(arguments.format or (ending if ending in tuple(Format) else Format.CSV))
    if not rows:
        raise ProviderError("the table is empty: nothing was learned yet (pharoah-provider learn)")
    write(arguments.file, WRITERS[chosen](rows))
    show(f"{arguments.file}: {len(rows)} rows of release {rows[0]['release']}")
    return 0


def write(file: Path, content: bytes) -> None:
    """Replace a file as a whole. Raises ProviderError that names it."""
    try:
        write_output(file, content, mode=0o644)
    except OSError as error:
        raise ProviderError(f"{file}: {error.strerror}") from None


def _csv(rows: Sequence[Row]) -> bytes:
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, list(rows[0]))
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue().encode()


def _json(rows: Sequence[Row]) -> bytes:
    return (json.dumps(rows, indent=1) + "\n").encode()


def _parquet(rows: Sequence[Row]) -> bytes:
    import pyarrow as pa
    from pyarrow import parquet

    written = pa.BufferOutputStream()
    parquet.write_table(pa.Table.from_pylist(list(rows)), written)
    content: bytes = written.getvalue().to_pybytes()
    return content


WRITERS: dict[Format, Callable[[Sequence[Row]], bytes]] = {
    Format.CSV: _csv,
    Format.JSON: _json,
    Format.PARQUET: _parquet,
}
