"""The ranks of `srun` and `mpirun` where they do not fill all nodes, and where a shell stands before the program."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from torch.distributed import run

from pharoah.capture import hardware
from pharoah.launchers import Program, launch_of, launchers


@pytest.fixture(autouse=True)
def _outside_of_an_allocation(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("SLURM_")]:
        monkeypatch.delenv(name)


def program(command: str) -> Program:
    """What the child of a dry run gets."""
    return Program.from_json(launch_of(command.split()).program.to_json())


@pytest.mark.parametrize(
    ("options", "allocation", "tasks", "on_nodes"),
    [
        ("-N2 -n8", {}, 8, "4(x2)"),
        ("-N4 -n6", {}, 6, "2(x2),1(x2)"),
        ("-N4 -n2", {}, 2, "1(x2)"),
        ("-N4 -n1", {}, 1, "1"),
        ("-n 16 --ntasks-per-node=8", {}, 16, "8(x2)"),
        ("-n 6 --ntasks-per-node=4", {}, 6, "3(x2)"),
        ("-n 2 --ntasks-per-node=8", {"SLURM_NNODES": "4"}, 2, "2"),
        ("-N3 -n 7 --ntasks-per-node=8", {}, 7, "3,2(x2)"),
        ("-n 5", {"SLURM_NNODES": "3"}, 5, "2(x2),1"),
        ("", {"SLURM_NNODES": "4", "SLURM_NTASKS": "6"}, 6, "2(x2),1(x2)"),
        ("", {"SLURM_NNODES": "2", "SLURM_NTASKS_PER_NODE": "8", "SLURM_NTASKS": "16"}, 16, "8(x2)"),
        ("", {}, 1, "1"),
    ],
)
def test_slurm_gives_its_nodes_tasks_in_turn(
    options: str, allocation: dict[str, str], tasks: int, on_nodes: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in allocation.items():
        monkeypatch.setenv(name, value)
    variables = program(f"srun {options} python train.py").rank_environment()
    assert (variables["SLURM_NTASKS"], variables["SLURM_TASKS_PER_NODE"]) == (str(tasks), on_nodes)


@pytest.mark.parametrize(
    ("options", "nodes", "processes", "ranks"),
    [
        ("-np 4 -H a:4,b:4", 1, 4, 4),
        ("-np 6 -H a:4,b:4", 2, 4, 6),
        ("-np 6 -H a:4,b:4,c:4", 2, 4, 6),
        ("-np 6 -H a:2,b:8", 2, 4, 6),
        ("-np 6 --map-by node -H a:4,b:4", 2, 3, 6),
        ("-np 5 -H a,b", 2, 3, 5),  # more than there are slots
        ("-np 5 -N 4", 2, 4, 5),
        ("-H a:4,b:2", 2, 4, 6),
    ],
)
def test_mpi_fills_the_slots_of_a_node_before_those_of_the_next(
    options: str, nodes: int, processes: int, ranks: int
) -> None:
    found = program(f"mpirun {options} python train.py")
    assert (found.nodes, found.processes) == (nodes, processes)
    variables = found.rank_environment()
    assert (variables["OMPI_COMM_WORLD_SIZE"], variables["OMPI_COMM_WORLD_LOCAL_SIZE"]) == (str(ranks), str(processes))


@pytest.mark.parametrize(
    ("options", "tasks_per_node", "nodes", "processes", "ranks"),
    [
        ("", "8(x2)", 2, 8, 16),
        ("", "4(x2),2", 3, 4, 10),
        ("-np 8", "8(x2)", 1, 8, 8),
        ("-np 12", "8(x2)", 2, 8, 12),
        ("-N 2", "8(x2)", 2, 2, 4),
        ("-np 2 -H a", "8(x2)", 1, 2, 2),
    ],
)
def test_mpi_takes_its_hosts_from_the_allocation_of_slurm(
    options: str, tasks_per_node: str, nodes: int, processes: int, ranks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLURM_TASKS_PER_NODE", tasks_per_node)
    found = program(f"mpirun {options} python train.py")
    assert (found.nodes, found.processes) == (nodes, processes)
    assert found.rank_environment()["OMPI_COMM_WORLD_SIZE"] == str(ranks)


def test_numbers_that_are_given_take_the_place_of_all_ranks_of_the_launcher() -> None:
    launch = launch_of(["srun", "-N4", "-n6", "python", "train.py"])
    assert launch.on(2, None).program.rank_environment()["SLURM_NTASKS"] == "4"
    assert launch.on_more_nodes(2).program.rank_environment()["SLURM_NTASKS"] == "12"


@pytest.mark.parametrize(
    ("launcher", "variable"),
    [("srun -N2 --ntasks-per-node=8", "SLURM_NTASKS"), ("mpirun -np 16 -N 8", "OMPI_COMM_WORLD_SIZE")],
)
def test_a_shell_between_a_launcher_and_its_ranks_keeps_them(launcher: str, variable: str) -> None:
    shell = program(f"{launcher} bash train.sh")
    assert (shell.launcher, shell.rank_environment()[variable]) == ("shell", "16")
    below = program(f"{launcher} torchrun --nproc-per-node 4 train.py")
    assert (below.nodes, below.processes) == (None, None), "torchrun starts the ranks"


@pytest.mark.parametrize(
    ("command", "arguments"),
    [
        ("srun --nice -n 2 python train.py", ("train.py",)),
        ("srun --nice=100 --bcast --resv-ports -n 2 python train.py --nice 1", ("train.py", "--nice", "1")),
        ("mpirun --output tag -np 2 python train.py", ("train.py",)),
        ("mpirun --display map --personality ompi -np 2 python train.py", ("train.py",)),
    ],
)
def test_a_value_that_may_be_left_out_is_not_the_next_word(command: str, arguments: tuple[str, ...]) -> None:
    found = program(command)
    assert (found.arguments, found.processes) == (arguments, 2)


def ranks_of_torchrun(*options: str) -> list[int | None]:
    """The number of processes that the parent of a dry run reads, and the one that torchrun has parsed in its child."""
    launch = launch_of(["torchrun", *options, "train.py"])
    return [launch.processes, launchers()["torchrun"].first_process(launch.program).processes]


def test_torchrun_starts_a_process_for_each_core_where_there_is_no_gpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hardware, "_NVIDIA", tmp_path / "none")
    monkeypatch.setenv("PHAROAH_DRY_RUN_GPUS", "")
    cores = run.determine_local_world_size("cpu")
    assert run.determine_local_world_size("auto") == cores, "this machine has no GPU"
    for asked in ("auto", "cpu"):
        assert ranks_of_torchrun("--nproc-per-node", asked) == [cores, cores]


def test_torchrun_reads_its_options_from_variables_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PET_NPROC_PER_NODE", "6")
    assert ranks_of_torchrun() == [6, 6]
    assert ranks_of_torchrun("--nproc-per-node", "2") == [2, 2]
