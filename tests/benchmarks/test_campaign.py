from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from importlib import import_module
from inspect import signature
from pathlib import Path

import pytest
import torch

from pharoah_benchmarks.campaign import cell_runner
from pharoah_benchmarks.campaign.cell import MAX_CELL_ID_LENGTH, Cell, CellResult, Degradation, NotBuilt, read_answer
from pharoah_benchmarks.campaign.cell_runner import run_trial
from pharoah_benchmarks.campaign.plan import PlanError, parse_plan
from pharoah_benchmarks.settings import SettingError, check
from pharoah_benchmarks.strategies import STRATEGIES
from pharoah_benchmarks.workload_files import workload_files
from pharoah_benchmarks.workloads import build
from pharoah_protocol import bounds
from pharoah_protocol.vocabulary import DeviceKind, Outcome

EXAMPLES = Path(__file__).parents[2] / "examples"
OWN = ("convnet", "gpt", "lstm", "mlp", "recommender")
"""Workloads whose scripts are in this repository; models of libraries have one script together."""
COMMON = {"device", "dtype", "environment", "optimizer", "ranks", "strategy", "task"}
SMALL = {
    "gpt": {"length": 16, "width": 32, "heads": 2, "depth": 2},
    "convnet": {"batch": 2, "size": 8},
    "lstm": {"batch": 2, "length": 8},
    "mlp": {"width": 32},
    "recommender": {"batch": 16, "items": 50},
}

DEGRADED = '[[workload]]\nname = "gpt"\n[degrade]\nworkload = "gpt"\n[[degrade.fault]]\n'
DEGRADED_CONTROL = '[[workload]]\nname = "gpt"\n[degrade]\nworkload = "gpt"\n'


def test_every_setting_of_a_workload_may_be_asked_for_and_no_other() -> None:
    for name in OWN:
        knows = signature(import_module(f"pharoah_benchmarks.workloads.{name}").build).parameters
        assert {key: parameter.default for key, parameter in knows.items()} == workload_files()[name].defaults
        for key, parameter in knows.items():
            check(name, {key: parameter.default})
        with pytest.raises(SettingError) as refused:
            check(name, {"lenght": 3})
        assert str(refused.value).endswith(f"known are {', '.join(sorted({*knows, *COMMON}))}")


def test_the_shipped_campaign_is_a_plan() -> None:
    text = (EXAMPLES / "campaign.toml").read_text()
    plan = parse_plan(text)
    assert {cell.workload for cell in plan.cells} == {"convnet", "gpt", "mlp", "recommender"}
    assert len({cell.id for cell in plan.cells}) == len(plan.cells)
    assert {cell.degradation.fault for cell in plan.degraded if cell.degradation} == {"none", "cpu_share", "host_leak"}


def test_the_shipped_campaign_of_distributed_jobs_has_a_cell_of_every_strategy() -> None:
    plan = parse_plan((EXAMPLES / "distributed_campaign.toml").read_text())
    assert {cell.settings.get("strategy") for cell in plan.cells} == {None, *STRATEGIES.entries}


