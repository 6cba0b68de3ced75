"""The store: one DuckDB file, one process, one writer. SQL lives here and nowhere else."""

from pharoah_provider.store.database import Database
from pharoah_provider.store.store import Store

__all__ = ["Database", "Store"]
