"""Command lines are recognised by the parent of a dry run, and torchrun's arguments are parsed by torch itself."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from pharoah._errors import UnknownReason
from pharoah.dryrun import dry_run
from pharoah.launchers import Launch, Program, launch_of, launchers

GPUS = ",".join(["NVIDIA H100 80GB HBM3"] * 4)


def first_rank(launch: Launch) -> Program:
    program = Program.from_json(launch.program.to_json())
    return launchers()[program.launcher].first_process(program) if program.launcher else program


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
    assert not launch.program.launcher


@pytest.mark.parametrize(
    ("command", "program"),
    [
        ("nohup nice -n 10 python train.py --lr 1", "train.py --lr 1"),
        ("numactl --cpunodebind=0 -m 0 python -u train.py", "train.py"),
        ("taskset -c 0-3 python train.py", "train.py"),
        ("timeout -k 5 1h python train.py", "train.py"),
        ("stdbuf -oL env A=1 python -m pkg.train", "-m pkg.train"),
        ("time -f %E python train.py", "train.py"),
        ("ipython train.py", "-m IPython train.py"),
        ("python -m IPython train.py", "-m IPython train.py"),
        ("train.py --lr 1", "train.py --lr 1"),
    ],
)
def test_programs_that_start_a_command_are_looked_through(command: str, program: str) -> None:
    assert " ".join(launch_of(command.split()).program.arguments) == program


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        (
            "srun -N2 --ntasks-per-node=4 python train.py",
            {"SLURM_PROCID": "0", "SLURM_NTASKS": "8", "SLURM_NNODES": "2"},
        ),
        ("srun --nodes 2 -n 8 --gres gpu:4 python train.py", {"SLURM_NTASKS": "8", "SLURM_TASKS_PER_NODE": "4(x2)"}),
        ("srun python train.py", {"SLURM_NTASKS": "6", "SLURM_NNODES": "3", "SLURM_LOCALID": "0"}),
        (
            "mpirun -np 4 -H a:2,b:2 -x A=1 python train.py",
            {"OMPI_COMM_WORLD_SIZE": "4", "OMPI_COMM_WORLD_LOCAL_SIZE": "2"},
        ),
        ("mpiexec -n 4 --bind-to core python train.py", {"PMI_SIZE": "4", "PMI_RANK": "0"}),
    ],
)
def test_launchers_without_torch_number_the_ranks_by_their_own_variables(
    command: str, expected: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLURM_NNODES", "3")
    monkeypatch.setenv("SLURM_NTASKS", "6")
    variables = launch_of(command.split()).program.rank_environment()
    assert expected.items() <= variables.items() and "RANK" not in variables


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        (
            "torchrun --nnodes 2 --nproc-per-node 4 train.py",
            {"RANK": "6", "LOCAL_RANK": "2", "GROUP_RANK": "1", "WORLD_SIZE": "8"},
        ),
        (
            "srun -N2 --ntasks-per-node=4 python train.py",
            {"SLURM_PROCID": "6", "SLURM_LOCALID": "2", "SLURM_NODEID": "1"},
        ),
        (
            "mpirun -np 8 -H a:4,b:4 python train.py",
            {"OMPI_COMM_WORLD_RANK": "6", "OMPI_COMM_WORLD_LOCAL_RANK": "2", "PMI_RANK": "6"},
        ),
    ],
)
def test_a_later_rank_has_its_place_on_its_node(command: str, expected: dict[str, str]) -> None:
    launch = launch_of(command.split())
    program = first_rank(replace(launch, program=replace(launch.program, rank=6)))
    assert expected.items() <= program.rank_environment().items()


def test_a_launcher_within_srun_counts_the_ranks() -> None:
    launch = launch_of(
        ["srun", "-N", "2", "--ntasks-per-node", "1", "torchrun", "--nnodes", "2", "--nproc-per-node", "4", "train.py"]
    )
    assert first_rank(launch).rank_environment()["WORLD_SIZE"] == "8"
    assert launch_of(["mpirun", "-np", "2", "-x", "A=1", "-x", "B=2", "python", "train.py"]).environment()["B"] == "2"


def test_uv_and_conda_run_the_interpreter_of_their_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for python in (tmp_path / "project/.venv/bin/python", tmp_path / "envs/one/bin/python"):
        python.parent.mkdir(parents=True)
        python.touch()
    monkeypatch.setenv("CONDA_ENVS_PATH", str(tmp_path / "envs"))
    project = str(tmp_path / "project")
    for command in (["train.py"], ["python", "train.py"], ["--extra", "gpu", "python", "-u", "train.py"]):
        launch = launch_of(["uv", "run", "--project", project, *command])
        assert (launch.python, launch.program.arguments) == (f"{project}/.venv/bin/python", ("train.py",))
    launch = launch_of(["conda", "run", "--no-capture-output", "-n", "one", "python", "-m", "pkg.train"])
    assert launch.python == f"{tmp_path}/envs/one/bin/python" and launch.program.arguments == ("-m", "pkg.train")
    (tmp_path / "project/own.py").write_text("# /// script\n# dependencies = []\n# ///\n")
    with pytest.raises(UnknownReason, match=r"own\.py"):
        launch_of(["uv", "run", "--directory", project, "own.py"])


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
        ("julia train.jl", "`julia` is not a program that a dry run can follow"),
        ("python", "no script or module"),
        ("python -c print(1)", "no script or module"),
        ("python -u -m", "no script or module"),
        ("python -W ignore", "no script or module"),
        ("python --version", "no script or module"),
        ("env A=1", "there is no command"),
        ("nice -n 5", "there is no command in it"),
        ("srun -N 2 ./simulation", "`simulation` is not a program"),
        ("srun -n many python train.py", "--ntasks=many: not a number"),
        ("mpirun --hostfile /no/such/file python train.py", "/no/such/file: No such file"),
        ("accelerate config", "only `accelerate launch` starts a job"),
        ("fabric consolidate checkpoints", "only `fabric run` starts a job"),
        ("deepspeed --hostfile=/no/such train.py", "there is no file /no/such"),
        ("uv sync", "only `uv run` starts a job"),
        ("uv run --with torch train.py", "uv makes its environment only when it runs"),
        ("conda run -n no-such-environment python train.py", "there is no environment no-such-environment"),
        ("env --unknown python train.py", "env: option --unknown not recognized"),
        ("torchrun --nproc-per-node 8", "cannot dry-run `torchrun ...`: .*training_script"),
        ("torchrun --no-such-option 8 train.py", "cannot dry-run `torchrun ...`"),
        ("torchrun --no-python train.sh", "--no-python says that it is not Python"),
        ("torchrun --nproc-per-node many train.py", "--nproc-per-node=many: not a number of processes"),
        ("torchrun --nnodes 0 train.py", "--nnodes=0: not a number of nodes"),
        ("torchrun --nnodes 1:2:3 train.py", "--nnodes=1:2:3: not a number of nodes"),
        ("", "there is no command"),
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


def test_a_rank_of_another_node_is_dry_run_as_rank_0(monkeypatch: pytest.MonkeyPatch) -> None:
    place = {"RANK": "9", "LOCAL_RANK": "1", "GROUP_RANK": "1", "LOCAL_WORLD_SIZE": "8"}
    for name, value in place.items():
        monkeypatch.setenv(name, value)
    launch = launch_of(["python", "train.py"])
    first = launch.environment()
    assert [first[name] for name in place] == ["0", "0", "0", "8"] and "SLURM_PROCID" not in first
    stage = replace(launch, program=replace(launch.program, rank=11)).environment()
    assert [stage[name] for name in place] == ["11", "3", "1", "8"]
