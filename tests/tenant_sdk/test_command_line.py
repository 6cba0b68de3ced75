"""Command lines are recognised by the parent of a dry run, and torchrun's arguments are parsed by torch itself."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from pharoah._errors import UnknownReason
from pharoah.dryrun import dry_run
from pharoah.dryrun.command_line import Launch, Launcher, Program, launch_of
from pharoah.dryrun.torch_launcher import without_launcher

GPUS = ",".join(["NVIDIA H100 80GB HBM3"] * 4)


def first_rank(launch: Launch) -> Program:
    program = Program.from_json(launch.program.to_json())
    return program if program.launcher is Launcher.NONE else without_launcher(program)


@pytest.mark.parametrize(
    ("command", "program", "nodes", "processes"),
    [
        ("torchrun train.py", "train.py", 1, 1),
        ("torchrun --nproc-per-node 8 --nnodes 16 train.py --lr 1", "train.py --lr 1", 16, 8),
        ("torchrun --nproc_per_node=4 --standalone train.py", "train.py", 1, 4),
        ("torchrun --nnodes=1:4 --rdzv-backend c10d --rdzv-endpoint h:1 -m pkg.train -x", "-m pkg.train -x", 4, 1),
        ("torchrun -r 3 -t 3 --max-restarts 2 --nproc-per-node 2 train.py -r", "train.py -r", 1, 2),
        ("torchrun --nproc-per 2 train.py", "train.py", 1, 2),
        ("torchrun --nproc-per-node gpu train.py", "train.py", 1, 4),
        ("torchrun --nproc-per-node auto train.py", "train.py", 1, 4),
        ("python -m torch.distributed.run --nproc-per-node 2 train.py", "train.py", 1, 2),
        ("python3 -u -m torch.distributed.launch --use-env --nproc_per_node 2 train.py", "train.py", 1, 2),
        ("python -m torch.distributed.launch train.py --lr 1", "train.py --local-rank=0 --lr 1", 1, 1),
        ("env OMP_NUM_THREADS=1 torchrun --nproc-per-node=2 train.py", "train.py", 1, 2),
    ],
)
def test_the_arguments_of_torchrun_are_parsed(
    command: str, program: str, nodes: int, processes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PHAROAH_DRY_RUN_GPUS", GPUS)
    direct = first_rank(launch_of(command.split()))
    assert (" ".join(direct.arguments), direct.nodes, direct.processes) == (program, nodes, processes)
    variables = direct.rank_environment()
    assert (variables["RANK"], variables["WORLD_SIZE"], variables["LOCAL_WORLD_SIZE"]) == (
        "0",
        str(nodes * processes),
        str(processes),
    )


@pytest.mark.parametrize("count", ["--nproc-per-node 8", "--nproc_per_node=8", "--standalone --nproc-per-node=8"])
def test_the_parent_reads_the_number_of_processes_without_torch(count: str) -> None:
    assert launch_of(f"torchrun {count} train.py".split()).processes == 8


@pytest.mark.parametrize(
    ("command", "program", "options"),
    [
        ("python train.py -u", "train.py -u", ""),
        ("python -u -B train.py", "train.py", ""),
        ("python -W ignore train.py", "train.py", "-Wignore"),
        ("python -Wignore -X dev train.py", "train.py", "-Wignore -Xdev"),
        ("python -X dev -m pkg.train -W", "-m pkg.train -W", "-Xdev"),
        ("python -u -O train.py", "train.py", "-O"),
        ("python -uOO train.py", "train.py", "-O -O"),
        ("python -um pkg.train", "-m pkg.train", ""),
        ("python -mpkg.train", "-m pkg.train", ""),
        ("python3.12 -I -s train.py", "train.py", ""),
    ],
)
def test_options_of_the_interpreter_are_recognised(command: str, program: str, options: str) -> None:
    launch = launch_of(command.split())
    assert (" ".join(launch.program.arguments), " ".join(launch.options)) == (program, options)
    assert launch.program.launcher is Launcher.NONE


def test_env_sets_and_removes_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("B", "old")
    monkeypatch.setenv("C", "kept")
    launch = launch_of(["env", "-u", "B", "A=1", "D=x=y", "python", "-m", "pkg.train", "A=2"])
    assert launch.program.arguments == ("-m", "pkg.train", "A=2")
    environment = launch.environment()
    assert (environment["A"], environment["D"], environment["C"], "B" in environment) == ("1", "x=y", "kept", False)
    assert launch_of(["/usr/bin/env", "A=1", "python", "train.py"]).environment()["A"] == "1"
    assert launch_of(["env", "-i", "A=1", "python", "train.py"]).environment() == {"A": "1"}
    assert launch_of(["env", "-", "A=1", "python", "train.py"]).environment() == {"A": "1"}
    assert launch_of(["env", "--chdir=/tmp", "python", "train.py"]).folder == "/tmp"
    nested = launch_of(["env", "A=1", "B=1", "env", "-u", "C", "A=2", "python", "train.py"])
    assert nested.environment()["A"] == "2" and nested.environment()["B"] == "1" and "C" not in nested.environment()
    assert launch_of(["env", "-S", "A=1 python -O", "train.py"]).program.arguments == ("train.py",)


def test_a_plain_program_has_no_ranks_unless_numbers_are_given() -> None:
    launch = launch_of(["python", "-u", "train.py", "--nnodes", "3"])
    assert launch.program.arguments == ("train.py", "--nnodes", "3")
    assert launch.program.rank_environment() == {}
    assert launch.on(None, None) is launch
    assert launch.on(128, 8).program.rank_environment()["WORLD_SIZE"] == "1024"
    assert launch.on_more_nodes(4).program.rank_environment()["WORLD_SIZE"] == "4"


def test_given_numbers_take_precedence_over_those_of_the_launcher() -> None:
    launch = launch_of(["torchrun", "--nnodes", "2", "--nproc-per-node", "8", "train.py"]).on(3, None).on_more_nodes(2)
    assert first_rank(launch).rank_environment()["WORLD_SIZE"] == "48"
    assert launch.processes == 8 and launch.on(None, 4).processes == 4


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("bash train.sh", "neither `python script.py ...` nor `torchrun"),
        ("python", "no script or module"),
        ("python -c print(1)", "no script or module"),
        ("python -u -m", "no script or module"),
        ("python -W ignore", "no script or module"),
        ("python --version", "no script or module"),
        ("env A=1", "neither"),
        ("env --unknown python train.py", "env: option --unknown not recognized"),
        ("torchrun --nproc-per-node 8", "cannot dry-run the launcher: .*training_script"),
        ("torchrun --no-such-option 8 train.py", "cannot dry-run the launcher"),
        ("torchrun --no-python train.sh", "--no-python says that it is not Python"),
        ("torchrun --nproc-per-node many train.py", "--nproc-per-node=many: not a number of processes"),
        ("torchrun --nnodes 0 train.py", "--nnodes=0: not a number of nodes"),
        ("torchrun --nnodes 1:2:3 train.py", "--nnodes=1:2:3: not a number of nodes"),
        ("", "neither"),
    ],
)
def test_a_command_that_cannot_be_dry_run_is_refused_with_the_reason(command: str, message: str) -> None:
    with pytest.raises(UnknownReason, match=message):
        first_rank(launch_of(command.split()))


SCRIPT = """
import os, sys, torch
if sys.flags.bytes_warning != 1 or "MESSAGE" not in os.environ or "REMOVED" in os.environ or os.environ["RANK"] != "0":
    raise SystemExit(f"{sys.flags} {sorted(os.environ)}")
