"""Fleets of others, read from a file."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from evaluation.figures import Figures
from evaluation.survival.fleet import measure_file
from evaluation.survival.fleet_file import FleetFileError, read_fleets

HEADER = "unit,hour,part,archetype,failed_of,degraded,count:errors,heat\n"
ROWS = HEADER + (
    "a,0,train,gpt,,0,3,20.0\n"
    "a,1,train,gpt,memory,1,4,21.0\n"
    "b,0,calibrate,mlp,,0,0,\n"
    "c,0,test,gpt,,0,1,19.0\n"
    "c,1,test,gpt,,0,,19.5\n"
    "c,2,test,gpt,,0,2,19.0\n"
)


def _written(folder: Path, rows: str) -> Path:
    path = folder / "fleet.csv"
    path.write_text(rows)
    return path


def test_units_hours_and_failures_are_read(tmp_path: Path) -> None:
    found = read_fleets(_written(tmp_path, ROWS))
    assert found.train.fleet.resources == ("memory",) and found.train.fleet.groups == ("gpt", "mlp")
    assert found.train.fleet.last.tolist() == [1] and found.train.fleet.cause.tolist() == [1]
    assert found.train.degrading.tolist() == [True] and not found.has_hazard
    assert found.test.fleet.last.tolist() == [2] and found.test.fleet.cause.tolist() == [0]
    at = found.test.fleet.names.index("errors.recent")
    assert found.test.fleet.features[0, :, at] == pytest.approx(np.log1p([1, 1, 3]))
    at = found.test.fleet.names.index("heat.level")
    assert found.test.fleet.features[0, :2, at] == pytest.approx([19.0, 19.25])


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (ROWS.replace("part", "set"), "there is no column part"),
        (ROWS.replace("calibrate", "other"), "column part: 'other' is none of"),
        (ROWS.replace("test", "train"), "no unit is in test"),
        (ROWS.replace("memory", ""), "no unit fails"),
        (ROWS.replace("c,2", "c,1"), "two rows of one unit have the same hour"),
        (ROWS.replace("c,2", "c,-2"), "whole numbers from 0 on"),
        (ROWS.replace("21.0", "hot"), "column heat must hold numbers"),
        (ROWS + "d,0\n", "fleet.csv"),
    ],
)
def test_a_file_that_holds_no_fleet_is_named(tmp_path: Path, rows: str, message: str) -> None:
    with pytest.raises(FleetFileError, match=message):
        read_fleets(_written(tmp_path, rows))


def test_models_of_a_fleet_from_a_file_are_measured(tmp_path: Path) -> None:
    """Two signals, of which one never changes; failures come after errors."""
    rng = np.random.default_rng(1)
    columns: dict[str, list[object]] = {name: [] for name in HEADER.strip().split(",")}
    for unit in range(240):
        sick = unit % 4 == 0
        for hour in range(30 if sick else 60):
            errors = rng.poisson(20 if sick and hour > 20 else 1)
            fails = "memory" if sick and hour == 29 else ""
            row = (f"u{unit}", hour, ("train", "calibrate", "test")[unit % 3], "gpt", fails, int(sick), errors, 5.0)
            for name, value in zip(columns, row, strict=True):
                columns[name].append(value)
    path = tmp_path / "fleet.parquet"
    parquet.write_table(pa.table(columns), path)
    figures = Figures("survival")
    measure_file(figures, path, 1)
    assert figures.values["c_index"] > 0.99
    assert "ap_over_oracle_ratio" not in figures.values
