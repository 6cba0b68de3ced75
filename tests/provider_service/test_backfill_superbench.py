"""Results of SuperBench as past runs, under the names that its benchmarks have."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pharoah_protocol.vocabulary import EndState
from pharoah_provider.backfill import SOURCES, BackfillError, Imported, columns_of, read_map
from pharoah_provider.cli import main

RESNET = "resnet_models/pytorch-resnet50"


def imported(folder: Path, metrics: dict[str, object]) -> Imported:
    (folder / "results.jsonl").write_text(json.dumps({"node": "n1", **metrics}) + "\n")
    source = SOURCES["superbench"]
    return columns_of(folder / "results.jsonl", source, read_map(source.map, "superbench"))


def test_a_benchmark_of_a_model_has_the_archetype_of_the_model(tmp_path: Path) -> None:
    runs = imported(tmp_path, {f"{RESNET}/return_code": 0, "gemm-flops/return_code:0": 0}).runs
    assert list(runs.model) == ["resnet50", "gemm-flops"]
    assert list(runs.archetype) == ["residual_convnet", ""]


@pytest.mark.parametrize("between", [":", "/"])
def test_ranks_are_written_in_two_ways(tmp_path: Path, between: str) -> None:
    metrics = {"return_code": (0, 33), "throughput_train_float32": (10.0, 30.0)}
    ranks = {
        f"{RESNET}/{name}{between}{rank}": value for name, own in metrics.items() for rank, value in enumerate(own)
    }
    runs = imported(tmp_path, ranks).runs
    assert list(runs.model) == ["resnet50"] and list(runs.end_state) == [EndState.FAILED]
    assert list(runs.throughput) == [20.0]


def test_what_the_monitor_measured_is_no_run(tmp_path: Path) -> None:
    monitored = {"monitor/gpu_temperature:0": 60, "monitor/gpu/power:0": 300, "monitored/return_code": 0}
    assert list(imported(tmp_path, monitored).runs.model) == ["monitored"]


def test_values_that_are_no_numbers_are_left_out(tmp_path: Path) -> None:
    values = {"throughput:0": "fast", "throughput:1": 10.0, "throughput:2": float("nan"), "throughput:3": True}
    runs = imported(tmp_path, {f"{RESNET}/{name}": value for name, value in values.items()}).runs
    assert list(runs.throughput) == [10.0]
    with pytest.raises(BackfillError, match="row 1: node: 7 is not a name"):
        imported(tmp_path, {"node": 7})


def test_the_command_says_that_results_without_a_context_give_nothing_to_compare(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    imported(tmp_path, {f"{RESNET}/return_code": 33})
    out = tmp_path / "findings.json"
    file = str(tmp_path / "results.jsonl")
    assert main(["backfill", file, "--source", "superbench", "--out", str(out)]) == 0
    printed = capsys.readouterr().out
    assert "No context is named, so there is nothing to compare: only columns and causes" in printed
    assert max(map(len, printed.splitlines())) <= 80 and "END STATE" in printed
    assert json.loads(out.read_text()) == []
