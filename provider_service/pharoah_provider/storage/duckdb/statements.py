"""SQL from files: `sql/NAME.sql` holds the statements of one store, each under a line `-- name: STATEMENT`."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib import resources

_MARK = "-- name:"


@cache
def statements(store: str) -> Mapping[str, str]:
    """Statements of one file by name. Raises ValueError for a file with a name twice or with SQL before a name."""
    text = resources.files(__package__).joinpath("sql", f"{store}.sql").read_text()
    before, *parts = text.split(_MARK)
    if any(line.strip() and not line.startswith("--") for line in before.splitlines()):
        raise ValueError(f"sql/{store}.sql: SQL before the first `{_MARK}` line")
    found: dict[str, str] = {}
    for part in parts:
        name, _, sql = part.partition("\n")
        if name.strip() in found:
            raise ValueError(f"sql/{store}.sql: two statements are called {name.strip()}")
        found[name.strip()] = sql.strip()
    return found
