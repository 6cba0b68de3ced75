"""Fleets of others, read from a file."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import csv as arrow_csv
from pyarrow import parquet

from evaluation.figures import Figures
from evaluation.survival.fleet import measure_file
from evaluation.survival.fleet_file import FleetFileError, check_comparable, read_fleets

HEADER = "unit,hour,part,archetype,failed_of,degraded,count:errors,heat\n"
ROWS = HEADER + (
    "a,0,train,gpt,,0,3,20.0\n"
    "a,1,train,gpt,memory,1,4,21.0\n"
    "b,0,train,mlp,,0,0,\n"
    "c,0,calibrate,gpt,network,0,0,18.0\n"
    "d,0,calibrate,mlp,,0,0,\n"
    "e,0,test,gpt,memory,1,9,25.0\n"
    "f,0,test,gpt,,0,1,19.0\n"
    "f,1,test,gpt,,0,,19.5\n"
    "f,2,test,gpt,,0,2,19.0\n"
)


def _written(folder: Path, rows: str) -> Path:
    path = folder / "fleet.csv"
    path.write_text(rows)
    return path


def _parquet(folder: Path, rows: str, **columns: pa.Array) -> Path:
    """The same rows as Parquet, with some columns replaced."""
    table = arrow_csv.read_csv(_written(folder, rows))
    for name, column in columns.items():
        table = table.set_column(table.column_names.index(name), name, column)
    path = folder / "fleet.parquet"
    parquet.write_table(table, path)
    return path


def _refused(path: Path, message: str) -> None:
    with pytest.raises(FleetFileError, match=message):
        read_fleets(path)


def test_units_hours_and_failures_are_read(tmp_path: Path) -> None:
    found = read_fleets(_written(tmp_path, ROWS))
    assert found.train.fleet.resources == ("memory", "network") and found.train.fleet.groups == ("gpt", "mlp")
    assert found.train.fleet.last.tolist() == [1, 0] and found.train.fleet.cause.tolist() == [1, 0]
    assert found.calibrate.fleet.cause.tolist() == [2, 0] and found.calibrate.fleet.group.tolist() == [0, 1]
    assert found.train.degrading.tolist() == [True, False] and not found.has_hazard
    assert found.test.fleet.last.tolist() == [0, 2] and found.test.fleet.cause.tolist() == [1, 0]
    at = found.test.fleet.names.index("errors.recent")
    assert found.test.fleet.features[1, :, at] == pytest.approx(np.log1p([1, 1, 3]))
    at = found.test.fleet.names.index("heat.level")
    assert found.test.fleet.features[1, :2, at] == pytest.approx([19.0, 19.25])


def test_rows_may_be_in_any_order(tmp_path: Path) -> None:
    ordered = read_fleets(_written(tmp_path, ROWS))
    turned = read_fleets(_written(tmp_path, HEADER + "".join(reversed(ROWS.splitlines(keepends=True)[1:]))))
    for one, other in zip(ordered[:3], turned[:3], strict=True):
        assert one.fleet.last.tolist() == other.fleet.last.tolist()
        assert one.fleet.cause.tolist() == other.fleet.cause.tolist()
        assert np.array_equal(one.fleet.features, other.fleet.features)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (ROWS.replace("part", "set"), "there is no column part"),
        (ROWS.replace("calibrate", "other"), "column part: 'other' is none of train, calibrate, test"),
        (ROWS.replace("test", "train"), "column part: no unit is in test"),
        (ROWS.replace("c,0", ",0"), "column unit: it is empty in 1 rows, the first of them row 4"),
        (ROWS.replace("f,2", "f,"), "column hour: it is empty in 1 rows, the first of them row 9"),
        (ROWS.replace("f,2", "f,-2"), "column hour: it must hold whole numbers from 0 on"),
        (ROWS.replace("f,2", "f,1.5"), "column hour: it must hold whole numbers from 0 on; its type is double"),
        (ROWS.replace("21.0", "hot"), "column heat: it must hold numbers; its type is string"),
        (ROWS.replace("21.0", "inf"), "column heat: it holds inf in hour 1 of unit 'a'; expected are finite numbers"),
        (ROWS + "d,0\n", "fleet.csv"),
    ],
)
def test_a_file_that_holds_no_fleet_is_named(tmp_path: Path, rows: str, message: str) -> None:
    _refused(_written(tmp_path, rows), message)


def test_hours_with_a_gap_are_refused(tmp_path: Path) -> None:
    _refused(
        _written(tmp_path, ROWS.replace("f,1", "f,3")), "column hour: unit 'f' has no row of hour 1; expected is one"
    )


def test_units_that_begin_late_are_refused(tmp_path: Path) -> None:
    _refused(_written(tmp_path, ROWS.replace("d,0", "d,1")), "column hour: unit 'd' has no row of hour 0")


def test_hours_since_1970_are_refused_before_arrays_are_made_of_them(tmp_path: Path) -> None:
    """Arrays of so many hours would not fit into any memory."""
    rows = ROWS.replace("\nf,", f"\nf,{10**15}")
    _refused(_written(tmp_path, rows), "column hour: unit 'f' has no row of hour 0")


def test_two_rows_of_an_hour_are_refused(tmp_path: Path) -> None:
    _refused(_written(tmp_path, ROWS.replace("f,2", "f,1")), "column hour: two rows of unit 'f' have hour 1")


def test_a_unit_in_two_parts_is_refused(tmp_path: Path) -> None:
    message = "column part: it holds 'train' in hour 1 of unit 'f', and 'test' in the last hour of that unit"
    _refused(_written(tmp_path, ROWS.replace("f,1,test", "f,1,train")), message)


def test_a_unit_of_two_archetypes_is_refused(tmp_path: Path) -> None:
    message = "column archetype: it holds 'mlp' in hour 0 of unit 'a', and 'gpt' in the last hour of that unit"
    _refused(_written(tmp_path, ROWS.replace("a,0,train,gpt", "a,0,train,mlp")), message)


def test_a_failure_before_the_last_row_of_a_unit_is_refused(tmp_path: Path) -> None:
    message = "column failed_of: it holds 'disk' in hour 1 of unit 'f', whose last hour is 2; expected is"
    _refused(_written(tmp_path, ROWS.replace("f,1,test,gpt,", "f,1,test,gpt,disk")), message)


def test_a_negative_count_is_refused(tmp_path: Path) -> None:
    message = "column count:errors: it holds -4 in hour 1 of unit 'a'; expected are finite numbers from 0 on"
    _refused(_written(tmp_path, ROWS.replace("1,4,21.0", "1,-4,21.0")), message)


def test_a_negative_gauge_is_read(tmp_path: Path) -> None:
    found = read_fleets(_written(tmp_path, ROWS.replace("25.0", "-25.0")))
    assert found.test.fleet.features[0, 0, found.test.fleet.names.index("heat.level")] == -25


def test_a_column_of_dates_is_refused(tmp_path: Path) -> None:
    rows = ROWS.replace("0,\n", "0,2024-05-01\n").replace("21.0", "2024-05-02")
    for heat in ("20.0", "18.0", "25.0", "19.0", "19.5"):
        rows = rows.replace(f"{heat}\n", "2024-05-03\n")
    _refused(_written(tmp_path, rows), r"column heat: it must hold numbers; its type is date32\[day\]")


def test_a_column_of_lists_is_refused_where_text_is_expected(tmp_path: Path) -> None:
    path = _parquet(tmp_path, ROWS, archetype=pa.array([["gpt"]] * 9))
    _refused(path, "column archetype: it must hold text; its type is list")


def test_an_empty_archetype_is_refused(tmp_path: Path) -> None:
    rows = ROWS.replace("mlp", "")
    message = "column archetype: it is empty in 2 rows, the first of them row 3 after the header; expected is a value"
    _refused(_written(tmp_path, rows), message)
    _refused(_parquet(tmp_path, rows, archetype=pa.array(["gpt", "gpt", None, "gpt", None, *["gpt"] * 4])), message)


def test_a_gauge_with_the_name_of_a_counter_is_refused(tmp_path: Path) -> None:
    message = "column heat: 2 columns have this name, with or without count:; expected is one"
    _refused(_written(tmp_path, ROWS.replace("count:errors", "count:heat")), message)


def test_two_columns_of_one_name_are_refused(tmp_path: Path) -> None:
    _refused(_written(tmp_path, ROWS.replace("degraded", "hour")), "column hour: 2 columns have this name")


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (ROWS.replace("1,train,gpt,memory", "1,train,gpt,"), "column failed_of: no unit of part train fails; expected"),
        (ROWS.replace("test,gpt,memory", "test,gpt,"), "column failed_of: no unit of part test fails"),
        (ROWS.replace("calibrate,mlp,", "calibrate,mlp,disk"), "column failed_of: each unit of part calibrate fails"),
    ],
)
def test_a_part_without_failing_or_without_healthy_units_is_refused(tmp_path: Path, rows: str, message: str) -> None:
    _refused(_written(tmp_path, rows), message)


@pytest.mark.parametrize("kind", [pa.uint64(), pa.uint8(), pa.int32()])
def test_parquet_hours_may_be_of_any_whole_type(tmp_path: Path, kind: pa.DataType) -> None:
    found = read_fleets(_parquet(tmp_path, ROWS, hour=pa.array([0, 1, 0, 0, 0, 0, 0, 1, 2], kind)))
    assert found.train.fleet.last.tolist() == [1, 0] and found.test.fleet.last.tolist() == [0, 2]


def test_parquet_hours_beyond_all_signed_numbers_are_refused(tmp_path: Path) -> None:
    path = _parquet(tmp_path, ROWS, hour=pa.array([0, 1, 0, 0, 0, 0, 0, 1, 2**64 - 1], pa.uint64()))
    _refused(path, "column hour: it must hold whole numbers from 0 on")


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (ROWS.replace("memory,1,9", "memory,0.5,9"), "column degraded: it holds 0.5 in hour 0 of unit 'e'; expected"),
        (ROWS.replace("memory,1,9", "memory,2,9"), "column degraded: it holds 2 in hour 0 of unit 'e'; expected"),
        (ROWS.replace("heat", "true_hazard"), "column true_hazard: it holds 20 in hour 0 of unit 'a'; expected are"),
        (
            re.sub(r"[\d.]+$", "0.1", ROWS, flags=re.M).replace("heat", "true_hazard"),
            "true_hazard: it is empty in 2 rows",
        ),
    ],
)
def test_flags_and_probabilities_are_between_0_and_1(tmp_path: Path, rows: str, message: str) -> None:
    _refused(_written(tmp_path, rows), message)


def _long(first_test_hours: int, other_test_hours: int, degraded: int) -> str:
    """Units that are observed for so many hours, the first of each part failing in its last one."""
    lines = []
    for part, hours in (("train", (30, 30)), ("calibrate", (30, 30)), ("test", (first_test_hours, other_test_hours))):
        for number, last in enumerate(hours):
            for hour in range(last):
                ends = number == 0 and hour == last - 1
                cause, flag = ("memory", degraded) if ends else ("", 0)
                lines.append(f"{part}{number},{hour},{part},gpt,{cause},{flag},1,20.0\n")
    return HEADER + "".join(lines)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (_long(20, 24, 1), "no unit of part test is observed for more than 24 hours"),
        (_long(30, 29, 1), "no unit of part test is observed after hour 29, the first in which one fails"),
        (_long(30, 30, 0), "column degraded: no failure of part test has 1"),
    ],
)
def test_a_fleet_whose_failures_have_nothing_to_be_compared_with_is_named(
    tmp_path: Path, rows: str, message: str
) -> None:
    path = _written(tmp_path, rows)
    with pytest.raises(FleetFileError, match=message):
        check_comparable(read_fleets(path), path)


def test_a_file_without_a_row_is_refused(tmp_path: Path) -> None:
    message = "there is no row; expected is one for each unit and hour"
    _refused(_written(tmp_path, HEADER), message)
    path = tmp_path / "fleet.parquet"
    parquet.write_table(arrow_csv.read_csv(_written(tmp_path, ROWS)).slice(0, 0), path)
    _refused(path, message)


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
