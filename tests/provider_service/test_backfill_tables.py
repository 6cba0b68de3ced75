"""Tables of past runs: what they cost, columns that are no text, and the rows that errors name."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from pharoah_learning.effects import Names
from pharoah_provider.backfill import SOURCES, BackfillError, Imported, columns_of, read_map
from pharoah_provider.backfill._source import LazyColumns

MAP = 'model = "net"\nend_state = "end"\n'
SACCT = """JobID|JobName|State|ExitCode|NodeList
17|bert|COMPLETED|0:0|n[01-03]
17.batch|batch|COMPLETED|0:0|n01
17.0|python|COMPLETED|0:0|n01
18|gpt|RUNNING|0:0|n01
19|gpt|FAILED|1:0|n02
20|gpt|FAILED|1:0|n[01-03]
"""


def of_slurm(folder: Path, text: str) -> Imported:
    (folder / "sacct.txt").write_text(text)
    return columns_of(folder / "sacct.txt", SOURCES["sacct"], read_map(SOURCES["sacct"].map, "sacct"))


@pytest.mark.parametrize("name", ["runs.csv", "runs.parquet", "sacct.txt"])
def test_one_long_value_does_not_give_every_run_its_memory(tmp_path: Path, name: str) -> None:
    path, states = tmp_path / name, ["ok", "x" * 10_000, "ok", "ok"]
    if name == "runs.csv":
        path.write_text("\n".join(["State", *states]) + "\n")
    elif name == "runs.parquet":
        parquet.write_table(pa.table({"State": states}), path)
    else:
        path.write_text("JobID|JobName|State|ExitCode|NodeList\n" + "".join(f"1|a|{one}|0|\n" for one in states))
    column = SOURCES["sacct" if name == "sacct.txt" else "csv"].read(path).column("State")
    assert column.tolist() == states and column.nbytes <= 8 * len(states)
    assert column[0] is column[2] is column[3], "equal values are one object"


def test_columns_are_made_when_they_are_asked_for() -> None:
    made: list[str] = []

    def make(name: str) -> Names:
        made.append(name)
        return np.array([name], dtype=object)

    columns = LazyColumns(("a", "b"), make)
    assert list(columns) == ["a", "b"] and len(columns) == 2 and "b" in columns and "c" not in columns and not made
    assert columns["b"] is columns["b"] and made == ["b"]
    with pytest.raises(KeyError):
        columns["c"]


def test_columns_of_lists_and_structs_matter_only_where_the_map_names_them(tmp_path: Path) -> None:
    path = tmp_path / "runs.parquet"
    columns = {"nodes": [["n1"], ["n2", "n3"]], "net": ["gpt", "bert"], "end": ["ok", "ok"], "more": [{"a": 1}] * 2}
    parquet.write_table(pa.table(columns), path)
    found = columns_of(path, SOURCES["csv"], read_map(MAP, "the map"))
    assert list(found.runs.model) == ["gpt", "bert"] and found.unused == ("nodes", "more")
    for name in ("nodes", "more"):
        with pytest.raises(BackfillError, match=rf"runs\.parquet: column {name}: "):
            columns_of(path, SOURCES["csv"], read_map(f'{MAP}[clusters]\nhost = "{name}"\n', "the map"))


def test_a_value_that_is_missing_is_empty_also_where_a_table_was_written_in_parts(tmp_path: Path) -> None:
    parts = [pa.table({"net": ["gpt", None], "end": ["ok", "ok"]}), pa.table({"net": ["bert"], "end": ["ok"]})]
    parquet.write_table(pa.concat_tables(parts), tmp_path / "runs.parquet", row_group_size=1)
    column = SOURCES["csv"].read(tmp_path / "runs.parquet").column("net")
    assert column.tolist() == ["gpt", "", "bert"]
    with pytest.raises(BackfillError, match="row 3, column net: the model is empty"):
        columns_of(tmp_path / "runs.parquet", SOURCES["csv"], read_map(MAP, "the map"))


def test_several_columns_together_name_a_run(tmp_path: Path) -> None:
    rows = ["net,end,job,attempt", "a,ok,1,1", "b,ok,1,2", "c,ok,11,", "d,ok,1,1", "e,ok,,11"]
    (tmp_path / "runs.csv").write_text("\n".join(rows) + "\n")
    columns = read_map(f'identity = ["job", "attempt"]\n{MAP}', "the map")
    found = columns_of(tmp_path / "runs.csv", SOURCES["csv"], columns)
    assert list(found.runs.model) == ["a", "b", "c", "e"] and found.repeated == 1


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("19|gpt|FAILED", "19|gpt|SOMEHOW", "row 6, column State: 'SOMEHOW' is no end state"),
        ("FAILED|1:0|n02", "FAILED|x|n02", "row 6, column ExitCode: 'x' is no exit status"),
        ("n02", "n[3-1]", "row 6, column NodeList: node list 'n[3-1]': '3-1' is no range"),
    ],
)
def test_an_error_names_the_row_of_the_file_behind_rows_that_are_left_out(
    tmp_path: Path, old: str, new: str, message: str
) -> None:
    with pytest.raises(BackfillError) as caught:
        of_slurm(tmp_path, SACCT.replace(old, new, 1))
    assert f"sacct.txt: {message}" in str(caught.value)


def test_a_delimiter_in_the_name_of_a_job_is_an_error_that_says_what_to_do(tmp_path: Path) -> None:
    text = SACCT.replace("19|gpt", "19|a|b")
    with pytest.raises(BackfillError, match=r"row 6 has 6 columns, the header has 5; .* --delimiter='@@'"):
        of_slurm(tmp_path, text)
    other = SACCT.replace("|", "@@").replace("19@@gpt", "19@@a|b\u2028c")
    runs = of_slurm(tmp_path, other).runs
    assert list(runs.model) == ["bert", "a|b\u2028c", "gpt"]
    assert list(runs.clusters["host"]) == ["n02", "n02", "n02"]
