"""Bare DuckDB: Arrow appends of equal batches with a commit each, as fast as one thread makes them."""

from __future__ import annotations

import time
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa

PREPARED = 64
"""Batches that are made before the time is taken: what is measured is DuckDB alone."""


def rows_per_second(path: Path, rows: int, seconds: float) -> float:
    """Append batches of so many rows for so many seconds, each committed before the next, to a new table of `path`."""
    tables = [_batch(number, rows) for number in range(PREPARED)]
    with duckdb.connect(str(path)) as connection:
        connection.execute(
            "CREATE OR REPLACE TABLE reports (run_id BLOB, attempt INTEGER, row_number BIGINT, rank INTEGER, "
            "ended_at DOUBLE, step_ratio DOUBLE, memory_ratio DOUBLE, masked BOOLEAN, risk DOUBLE)"
        )
        done, began = 0, time.monotonic()
        while (spent := time.monotonic() - began) < seconds:
            connection.begin()
            connection.register("batch", tables[done % PREPARED])
            connection.execute("INSERT INTO reports BY NAME SELECT * FROM batch")
            connection.unregister("batch")
            connection.commit()
            done += 1
    return done * rows / spent


def _batch(number: int, rows: int) -> pa.Table:
    """Seconds of ranks, a row for each, as one message reports them."""
    return pa.table(
        {
            "run_id": [number.to_bytes(16, "big")] * rows,
            "attempt": np.ones(rows, dtype=np.int32),
            "row_number": np.full(rows, number, dtype=np.int64),
            "rank": np.arange(rows, dtype=np.int32),
            "ended_at": np.full(rows, 1.8e9 + number),
            "step_ratio": np.ones(rows),
            "memory_ratio": np.ones(rows),
            "masked": np.zeros(rows, dtype=bool),
            "risk": np.zeros(rows),
        }
    )