def test_a_plan_is_the_grid_plus_single_points_times_repeats() -> None:
    plan = parse_plan(
        'repeats = 3\n[[workload]]\nname = "gpt"\nvary = { length = [8, 16], attention = ["flash", "math"] }\n'
        'also = [{ dtype = "bfloat16" }]'
    )
    assert len(plan.cells) == (2 * 2 + 1) * 3


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("= 3", "not TOML"),
        ('name = "x"', "workload"),
        ('repeat = 3\n[[workload]]\nname = "gpt"', "repeat: unknown key"),
        ('[[workload]]\nname = "birt"', "'birt' is no workload; known are bert, convnet"),
        ('[[workload]]\nname = "gpt"\nstep = 3', "workload.step: unknown key"),
        ('[[workload]]\nname = "gpt"\nvary = { length = 3 }', "workload.vary.length"),
        ('repeats = -1\n[[workload]]\nname = "gpt"', "repeats"),
        ('[[workload]]\nname = "gpt"\n[degrade]\nworkload = "gpt"\nstressor = [1]', "degrade.stressor: unknown key"),
        ('[[workload]]\nname = "gpt"\n[degrade]\nworkload = "gtp"', "degrade: 'gtp' is no workload"),
        (f"{DEGRADED}doses = [1]", "degrade.fault.name: None is no fault; known are allocator_fragmentation, bit_flip"),
        (f'{DEGRADED}name = "cpu_shre"', "degrade.fault.name: 'cpu_shre' is no fault; known are"),
        (f'{DEGRADED}name = "cpu_share"', "degrade.fault.doses: expected a list of numbers, not None"),
        (f'{DEGRADED}name = "cpu_share"\ndoses = [2]', "degrade.fault.doses: cpu_share: 2 is not from 0.01 to 1"),
        (f'{DEGRADED}name = "bit_flip"\ndoses = [1.5]', "degrade.fault.doses: bit_flip: 1.5 is not a whole number"),
        (f'{DEGRADED}name = "host_leak"\ndoses = [nan]', "doses: nan is no number"),
        (f'{DEGRADED}name = "nan"\ndoses = [1]\nramp_seconds = nan', "ramp_seconds: nan is no number"),
        (f'{DEGRADED}name = "nan"\ndoses = [1]\nonset_seconds = 9', "degrade.seconds: 8 s are over before nan begins"),
        (f'{DEGRADED}name = "nan"\ndoses = [1]\nrank = 1', "degrade.fault.rank: there is no rank 1; the cell has 1"),
        (f'{DEGRADED}name = "nan"\ndose = [1]', "degrade.fault.dose: unknown key"),
        (f'{DEGRADED}name = "rank_delay"\ndoses = [1]', "degrade.fault.name: rank_delay: it needs a cell with 2 ranks"),
        (f'{DEGRADED}name = "device_leak"\ndoses = [1e9]', "degrade.fault.name: device_leak: it needs a GPU"),
        ('[workload]\nname = "gpt"', "workload: expected a list"),
        (
            'repeats = 100000000\n[[workload]]\nname = "mlp"',
            "repeats: 100000000 is not a whole",
        ),
        (
            f'repeats = 300\n[[workload]]\nname = "mlp"\nvary = {{ width = {list(range(1, 99))} }}',
            "more than 20,000 cells",
        ),
        (
            f"limit_seconds = 2000\n{DEGRADED_CONTROL}seconds = 1001",
            "seconds: 1001 is not a whole number from 0 to 1,000",
        ),
        (f"limit_seconds = 8\n{DEGRADED_CONTROL}", "degrade.seconds: 8 s do not fit into the 8 s of limit_seconds"),
        (
            f'[[workload]]\nname = "mlp"\nsettings = {{ width = {10**4100} }}',
            "width: a whole number of more than 64 bits",
        ),
        ('limit_seconds = 0\n[[workload]]\nname = "mlp"', "limit_seconds: 0 is not a whole number from 1 to"),
        (
            '[[workload]]\nname = "mlp"\nsteps = 99999999999999999999',
            "steps: a whole number of more than 64 bits",
        ),
        ('[[workload]]\nname = "mlp"\nvary = { width = [64, 64] }', "mlp/width=64 comes twice; `repeats` says"),
        ('[[workload]]\nname = "mlp"\n[[workload]]\nname = "mlp"', "mlp/ comes twice"),
        (f'name = "{"n" * 101}"\n[[workload]]\nname = "mlp"', "name: expected a text of 1 to 100 characters"),
        ('degrade = 3\n[[workload]]\nname = "gpt"', "degrade: expected a table"),
        ('[[workload]]\nname = "gpt"\nsettings = 3', "settings: expected a table"),
        ('[[workload]]\nname = "gpt"\nsettings = { lenght = 8 }', "workload: lenght: no setting of gpt"),
        ('[[workload]]\nname = "gpt"\nvary = { attention = ["flush"] }', "attention: 'flush' is not one of flash"),
        ('[[workload]]\nname = "gpt"\nalso = [{ dtype = "int3" }]', "dtype: 'int3' is not one of float32"),
        ('[[workload]]\nname = "gpt"\nalso = [{ dtype = ["float32"] }]', "dtype"),
        ('[[workload]]\nname = "mlp"\nsettings = { width = 0 }', "width: 0 is not a whole number above 0"),
        ('[[workload]]\nname = "mlp"\nsettings = { ranks = 2 }', "ranks: 2 ranks need a strategy: ddp"),
        ('[[workload]]\nname = "mlp"\nsettings = { ranks = 3, strategy = "hsdp" }', "ranks: 3; hsdp needs a multiple"),
        ('[[workload]]\nname = "mlp"\nsettings = { ranks = 64, strategy = "ddp" }', "ranks: 64; ddp needs a multiple"),
        ('[[workload]]\nname = "mlp"\nsettings = { strategy = "ddp" }', "ranks: 1; ddp needs a multiple of 2"),
        ('[[workload]]\nname = "mlp"\nsettings = { strategy = "dpd", ranks = 2 }', "strategy: 'dpd' is not one of ddp"),
        ('[[workload]]\nname = "mlp"\nsettings = { device = "gpu" }', "device: 'gpu' is not one of cpu, cuda"),
    ],
)
def test_a_plan_nobody_can_run_names_the_key(text: str, named: str) -> None:
    with pytest.raises(PlanError, match=named):
        parse_plan(text)


