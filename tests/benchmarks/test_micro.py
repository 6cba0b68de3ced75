"""The registry of micro-benchmarks, and one that a plug-in adds without a change to any file of ours."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from pharoah_benchmarks.facts import device_kinds
from pharoah_benchmarks.micro import GROUP, MICRO_BENCHMARKS, MicroBenchmark, Noise, Placement, Resource, suitable
from pharoah_protocol.registry import RegistryError
from pharoah_protocol.vocabulary import DeviceKind
from tests.harness.plugins import write_plugin


def test_the_benchmarks_that_come_with_pharoah_and_their_noise() -> None:
    """The numbers of ADR 4; they may change with a new measurement only."""
    selected = [benchmark for benchmark in MICRO_BENCHMARKS if benchmark.selected]
    assert {b.name: b.noise.log_ratio_sd for b in selected} == {"gemm": 0.22, "memory": 0.06}
    assert {benchmark.size for benchmark in selected} == {640, 64 << 20}
    assert {(b.repeats, b.limit_seconds, b.device, b.duty) for b in selected} == {(100, 4.0, DeviceKind.CPU, 0.1)}


def test_rounds_run_two_benchmarks_and_others_are_chosen_by_name() -> None:
    devices = {DeviceKind.CPU, DeviceKind.CUDA}
    for beside_job in (False, True):
        assert [one.name for one in suitable(devices, beside_job)] == ["gemm", "memory"]
    named = ("disk_write", "reproducibility", "gemm_cuda")
    assert [one.name for one in suitable({DeviceKind.CPU}, False, named)] == ["disk_write", "reproducibility"]
    beside = suitable(devices, True, named)
    assert [(one.name, one.duty) for one in beside] == [("reproducibility", 0.1)]
    with pytest.raises(RegistryError, match="'disc' is not one of"):
        suitable(devices, False, ("disc",))


def test_each_resource_of_a_node_has_a_benchmark() -> None:
    assert {benchmark.resource for benchmark in MICRO_BENCHMARKS} == set(Resource)
    on_gpus = {one.name.removesuffix("_cuda") for one in MICRO_BENCHMARKS if one.device is DeviceKind.CUDA}
    assert len(on_gpus) >= 16


def test_the_registry_is_read_without_torch() -> None:
    read = "import sys; from pharoah_benchmarks.micro import MICRO_BENCHMARKS; MICRO_BENCHMARKS.entries"
    code = f"{read}; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


@pytest.mark.parametrize(
    ("changes", "parameter"),
    [
        ({"name": "My GEMM"}, "name"),
        ({"resource": "compute"}, "resource"),
        ({"device": "tpu"}, "device"),
        ({"placement": "anywhere"}, "placement"),
        ({"device": DeviceKind.CUDA}, "placement"),
        ({"size": 0}, "size"),
        ({"noise": Noise(log_ratio_sd=0.0, source="nobody")}, "noise"),
        ({"noise": Noise(log_ratio_sd=0.1, source="")}, "noise"),
        ({"repeats": 0}, "repeats"),
        ({"limit_seconds": float("nan")}, "limit_seconds"),
        ({"duty": 0.0}, "duty"),
        ({"duty": 1.5}, "duty"),
        ({"need": "luck"}, "need"),
    ],
)
def test_a_micro_benchmark_checks_its_parameters(changes: dict[str, object], parameter: str) -> None:
    with pytest.raises(ValueError, match=f"micro-benchmark .*: {parameter}: "):
        replace(MICRO_BENCHMARKS["gemm"], **changes)  # type: ignore[arg-type]


def test_a_node_gets_the_benchmarks_that_suit_it(monkeypatch: pytest.MonkeyPatch) -> None:
    gemm = replace(MICRO_BENCHMARKS["gemm"], keeps_inputs=False)
    known = [
        gemm,
        replace(gemm, name="gpu_gemm", device=DeviceKind.CUDA, placement=Placement.EXCLUSIVE),
        replace(gemm, name="disk", placement=Placement.EXCLUSIVE),
    ]
    monkeypatch.setattr("pharoah_benchmarks.micro._registry.MICRO_BENCHMARKS", known)

    def names(facts: tuple[str, ...], beside_job: bool) -> list[str]:
        return [benchmark.name for benchmark in suitable(device_kinds(facts), beside_job)]

    assert names(("device=a CPU",), beside_job=True) == ["gemm"]
    assert names(("device=a CPU",), beside_job=False) == ["gemm", "disk"]
    assert names(("device=a CPU", "gpu=a GPU"), beside_job=False) == ["gemm", "gpu_gemm", "disk"]
    assert names(("device=a CPU", "gpu=a GPU"), beside_job=True) == ["gemm"], "the memory of a GPU is the job's"


PLUGIN = """
from pharoah_benchmarks.micro import GROUP, MICRO_BENCHMARKS, MicroBenchmark, Noise, Placement, Resource
from pharoah_protocol.vocabulary import DeviceKind


