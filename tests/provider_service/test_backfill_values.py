"""Values of tables of past runs: patterns, days and numbers that JSON does not have."""

from __future__ import annotations

import json
import time
from pathlib import Path

import numpy as np
import pytest

from pharoah_provider.backfill import SOURCES, BackfillError, Imported, columns_of, read_map
from pharoah_provider.cli import main

MAP = """
model = "net"
time = "when"
[end_state]
column = "end"
[context]
driver = { column = "driver", pattern = '^v?(\\d+)?' }
"""


def imported(folder: Path, rows: list[str], columns: str = MAP) -> Imported:
    path = folder / "runs.csv"
    path.write_text("\n".join(["net,end,when,driver", *rows]) + "\n")
    return columns_of(path, SOURCES["csv"], read_map(columns, "the map"))


def test_a_value_without_the_part_that_a_pattern_takes_is_unknown(tmp_path: Path) -> None:
    found = imported(tmp_path, ["gpt,ok,,v535.1", "gpt,ok,,v", "gpt,ok,,none"])
    assert list(found.runs.context["driver"]) == ["535", "", ""]


def days(folder: Path, *times: str, columns: str = MAP) -> list[str]:
    found = imported(folder, [f"gpt,ok,{time},535" for time in times], columns)
    return [str(day) for day in found.runs.clusters["day"]]


def test_a_column_of_days_without_dashes_is_no_column_of_seconds(tmp_path: Path) -> None:
    assert days(tmp_path, "20240102", "", "20231231") == ["2024-01-02", "", "2023-12-31"]


@pytest.mark.parametrize("other", ["20736000", "864000", "1704153600.5"])
def test_seconds_that_look_like_a_day_stay_seconds_beside_others_that_do_not(tmp_path: Path, other: str) -> None:
    """Public tables count seconds from the first job."""
    assert days(tmp_path, "20240102", other)[0] == "1970-08-23"


def test_a_format_of_the_map_comes_first(tmp_path: Path) -> None:
    columns = MAP.replace('time = "when"', 'time = { column = "when", format = "%Y%d%m" }')
    assert days(tmp_path, "20240102", columns=columns) == ["2024-02-01"]
    with pytest.raises(BackfillError, match="row 3, column when: '20241301' is no time"):
        days(tmp_path, "20240102", "20241301", columns=columns.replace("%Y%d%m", "%Y%m%d"))


def test_a_day_does_not_depend_on_the_time_zone_of_the_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    try:
        with monkeypatch.context() as elsewhere:
            elsewhere.setenv("TZ", "Asia/Tokyo")
            time.tzset()
            assert days(tmp_path, "20240102") == ["2024-01-02"]
            assert days(tmp_path, "2024-01-02T00:30:00", "2024-01-02T00:30:00+09:00") == ["2024-01-02", "2024-01-01"]
    finally:
        time.tzset()


def test_findings_with_numbers_that_are_not_finite_are_written_as_json(tmp_path: Path) -> None:
    """All runs with one driver fail, so that no run is left to compare their throughput with."""
    rng = np.random.default_rng(1)
    lines = ["net,end,when,driver,host,speed"]
    for number in range(200):
        driver = ("535", "550")[number % 2]
        lines.append(f"gpt,{'failed' if driver == '550' else 'ok'},,{driver},h{number % 3},{rng.normal(10, 1):.3f}")
    (tmp_path / "runs.csv").write_text("\n".join(lines) + "\n")
    columns = MAP.replace('time = "when"', 'throughput = "speed"') + '[clusters]\nhost = "host"\n'
    (tmp_path / "map.toml").write_text(columns)
    out = tmp_path / "findings.json"
    assert main(["backfill", str(tmp_path / "runs.csv"), "--map", str(tmp_path / "map.toml"), "--out", str(out)]) == 0
    found = json.loads(out.read_text(), parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
    assert found and any(None in one.values() for one in found)
