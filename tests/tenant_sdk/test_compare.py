"""Records of jobs and their comparison: what differs, open or sealed, the likeliest reason first."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pharoah.cli.main import main
from pharoah.comparison.compare import compare
from pharoah.comparison.record import GROUPS, Record, RecordError, read_key
from pharoah_archetypes.effects import effect_of, is_looked_at

KEY = b"0123456789abcdef"
BASE = {
    "structure": {"archetype": "a" * 32, "fwd": "emb (gemm attn gemm act)+ gemm nll", "bwd": "grad"},
    "choices": {"dtype": "float32", "adamw lr": "0.001"},
    "software": {"torch": "2.13.0", "numpy": "2.4.6", "transformers": "5.23.0"},
    "environment": {"OMP_NUM_THREADS": "8"},
    "hardware": {"gpu": "NVIDIA H100 80GB HBM3", "driver": "570.86.15", "cpus": "96"},
    "limits": {"open files": "1048576", "memlock": "-1"},
    "cost": {"floating-point operations": "1000", "bytes of tensors": "2000"},
}


def changed(group: str, name: str, value: str) -> Record:
    return Record({**BASE, group: {**BASE.get(group, {}), name: value}})


def test_equal_records_do_not_differ() -> None:
    assert compare(Record(BASE), Record(BASE)) == []
    assert compare(Record(BASE).seal(KEY), Record(BASE).seal(KEY)) == []


@pytest.mark.parametrize(
    ("group", "name", "value", "expected"),
    [
        ("environment", "NCCL_IB_DISABLE", "1", "sockets instead of InfiniBand"),
        ("environment", "OMP_NUM_THREADS", "1", "number of threads"),
        ("environment", "NCCL_NEVER_HEARD_OF", "1", "other settings"),
        ("software", "torch", "1.13.0", "another major version"),
        ("software", "torch", "2.12.0", "another minor version"),
        ("software", "torch", "2.13.1", "another release"),
        ("hardware", "gpu", "NVIDIA A100-SXM4-80GB", "another device"),
        ("hardware", "driver", "535.1", "at least as new as the CUDA release"),
        ("limits", "memlock", "65536", "InfiniBand registers memory"),
        ("choices", "dtype", "bfloat16", "chose otherwise"),
        ("structure", "fwd", "emb (gemm attn gemm)+ gemm nll", "act"),
    ],
)
def test_a_difference_is_found_and_explained_beside_those_that_do_nothing(
    group: str, name: str, value: str, expected: str
) -> None:
    other = changed(group, name, value)
    other.groups["environment"] = {**other.groups["environment"], "NCCL_DEBUG": "INFO", "PYTHONHASHSEED": "7"}
    other.groups["software"] = {**other.groups["software"], "numpy": "2.4.7"}
    other.groups["cost"] = {**other.groups["cost"], "bytes of tensors": "2100"}
    first = compare(Record(BASE), other)[0]
    assert (first.group, first.name) == (group, name)
    assert expected in first.why


def test_a_class_of_operators_of_another_release_is_a_difference_without_details() -> None:
    (found,) = compare(Record(BASE), changed("structure", "fwd", "emb (gemm telepathy gemm act)+ gemm nll"))
    assert (found.name, found.why) == ("fwd", "it computes something else")


def test_the_larger_part_of_a_version_weighs_more() -> None:
    weights = [compare(Record(BASE), changed("software", "torch", v))[0].weight for v in ("1.0.0", "2.0.0", "2.13.1")]
    assert weights == sorted(weights, reverse=True)
    assert len(set(weights)) == 3


names = st.dictionaries(st.sampled_from(["a", "b", "c", "d"]), st.text(max_size=5), max_size=4)
records = st.fixed_dictionaries(dict.fromkeys(("choices", "environment", "limits", "hardware"), names)).map(Record)


@given(records, records)
def test_a_seal_shows_which_names_differ_and_nothing_else(left: Record, right: Record) -> None:
    open_ = {(found.group, found.name) for found in compare(left, right)}
    sealed = compare(left.seal(KEY), right.seal(KEY))
    assert {(found.group, found.name) for found in sealed} == open_
    values = {value for groups in (left.groups, right.groups) for v in groups.values() for value in v.values()}
    assert not values & {side for found in sealed for side in (found.left, found.right)} - {""}


def test_a_value_looks_different_under_every_name_and_key() -> None:
    record = Record({"choices": {"a": "1", "b": "1"}, "limits": {"a": "1"}})
    hashes = [
        value for key in (KEY, KEY[::-1]) for group in record.seal(key).groups.values() for value in group.values()
    ]
    assert len(set(hashes)) == 6


def test_records_that_cannot_be_compared_say_why() -> None:
    with pytest.raises(RecordError, match="give the key"):
        compare(Record(BASE), Record(BASE).seal(KEY))
    with pytest.raises(RecordError, match="different keys"):
        compare(Record(BASE).seal(KEY), Record(BASE).seal(KEY[::-1]))
    with pytest.raises(RecordError, match="no step of B was recorded"):
        compare(Record(BASE), Record({}))


def test_what_one_record_does_not_know_is_no_difference() -> None:
    seen = Record({group: values for group, values in BASE.items() if group != "cost"})
    assert compare(Record(BASE), seen) == compare(seen, Record(BASE)) == []


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("", "not a record"),
        ("[]", "format: expected 1"),
        ('{"format": 2}', "format: expected 1"),
        ('{"format": 1, "groups": {"secrets": {}}}', "groups: expected some of"),
        ('{"format": 1, "groups": {"cost": {"bytes moved": "many"}}}', "groups.cost.'bytes moved': 'many' is no"),
        ('{"format": 1, "groups": {"cost": {"bytes moved": "-1"}}}', "groups.cost.'bytes moved': '-1' is no"),
        ('{"format": 1, "groups": {"limits": {"a": 1}}}', "groups.limits: expected names with texts"),
    ],
)
def test_a_file_that_is_no_record_is_an_error_with_its_name(tmp_path: Path, content: str, expected: str) -> None:
    path = tmp_path / "other.json"
    path.write_text(content)
    with pytest.raises(RecordError, match=rf"other\.json: .*{expected}"):
        Record.read(path)
    with pytest.raises(RecordError, match=r"missing\.json: No such file"):
        Record.read(tmp_path / "missing.json")


def test_a_key_must_be_one(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match="openssl rand"):
        read_key(tmp_path / "key")
    (tmp_path / "key").write_text("short\n")
    with pytest.raises(RecordError, match="5 bytes are too few"):
        read_key(tmp_path / "key")


def test_secrets_and_names_of_people_are_not_looked_at() -> None:
    for variable in ("AWS_SECRET_ACCESS_KEY", "HF_TOKEN", "USER", "HOME", "WANDB_API_KEY", "PATH", "TORCH_HOME"):
        assert not is_looked_at(variable)
    for variable in ("NVIDIA_API_KEY", "DS_API_KEYS", "FI_CXI_COLL_MCAST_TOKEN", "XLA_CLIENT_SECRET", "DS_PASSWORD"):
        assert not is_looked_at(variable)
    for variable in ("NCCL_SOCKET_IFNAME", "NCCL_IB_PKEY", "NVIDIA_VISIBLE_DEVICES", "TOKENIZERS_PARALLELISM"):
        assert is_looked_at(variable)
    assert effect_of("environment", "NCCL_IB_DISABLE").weight > effect_of("environment", "NCCL_DEBUG").weight


@pytest.mark.usefixtures("quick_commands")
def test_two_jobs_are_recorded_and_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "import sys, torch\n"
        "model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))\n"
        "optimizer = torch.optim.SGD(model.parameters(), lr=float(sys.argv[1]))\n"
        "for _ in range(2):\n"
        "    model(torch.randn(4, 8)).pow(2).mean().backward()\n"
        "    optimizer.step()\n"
    )
    key = tmp_path / "key"
    key.write_bytes(KEY)
    files = [tmp_path / name for name in ("a.json", "b.json", "sealed.json")]
    assert main(["record", "--out", str(files[0]), "--", sys.executable, str(script), "0.1"]) == 0
    monkeypatch.setenv("NCCL_P2P_DISABLE", "1")
    assert main(["record", "--out", str(files[1]), "--", sys.executable, str(script), "0.5"]) == 0
    assert main(["record", "--out", str(files[2]), "--key", str(key), "--", sys.executable, str(script), "0.5"]) == 0
    assert set(Record.read(files[0]).groups) == set(GROUPS)
    capsys.readouterr()
    assert main(["compare", str(files[0]), str(files[1]), "-o", "json"]) == 0
    expected = [(found["name"], found["left"], found["right"]) for found in json.loads(capsys.readouterr().out)]
    assert expected == [("NCCL_P2P_DISABLE", "", "1"), ("sgd lr", "0.1", "0.5")]
    assert main(["compare", str(files[0]), str(files[2]), "--key", str(key)]) == 0
    shown = capsys.readouterr().out
    assert "sgd lr\n      differs" in shown
    assert "0.5" not in shown
    assert max(map(len, shown.splitlines())) <= 80
    assert main(["compare", str(files[0]), str(files[2])]) == 2


CARDS = ",".join(f"mlx5_{number}:1" for number in range(8))
"""71 characters without a space."""


@pytest.mark.parametrize(
    ("left", "right", "shown"),
    [
        (CARDS, CARDS[:-1] + "2", ["...lx5_6:1,mlx5_7:1", "...lx5_6:1,mlx5_7:2"]),
        (CARDS, f"{CARDS},mlx5_8:1", ["...x5_6:1,mlx5_7:1", "...x5_6:1,mlx5_7:1,mlx5_8:1"]),
        (CARDS, f"^{CARDS}", [f"{CARDS[:57]}...", f"^{CARDS[:56]}..."]),
        ("--flag=1 " * 7 + "a", "--flag=1 " * 7 + "b", ["...lag=1 --flag=1 a", "...lag=1 --flag=1 b"]),
        ("--a --b", "--a  --b", ["--a --b", "--a  --b"]),
        ("eth0\n", "eth0", ["eth0\\n", "eth0"]),
        ("eth0", "", ["eth0", "-"]),
    ],
)
def test_values_are_shown_so_that_their_difference_is_seen(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], left: str, right: str, shown: list[str]
) -> None:
    files = [tmp_path / "a.json", tmp_path / "b.json"]
    for file, value in zip(files, (left, right), strict=True):
        file.write_text(changed("environment", "NCCL_IB_HCA", value).to_json())
    assert main(["compare", *map(str, files)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if line[:8] in ("      A ", "      B ")] == [
        f"      {mark} {value}" for mark, value in zip("AB", shown, strict=True)
    ]
    assert max(map(len, lines)) <= 80