def build(_):
    values = list(range(1000))
    return lambda: sum(values)


ENTRY = MicroBenchmark(
    name="{name}",
    measures="time of a sum in the interpreter; size: the numbers in it",
    resource=Resource.COMPUTE,
    device=DeviceKind.CPU,
    dtype="int64",
    size={size},
    noise=Noise(log_ratio_sd=0.1, source="a guess of this test"),
    placement=Placement.BESIDE_JOB,
    repeats=7,
    limit_seconds=2.0,
    build=build,
)
"""
ROOT = Path(__file__).parents[2]


def installed(folder: Path, name: str = "interpreter", size: int = 1000) -> dict[str, str]:
    write_plugin(folder, GROUP, PLUGIN.format(name=name, size=size), name="sums")
    return {**os.environ, "PYTHONPATH": str(folder)}


def test_a_plug_in_adds_a_benchmark_to_registry_worker_and_campaign(tmp_path: Path) -> None:
    environ = installed(tmp_path)
    show = "from pharoah_benchmarks.micro import MICRO_BENCHMARKS as all; print(*all.entries)"
    done = subprocess.run([sys.executable, "-c", show], capture_output=True, text=True, env=environ, check=True)
    assert "interpreter" in done.stdout.split()

    order = json.dumps({"benchmark": "interpreter", "repeats": 3, "limit_seconds": 5})
    worker = [sys.executable, "-m", "pharoah_benchmarks.micro"]
    done = subprocess.run(worker, input=order + "\n", capture_output=True, text=True, env=environ, check=True)
    answer = json.loads(done.stdout)
    assert answer["error"] == "" and len(answer["seconds"]) == 3 and min(answer["seconds"]) > 0

    campaign = [sys.executable, "-m", "tests.harness.recorded_campaign", str(tmp_path / "c.duckdb")]
    done = subprocess.run(campaign, capture_output=True, text=True, env=environ, check=True, cwd=ROOT)
    # Per round of the baseline one order for the two that ask for 100 repeats in 4 s, and one for the plug-in's.
    assert "(('gemm', 'memory'), 100, 4.0)" in done.stdout and "(('interpreter',), 7, 2.0)" in done.stdout


@pytest.mark.parametrize("module", ["pharoah_benchmarks.micro", "pharoah_benchmarks.guest_probe"])
def test_what_libraries_print_is_no_answer(module: str) -> None:
    order = json.dumps({"benchmark": "gemm", "repeats": 3, "limit_seconds": 5})
    environ = {**os.environ, "MKL_VERBOSE": "1", "ONEDNN_VERBOSE": "1"}
    worker = [sys.executable, "-m", module]
    done = subprocess.run(worker, input=order + "\n", capture_output=True, text=True, env=environ, check=True)
    (line,) = done.stdout.splitlines()
    assert len(json.loads(line)["seconds"]) == 3


@pytest.mark.parametrize(
    ("name", "size", "named"),
    [
        ("gemm", 1000, "has an entry with the name 'gemm' already"),
        ("interpreter", 0, "size: 0 is invalid"),
    ],
)
def test_a_plug_in_that_cannot_be_used_is_named(tmp_path: Path, name: str, size: int, named: str) -> None:
    show = "from pharoah_benchmarks.micro import MICRO_BENCHMARKS; MICRO_BENCHMARKS.entries"
    done = subprocess.run(
        [sys.executable, "-c", show], capture_output=True, text=True, env=installed(tmp_path, name, size)
    )
    assert done.returncode != 0
    assert f"entry point 'sums' of {GROUP} (sums:ENTRY)" in done.stderr and named in done.stderr


def test_an_entry_point_that_is_no_micro_benchmark_is_named(tmp_path: Path) -> None:
    write_plugin(tmp_path, GROUP, "ENTRY = 3\n", name="sums")
    environ = {**os.environ, "PYTHONPATH": str(tmp_path)}
    show = "from pharoah_benchmarks.micro import MICRO_BENCHMARKS; MICRO_BENCHMARKS.entries"
    done = subprocess.run([sys.executable, "-c", show], capture_output=True, text=True, env=environ)
    assert f"of {GROUP} (sums:ENTRY) is a int, expected a {MicroBenchmark.__name__}" in done.stderr
