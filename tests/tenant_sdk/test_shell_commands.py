"""A dry run follows the Python programs that a shell starts, in the shell's own order."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from pharoah._errors import UnknownReason
from pharoah.dryrun import dry_run
from pharoah.dryrun.sandbox_mode import SANDBOX_MODE, SandboxMode

PREPARE = "open('data.txt', 'w').write('8')"
TRAIN = """
import os, sys, torch
model = torch.nn.Linear(int(open("data.txt").read()), int(os.environ.get("WORLD_SIZE", 1)))
optimizer = torch.optim.SGD(model.parameters(), lr=float(sys.argv[1]))
for _ in range(3):
    model(torch.randn(2, 8)).mean().backward()
    optimizer.step()
"""
SCRIPT = """#!/bin/sh
set -eu
cd "$(dirname "$0")"
echo "on $(python -c 'print(1 + 1)') cores" > log.txt
python prepare.py
torchrun --nproc-per-node 4 train.py "$@"
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, content in (("prepare.py", PREPARE), ("train.py", TRAIN), ("train.sh", SCRIPT)):
        (tmp_path / name).write_text(content)
    (tmp_path / "train.sh").chmod(0o755)
    (tmp_path / "Makefile").write_text("train:\n\tpython prepare.py && python train.py 0.1\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent), prepend=":")
    return tmp_path


def test_a_shell_script_is_followed_to_its_training_step(folder: Path) -> None:
    before = sorted(path.name for path in folder.iterdir())
    for command in (["sh", "train.sh", "0.1"], ["./train.sh", "0.1"], ["env", "A=1", "bash", "train.sh", "0.1"]):
        dry = dry_run(command, 60.0)
        assert dry.fingerprint.sizes["parameters"] == 4 * (8 * 4 + 4)  # four ranks, by the number of processes
        assert dry.processes == 4
    assert sorted(path.name for path in folder.iterdir()) == before  # what the script writes stays in the sandbox


def test_a_program_that_srun_has_started_beside_others_is_one_process(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of them may be `pharoah run`, with a sidecar of its own."""
    for name, value in {"SLURM_STEP_ID": "0", "SLURM_STEP_TASKS_PER_NODE": "4", "SLURM_STEP_NUM_TASKS": "4"}.items():
        monkeypatch.setenv(name, value)
    (folder / "data.txt").write_text("8")
    assert dry_run([sys.executable, "train.py", "0.1"], 60.0).processes == 1


def test_a_makefile_and_a_line_of_commands_are_followed(folder: Path) -> None:
    for command in (["make", "train"], ["sh", "-c", "python prepare.py && python train.py 0.1"]):
        assert dry_run(command, 60.0).fingerprint.sizes["parameters"] == 4 * 9


def test_the_reason_names_what_went_wrong_in_the_program(folder: Path) -> None:
    with pytest.raises(UnknownReason, match=r"No such file or directory: .*missing\.py"):
        dry_run(["sh", "-c", "python missing.py"], 60.0)
    with pytest.raises(UnknownReason, match=r"nothing that `sh -c 'python prepare.py'` started made a training step"):
        dry_run(["sh", "-c", "python prepare.py"], 60.0)
    with pytest.raises(UnknownReason, match=r"exit code 3"):
        dry_run(["sh", "-c", "exit 3"], 60.0)


def test_a_shell_needs_a_sandbox_with_namespaces(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SANDBOX_MODE, SandboxMode.RULES)
    with pytest.raises(UnknownReason, match="a shell can be followed only in a sandbox with namespaces"):
        dry_run(["sh", "train.sh", "0.1"], 60.0)