@pytest.mark.parametrize(
    ("workload", "settings"),
    [("birt", {}), ("gpt", {"lenght": 3}), ("gpt", {"dtype": "int3"}), ("mlp", {"optimizer": "x"})],
)
def test_a_setting_that_does_not_exist_is_an_error(workload: str, settings: dict[str, object]) -> None:
    with pytest.raises(SettingError):
        build(workload, settings)


@pytest.mark.parametrize("name", OWN)
def test_every_workload_learns(name: str) -> None:
    torch.manual_seed(0)
    step, _ = build(name, SMALL[name])
    losses = [float(step()) for _ in range(12)]
    assert all(loss == loss for loss in losses)
    assert min(losses[6:]) < losses[0]


def test_a_trial_that_loses_its_numbers_is_nan() -> None:
    outcome = run_trial(Cell("c", "gpt", {**SMALL["gpt"], "dtype": "float16"}, steps=40))
    assert outcome.outcome == "nan"
    assert outcome.context["isa"] and outcome.context["threads"] >= 1
    assert outcome.device is DeviceKind.CPU and outcome.device_model == outcome.context["device"]


def test_a_trial_with_more_steps_than_a_result_may_hold_is_a_result(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "MAX_DURATIONS", 3)
    outcome = run_trial(Cell("c", "mlp", SMALL["mlp"], steps=5))
    assert (outcome.outcome, len(outcome.losses), len(outcome.step_seconds)) == (Outcome.OK, 5, 3)
    assert CellResult.from_json(outcome.to_json()) == outcome


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"), Outcome.MEMORY),
        (RuntimeError("cuDNN error: CUDNN_STATUS_ALLOC_FAILED"), Outcome.MEMORY),
        (RuntimeError("std::bad_alloc"), Outcome.MEMORY),
        (RuntimeError("unable to mmap 16 bytes from file: Cannot allocate memory (12)"), Outcome.MEMORY),
        (RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB"), Outcome.MEMORY),
        (OSError(errno.ENOMEM, os.strerror(errno.ENOMEM)), Outcome.MEMORY),
        (OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), Outcome.ERROR),
        (RuntimeError("CUDA error: CUBLAS_STATUS_NOT_SUPPORTED"), Outcome.ERROR),
    ],
)
def test_a_trial_that_gets_no_memory_is_not_an_error_of_its_script(
    error: Exception, expected: Outcome, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(*_: object) -> None:
        raise error

    monkeypatch.setattr(cell_runner, "build", failing)
    assert run_trial(Cell("c", "mlp", {})).outcome is expected


def test_a_trial_of_what_the_device_cannot_do_is_an_error_with_its_first_line() -> None:
    outcome = run_trial(Cell("c", "gpt", {**SMALL["gpt"], "dtype": "float8_e4m3fn"}))
    assert (outcome.outcome, bool(outcome.detail)) == ("error", True)


def test_cells_and_outcomes_survive_the_wire() -> None:
    cell = Cell("c", "gpt", {"length": 8}, degradation=Degradation(fault="cpu_share", dose=0.5))
    assert Cell.from_json(cell.to_json()) == cell
    result = CellResult(cell="c", outcome=Outcome.OK, step_seconds=[0.1], device=DeviceKind.CUDA, device_model="H100")
    assert CellResult.from_json(result.to_json()) == result
    long = "mlp/" + "e" * (MAX_CELL_ID_LENGTH - 4)
    assert CellResult.from_json(CellResult(cell=long, outcome=Outcome.OK).to_json()).cell == long
    assert read_answer(NotBuilt(cell=long, not_built="no index").to_json()).cell == long
    with pytest.raises(ValueError, match="weird"):
        CellResult.from_json(result.to_json().replace('"ok"', '"weird"'))


def test_a_cell_that_was_planned_before_the_registry_of_faults_is_read() -> None:
    stored = json.loads(Cell("c", "gpt", {}).to_json())
    stored["degradation"] = {"kind": "cpu_stressor", "start_seconds": 2.2, "ramp_seconds": 3.0, "strength": 0.5}
    expected = Degradation(fault="cpu_share", dose=0.5, onset_seconds=2.2, ramp_seconds=3.0)
    assert Cell.from_json(json.dumps(stored)).degradation == expected


def test_a_fork_server_survives_what_its_cells_do() -> None:
    """Out of memory under a real limit, a step that does not end in time, an unknown setting; the next cell is fine.

    More steps than fit into the time of a cell are no failure.
    """
    small = SMALL["gpt"]
    cells = [
        Cell("fits", "gpt", {**small}, steps=2),
        Cell("large", "gpt", {"length": 2048, "attention": "math", "batch": 4}, steps=1),
        Cell("many steps", "gpt", {**small}, steps=1_000_000, limit_seconds=2.0),
        Cell("long step", "mlp", {"width": 2048, "depth": 1, "batch": 8192}, limit_seconds=0.3),
        Cell("typo", "gpt", {"lenght": 1}),
        Cell("again", "gpt", {**small}, steps=2),
    ]
    done = subprocess.run(
        [sys.executable, "-m", "pharoah_benchmarks.campaign.fork_server", "500000000"],
        input="".join(cell.to_json() + "\n" for cell in cells).encode(),
        capture_output=True,
        check=True,
    )
    outcomes = {o.cell: o for o in map(CellResult.from_json, done.stdout.decode().splitlines())}
    assert {name: o.outcome for name, o in outcomes.items()} == {
        "fits": "ok",
        "large": "memory",
        "many steps": "ok",
        "long step": "timeout",
        "typo": "error",
        "again": "ok",
    }
    assert json.loads(outcomes["large"].fingerprint)["features"]["attention"] == "math"
    assert outcomes["fits"].context["memory_limit"] == 500_000_000
    assert sum(outcomes["many steps"].step_seconds) < 2.0


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"step_seconds": [0.1, 0.0]}, "step_seconds"),
        ({"step_seconds": [float("nan")]}, "NaN is no number"),
        ({"step_seconds": ["a"]}, "step_seconds"),
        ({"windows": [["a", 1, 1]]}, "windows: at_seconds: 'a' is not a finite number"),
        ({"windows": [[1, float("inf"), 1]]}, "Infinity is no number"),
        ({"windows": [{"at_seconds": 1.0}]}, "windows: expected at_seconds and values"),
        ({"windows": [{"at_seconds": 1.0, "values": [1.0]}]}, "windows: values"),
        ({"device": "tpu"}, "tpu"),
        ({"outcome": "slow"}, "outcome 'slow' is not one of"),
        ({"fingerprint": "{"}, "not JSON"),
        ({"fingerprint": "{}"}, "format"),
        ({"step_seconds": [1e308]}, "step_seconds"),
        ({"step_seconds": [0.1] * 100_001}, "more than 100000"),
        ({"step_seconds": {}}, "step_seconds"),
        ({"windows": [[1, 1, 1]] * 2001}, "at most 2000"),
        ({"context": {"x": "y" * 5000}}, "context"),
        ({"context": {"memory_limit": 2**51}}, "context.memory_limit"),
        ({"surprise": 1}, "expected an object with"),
        ({"telemetry": [{"at_seconds": 0, "values": {}}] * 4001}, "telemetry: expected a list of at most 4000"),
        ({"telemetry": [{"at_seconds": 0}]}, "telemetry: expected at_seconds and values"),
        ({"telemetry": [{"at_seconds": float("nan"), "values": {}}]}, "NaN is no number"),
        ({"telemetry": [{"at_seconds": 0, "values": {"a b": 1}}]}, "telemetry: values: 'a b' is not the name"),
        ({"telemetry": [{"at_seconds": 0, "values": {"loss": "x"}}]}, "telemetry: loss: 'x' is not a number"),
        ({"began_at": -1}, "began_at"),
    ],
)
def test_a_result_that_no_cell_can_have_measured_is_refused(changes: dict[str, object], named: str) -> None:
    text = json.dumps({**json.loads(CellResult(cell="c", outcome=Outcome.OK).to_json()), **changes})
    with pytest.raises((ValueError, TypeError), match=named):
        CellResult.from_json(text)


def test_the_detail_of_a_result_can_be_shown() -> None:
    result = CellResult(cell="c", outcome=Outcome.ERROR, detail="\x1b]0;x\n" + "y" * 5000)
    assert CellResult.from_json(result.to_json()).detail.startswith("?]0;x?yyy")
