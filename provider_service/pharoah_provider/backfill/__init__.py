"""Backfill: tables of past runs that others wrote become columns that learning reads.

Each source is one file here, or an entry point in the group `pharoah.backfill`. What is imported serves to schedule
suspects; it never makes a row that blocks a job.
"""

from pharoah_provider.backfill._column_map import ColumnMap, read_map, read_map_file
from pharoah_provider.backfill._columns import Imported, columns_of
from pharoah_provider.backfill._registry import GROUP, SOURCES
from pharoah_provider.backfill._source import BackfillError, BackfillSource, Table

__all__ = [
    "GROUP",
    "SOURCES",
    "BackfillError",
    "BackfillSource",
    "ColumnMap",
    "Imported",
    "Table",
    "columns_of",
    "read_map",
    "read_map_file",
]
