"""New databases for tests, copied from one: the migrations take longer than most tests."""

from __future__ import annotations

import tempfile
from functools import cache
from pathlib import Path

from pharoah_provider.storage.duckdb import DuckStorage


def new_database(path: Path) -> None:
    """Make the database that a provider's first start makes, where there is none yet."""
    if not path.exists():
        path.write_bytes(_content())


@cache
def _content() -> bytes:
    """The file of a database with all tables and no rows."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "new.duckdb"
        DuckStorage(path).close()
        return path.read_bytes()
