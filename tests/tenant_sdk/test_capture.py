"""Fingerprints of real steps and of fake ones, in processes of their own: the dry run patches torch."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from pharoah._dryrun import fingerprint_command, fingerprint_step
from pharoah._errors import UnknownReason
from pharoah_archetypes import Fingerprint

REAL = """
import json, sys, torch
from torch.optim.optimizer import register_optimizer_step_pre_hook
from pharoah import _capture
from pharoah_benchmarks.workloads import build
torch.set_num_threads(1)
step, optimizer = build(sys.argv[1], json.loads(sys.argv[2]))
recorder = _capture.Recorder()
register_optimizer_step_pre_hook(lambda *_: setattr(recorder, "in_optimizer", True))
with recorder:
    step()
print(_capture.fingerprint(recorder.records, _capture.parameter_bytes(optimizer), optimizer).to_json())
"""
FAKE = """
import json, sys
from pharoah import _fake
from pharoah_benchmarks.workloads import build
for arguments in map(json.loads, sys.argv[1:]):
    try:
        with _fake.fake_step():
            build(*arguments)[0]()
    except _fake.Finished as finished:
        print(finished.fingerprint.to_json())
"""
TRAIN = """
import torch
model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
"""
STEP = "model(torch.randn(4, 8)).pow(2).mean().backward()\noptimizer.step()\n"


def real(workload: str, settings: dict[str, object]) -> Fingerprint:
    command = [sys.executable, "-c", REAL, workload, json.dumps(settings)]
    return Fingerprint.from_json(subprocess.run(command, capture_output=True, check=True).stdout)


def fake(workload: str, settings: dict[str, object]) -> Fingerprint:
    command = [sys.executable, "-c", FAKE, json.dumps([workload, settings])]
    return Fingerprint.from_json(subprocess.run(command, capture_output=True, check=True).stdout)


def dry(tmp_path: Path, source: str, *arguments: str, seconds: float = 30.0) -> Fingerprint:
    script = tmp_path / "train.py"
    script.write_text(source)
    return fingerprint_command([sys.executable, str(script), *arguments], seconds)


@pytest.mark.parametrize(
    ("workload", "settings"),
    [
        ("gpt", {"length": 32}),
        ("gpt", {"length": 32, "attention": "math", "dtype": "bfloat16"}),
        ("convnet", {"batch": 2, "size": 16}),
        ("recommender", {"batch": 8, "items": 100}),
    ],
)
def test_a_fake_step_is_the_real_step(workload: str, settings: dict[str, object]) -> None:
    assert fake(workload, settings) == real(workload, settings)


def test_sizes_depth_and_dtype_are_no_structure() -> None:
    small = fake("gpt", {"length": 32, "width": 64, "depth": 2, "heads": 2})
    large = fake("gpt", {"length": 64, "width": 128, "depth": 5, "batch": 1, "dtype": "bfloat16"})
    assert small.archetype == large.archetype
    assert small.sizes["parameters"] < large.sizes["parameters"]


def test_four_workloads_are_four_archetypes() -> None:
    found = {fake(name, {}).archetype for name in ("gpt", "convnet", "mlp", "recommender")}
    assert len(found) == 4


def test_the_script_of_an_example_is_the_campaigns_workload() -> None:
    example = Path(__file__).parents[2] / "examples" / "train_gpt.py"
    fingerprint = fingerprint_command([sys.executable, str(example), "--length", "64"], 60.0)
    assert fingerprint.archetype == fake("gpt", {"length": 64}).archetype


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        (TRAIN, "ended before an optimizer stepped"),
        ("raise SystemExit(3)", "exited with 3"),
        ("import nowhere_to_be_found", "ModuleNotFoundError"),
        (TRAIN + "open('left-behind', 'w')\n" + STEP, "writes left-behind"),
        (TRAIN + "import os; os.mkdir('left-behind')\n" + STEP, "os.mkdir"),
        (TRAIN + "import subprocess; subprocess.run(['true'])\n" + STEP, "subprocess.Popen"),
        (TRAIN + "import socket; socket.create_connection(('127.0.0.1', 9))\n" + STEP, "socket"),
        (
            TRAIN + "try:\n    open('left-behind', 'w')\nexcept BaseException:\n    pass\n" + STEP,
            "writes left-behind",
        ),
        (TRAIN + "import os; os.abort()", "died"),
        (TRAIN + "while True: pass", "longer than"),
    ],
)
def test_what_cannot_be_dry_run_says_why_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str, reason: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UnknownReason, match=reason):
        dry(tmp_path, source, seconds=5.0 if "while True" in source else 30.0)
    assert [path.name for path in tmp_path.iterdir()] == ["train.py"]


def test_a_plain_script_is_fingerprinted(tmp_path: Path) -> None:
    fingerprint = dry(tmp_path, TRAIN + "x = 1\n" + STEP)
    assert fingerprint.grammar.startswith("fwd: gemm act gemm")
    assert fingerprint.features == {"dtype": "float32", "optimizer": "sgd/forloop"}
    assert fingerprint.sizes["parameters"] == 4 * (8 * 8 + 8 + 8 + 1)


def test_a_command_that_is_not_python_is_unknown() -> None:
    with pytest.raises(UnknownReason, match="not `python"):
        fingerprint_command(["bash", "train.sh"], 1.0)


def test_a_step_function_is_fingerprinted_without_touching_its_weights() -> None:
    script = TRAIN + (
        "from pharoah._dryrun import fingerprint_step\n"
        "before = [p.detach().clone() for p in model.parameters()]\n"
        "def step():\n    model(torch.randn(4, 8)).pow(2).mean().backward()\n    optimizer.step()\n"
        "print(fingerprint_step(step, 30.0).to_json())\n"
        "assert all(torch.equal(a, b) for a, b in zip(before, model.parameters()))\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True)
    assert Fingerprint.from_json(done.stdout).grammar.startswith("fwd: gemm act gemm")


def test_fingerprinting_a_step_that_raises_says_why() -> None:
    def step() -> None:
        raise KeyError("nothing here")

    with pytest.raises(UnknownReason, match="KeyError"):
        fingerprint_step(step, 30.0)