model = torch.nn.Linear(8, int(os.environ["WORLD_SIZE"]))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model(torch.randn(4, 8)).sum().backward()
optimizer.step()
"""


def test_a_dry_run_honours_env_options_and_launcher(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The option is `-b` and not `-O`, for which Python would have to compile all of torch again."""
    monkeypatch.setenv("REMOVED", "yes")
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    command = ["env", "-u", "REMOVED", "MESSAGE=hello", sys.executable, "-X", "utf8", "-b", str(script)]
    assert dry_run(command, 60.0, nodes=2, processes=2).fingerprint.sizes["parameters"] == 4 * (8 * 4 + 4)
    script.write_text(SCRIPT.replace("sys.flags.bytes_warning != 1 or ", ""))
    launcher = ["-m", "torch.distributed.run", "--nnodes=3", "--nproc-per-node", "2", str(script)]
    command = ["env", "-u", "REMOVED", "MESSAGE=hello", sys.executable, *launcher]
    assert dry_run(command, 60.0).fingerprint.sizes["parameters"] == 4 * (8 * 6 + 6)
    with pytest.raises(UnknownReason, match=r"^--nnodes=none: not a number of nodes$"):
        dry_run([sys.executable, "-m", "torch.distributed.run", "--nnodes=none", str(script)], 60.0)
