"""Tables of past runs become columns, or an error names file, row and column."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import parquet

from pharoah_learning.past_runs import observations, select_measured
from pharoah_protocol.vocabulary import Attribution, EndState
from pharoah_provider.backfill import SOURCES, BackfillError, Imported, columns_of, read_map
from pharoah_provider.backfill._columns import archetype_of
from pharoah_provider.backfill.sacct import expand
from pharoah_provider.cli import main

MAP = """
identity = ["id"]
model = "net"
error = "said"
exit_status = "status"
throughput = "speed"
time = { column = "when", format = "%d.%m.%Y %H:%M" }
[end_state]
column = "good"
values = { yes = "ok", no = "failed" }
[context]
driver = { column = "driver", pattern = '^(\\d+)' }
[confounders]
batch = "batch"
[clusters]
host = ["host", "rack"]
"""
HEADER = "id,net,good,said,status,speed,when,driver,batch,host,rack"
ROWS = [
    "1,resnet50,yes,,0,10.5,01.02.2024 10:00,535.129.03,8,h1,r1",
    "1,resnet50,yes,,0,10.5,01.02.2024 10:00,535.129.03,8,h1,r1",
    "2,ours,no,KeyError: 'x',1,,01.02.2024 11:00,550.1,8,,r2",
    "3,ours,no,,132,,02.02.2024 23:30,,16,h2,r2",
]


def imported(folder: Path, rows: list[str] = ROWS, columns: str = MAP, name: str = "runs.csv") -> Imported:
    path = folder / name
    text = "\n".join([HEADER, *rows]) + "\n"
    path.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
    return columns_of(path, SOURCES["csv"], read_map(columns, "the map"))


@pytest.mark.parametrize("name", ["runs.csv", "runs.csv.gz"])
def test_a_table_becomes_columns(tmp_path: Path, name: str) -> None:
    found = imported(tmp_path, name=name)
    runs = found.runs
    assert list(runs.model) == ["resnet50", "ours", "ours"] and found.repeated == 1
    assert list(runs.archetype) == ["residual_convnet", "", ""]
    assert list(runs.subject) == ["residual_convnet", "ours", "ours"]
    assert list(runs.end_state) == [EndState.OK, EndState.FAILED, EndState.FAILED]
    assert list(runs.attribution) == [Attribution.UNKNOWN, Attribution.USER, Attribution.SOFTWARE]
    assert list(runs.failed) == [False, False, True]
    assert list(runs.context["driver"]) == ["535", "550", ""]
    assert list(runs.clusters["host"]) == ["h1", "r2", "h2"]
    assert len(set(runs.clusters["day"])) == 2
    assert runs.throughput[0] == 10.5 and np.isnan(runs.throughput[1:]).all()
    assert found.unused == () and {one.became for one in found.became} >= {"model", "context.driver", "clusters.host"}


def test_parquet_and_csv_give_the_same_columns(tmp_path: Path) -> None:
    expected = imported(tmp_path)
    cells = [row.split(",") for row in ROWS]
    columns = {name: [row[place] for row in cells] for place, name in enumerate(HEADER.split(","))}
    table = pa.table({**columns, "speed": [float(text) if text else None for text in columns["speed"]]})
    parquet.write_table(table, tmp_path / "runs.parquet")
    found = columns_of(tmp_path / "runs.parquet", SOURCES["csv"], read_map(MAP, "the map"))
    assert list(found.runs.model) == list(expected.runs.model)
    assert np.array_equal(found.runs.throughput, expected.runs.throughput, equal_nan=True)


def test_a_star_stands_for_all_other_values(tmp_path: Path) -> None:
    columns = MAP.replace('no = "failed"', '"*" = "lost"')
    assert list(imported(tmp_path, columns=columns).runs.end_state) == [EndState.OK, EndState.LOST, EndState.LOST]


def test_versions_stay_text(tmp_path: Path) -> None:
    columns = MAP.replace("""{ column = "driver", pattern = '^(\\d+)' }""", '"driver"')
    found = imported(tmp_path, [row.replace("535.129.03", "12.10") for row in ROWS[:1]], columns)
    assert list(found.runs.context["driver"]) == ["12.10"]


def test_two_columns_of_one_name_and_a_folder_are_named(tmp_path: Path) -> None:
    columns = read_map('model = "a"\n[end_state]\ncolumn = "b"\n', "map")
    (tmp_path / "runs.csv").write_text("a,b,b\n1,ok,ok\n")
    with pytest.raises(BackfillError, match="two columns have the name b"):
        columns_of(tmp_path / "runs.csv", SOURCES["csv"], columns)
    with pytest.raises(BackfillError, match=r"(?i)directory"):
        columns_of(tmp_path, SOURCES["csv"], columns)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("yes", "perhaps", "row 2, column good: 'perhaps' is no end state"),
        ("10.5", "fast", "row 2, column speed: 'fast' is no number"),
        ("01.02.2024 10:00", "today", "row 2, column when: 'today' is no time"),
        ("resnet50", "", "row 2, column net: the model is empty"),
        (",0,10.5", ",x,10.5", "row 2, column status: 'x' is no exit status"),
    ],
)
def test_an_error_names_file_row_and_column(tmp_path: Path, old: str, new: str, message: str) -> None:
    with pytest.raises(BackfillError) as caught:
        imported(tmp_path, [ROWS[0].replace(old, new, 1)])
    assert message in str(caught.value) and "runs.csv" in str(caught.value)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ("", "the map: model is missing"),
        ('model = "net"', "the map: end_state is missing"),
        (MAP.replace('"net"', '"nets"'), "there is no column 'nets'; it has id, net"),
        (MAP + "[more]\n", "the map: more is not a key of a column map"),
        (MAP.replace("pattern", "patern"), "context.driver: patern is not one of"),
        (MAP.replace("'^(\\d+)'", "'('"), "context.driver: pattern"),
        (MAP.replace('batch = "batch"', "batch = 3"), "confounders.batch: column must name a column"),
        (MAP.replace('["id"]', '"id"'), "identity must be a list"),
        ("model = ", "the map: "),
    ],
)
def test_a_map_that_cannot_be_used_is_explained(tmp_path: Path, columns: str, message: str) -> None:
    with pytest.raises(BackfillError) as caught:
        imported(tmp_path, columns=columns)
    assert message in str(caught.value)


def test_a_file_without_runs_and_a_file_that_is_none_are_named(tmp_path: Path) -> None:
    with pytest.raises(BackfillError, match="holds no run"):
        imported(tmp_path, [])
    with pytest.raises(BackfillError, match="nowhere"):
        columns_of(tmp_path / "nowhere.csv", SOURCES["csv"], read_map(MAP, "m"))
    (tmp_path / "bad.parquet").write_text("no parquet")
    with pytest.raises(BackfillError, match=r"bad\.parquet"):
        columns_of(tmp_path / "bad.parquet", SOURCES["csv"], read_map(MAP, "m"))
    with pytest.raises(BackfillError, match=r"runs\.csv"):
        imported(tmp_path, ["1,2"])


@pytest.mark.parametrize(
    ("name", "archetype"),
    [
        ("resnet", "residual_convnet"),
        ("ResNet-50", "residual_convnet"),
        ("bert", "encoder"),
        ("unet3d", ""),
        ("own", ""),
    ],
)
def test_only_names_that_the_catalogue_has_get_an_archetype(name: str, archetype: str) -> None:
    assert archetype_of(name) == archetype


SACCT = """JobID|JobName|Partition|State|ExitCode|NodeList|AllocTRES|Start
17|bert|gpu|COMPLETED|0:0|n[01-03,07]|gres/gpu:a100=8|2024-01-01T00:00:00
17.batch|batch||COMPLETED|0:0|n01||2024-01-01T00:00:00
18|gpt|gpu|FAILED|0:11|n[07-08]|gres/gpu:a100=8|2024-01-02T00:00:00
19|gpt|gpu|OUT_OF_MEMORY|0:125|n[07,09]|gres/gpu:a100=8|2024-01-02T00:00:00
20|gpt|gpu|CANCELLED by 1000|0:15|n07|gres/gpu:a100=8|Unknown
21|gpt|gpu|NODE_FAIL|1:0|n10|gres/gpu:h100=8|2024-01-02T00:00:00
22|gpt|gpu|RUNNING|0:0|n08|gres/gpu:h100=8|2024-01-02T00:00:00
23|gpt|gpu|TIMEOUT|0:15|n08|gres/gpu:h100=8|2024-01-02T00:00:00
24|gpt|gpu|PREEMPTED|0:15|n08|gres/gpu:h100=8|2024-01-02T00:00:00
"""


def of_slurm(folder: Path, text: str = SACCT) -> Imported:
    path = folder / "sacct.txt"
    path.write_text(text)
    source = SOURCES["sacct"]
    return columns_of(path, source, read_map(source.map, "sacct"))


def test_slurm_accounting_is_read_with_its_states_and_nodes(tmp_path: Path) -> None:
    runs = of_slurm(tmp_path).runs
    states = [EndState.OK, EndState.FAILED, EndState.FAILED, EndState.CANCELLED, EndState.LOST, EndState.TIME_LIMIT]
    assert list(runs.end_state) == [*states, EndState.PREEMPTED]
    assert [cause.value for cause in runs.attribution] == [
        "unknown",
        "unknown",
        "user",
        "user",
        "node",
        "user",
        "platform",
    ]
    assert list(runs.context["gpu"][[0, 4]]) == ["a100", "h100"]
    assert runs.clusters["host"][1] == runs.clusters["host"][2] == "n07", "the node on which most jobs failed"
    assert runs.clusters["day"][3] == ""


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("JobName|", "", "the header lacks JobName"),
        ("17|bert|gpu", "17|bert|and|gpu", "row 2 has 9 columns, the header has 8"),
        ("n[01-03,07]", "n[03-01]", "'03-01' is no range"),
        ("n[01-03,07]", "n[01", "cannot be read"),
        ("COMPLETED|0:0|n[", "SOMEHOW|0:0|n[", "'SOMEHOW' is no end state"),
    ],
)
def test_broken_accounting_is_named(tmp_path: Path, old: str, new: str, message: str) -> None:
    with pytest.raises(BackfillError) as caught:
        of_slurm(tmp_path, SACCT.replace(old, new, 1))
    assert message in str(caught.value) and ("sacct.txt" in str(caught.value) or "node list" in str(caught.value))


@given(
    st.lists(
        st.tuples(st.from_regex(r"[a-z]{1,5}", fullmatch=True), st.sets(st.integers(0, 99), min_size=1)),
        min_size=1,
        max_size=4,
    )
)
def test_a_node_list_gives_back_the_nodes_it_was_made_of(groups: list[tuple[str, set[int]]]) -> None:
    text = ",".join(f"{name}[{','.join(f'{number:02}' for number in sorted(numbers))}]" for name, numbers in groups)
    assert expand(text) == [f"{name}{number:02}" for name, numbers in groups for number in sorted(numbers)]


def test_node_lists_have_ranges_prefixes_and_single_names() -> None:
    assert expand("n[01-03,07],login1") == ["n01", "n02", "n03", "n07", "login1"]
    assert expand("rack1-n[8-11]-ib") == ["rack1-n8-ib", "rack1-n9-ib", "rack1-n10-ib", "rack1-n11-ib"]
    assert expand("None assigned") == []


def test_superbench_results_are_runs_of_each_node_and_benchmark(tmp_path: Path) -> None:
    nodes = [
        {"node": "n1", "gpt2/return_code:0": 0, "gpt2/throughput_train:0": 10.0, "gpt2/throughput_train:1": 20.0},
        {"node": "n2", "gpt2/return_code:0": 0, "gpt2/return_code:1": 33, "monitor/x": None},
    ]
    path = tmp_path / "results.jsonl"
    path.write_text("\n".join(map(json.dumps, nodes)))
    source = SOURCES["superbench"]
    runs = columns_of(path, source, read_map(source.map, "superbench")).runs
    assert list(runs.model) == ["gpt2", "gpt2"] and list(runs.clusters["host"]) == ["n1", "n2"]
    assert list(runs.end_state) == [EndState.OK, EndState.FAILED] and runs.throughput[0] == 15.0
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(BackfillError, match="not a text in UTF-8"):
        columns_of(path, source, read_map(source.map, "superbench"))
    path.write_text('{"node": "n1"}\nnot json\n')
    with pytest.raises(BackfillError, match=r"results\.jsonl: row 2"):
        columns_of(path, source, read_map(source.map, "superbench"))


def many_runs(folder: Path) -> Path:
    """Runs on 30 hosts: one driver makes one model fail, a missing file makes another fail, fp16 is faster."""
    rng = np.random.default_rng(1)
    lines = ["model,driver,precision,host,good,said,speed"]
    for _ in range(4000):
        host = int(rng.integers(30))
        model, precision = f"m{rng.integers(5)}", rng.choice(["fp16", "fp32"])
        driver = "old" if host < 15 else "new"
        said = ""
        if model == "m1" and driver == "old" and rng.random() < 0.5:
            said = "RuntimeError: CUDA error: no kernel image is available for execution on the device"
        elif model == "m2" and driver == "new":
            said = "FileNotFoundError: [Errno 2] No such file or directory: 'train.bin'"
        speed = "" if said else f"{(2.0 if precision == 'fp16' else 1.0) * np.exp(rng.normal(0, 0.02)):.6g}"
        lines.append(f"{model},{driver},{precision},h{host},{'no' if said else 'yes'},{said},{speed}")
    path = folder / "many.csv"
    path.write_text("\n".join(lines) + "\n")
    return path


MANY_MAP = """
model = "model"
error = "said"
throughput = "speed"
[end_state]
column = "good"
values = { yes = "ok", no = "failed" }
[context]
driver = "driver"
precision = "precision"
[clusters]
host = "host"
"""


def test_the_command_prints_what_past_runs_say(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, columns, out = many_runs(tmp_path), tmp_path / "map.toml", tmp_path / "findings.json"
    columns.write_text(MANY_MAP)
    assert main(["backfill", str(file), "--map", str(columns), "--out", str(out)]) == 0
    printed = capsys.readouterr().out
    assert max(map(len, printed.splitlines())) <= 80
    assert "m1 fails at driver=old" in printed and "m2 fails" not in printed
    assert "called      m0 with precision fp16, against fp32" in printed
    assert "Data or a file that the job needs is not there." in printed.replace("\n", " ") or "is not there" in printed
    found = json.loads(out.read_text())
    assert any(one.get("context") == "driver=old" and one["call"] != "declined" for one in found)
    assert main(["backfill", str(file), "--map", str(columns), "--preview"]) == 0
    assert "called" not in capsys.readouterr().out


def test_the_command_explains_what_is_missing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["backfill", str(many_runs(tmp_path))]) == 1
    assert "--map is missing" in capsys.readouterr().err
    assert main(["backfill", str(tmp_path / "none.txt"), "--source", "sacct"]) == 1
    assert "none.txt" in capsys.readouterr().err


def test_runs_that_say_nothing_about_a_pair_are_left_out(tmp_path: Path) -> None:
    runs = columns_of(many_runs(tmp_path), SOURCES["csv"], read_map(MANY_MAP, "m")).runs
    seen = observations(runs)
    assert len(seen) == int((runs.end_state == EndState.OK).sum() + runs.failed.sum()) < len(runs)
    assert set(seen.contexts) == {"driver=old", "driver=new", "precision=fp16", "precision=fp32"}
    assert len(select_measured(runs).throughput) == int((runs.end_state == EndState.OK).sum())
