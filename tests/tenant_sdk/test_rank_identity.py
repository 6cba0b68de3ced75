"""Which processes are ranks of one job: read off what launchers set, in processes started as launchers start them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from pharoah import _rank_identity

SAYS = "from pharoah._rank_identity import *; print(job_key(), ranks_here(), is_one_of_several(), may_ask())"
LAUNCHERS = ("SLURM", "OMPI", "PMIX", "PMI_", "MPI_", "TORCHELASTIC")
ALLOCATION = {"SLURM_JOB_ID": "4711", "SLURM_PROCID": "0", "SLURM_LOCALID": "0", "SLURM_NTASKS": "7"}
"""What a batch script of Slurm inherits."""
STEP = {**ALLOCATION, "SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": "7", "SLURM_STEP_TASKS_PER_NODE": "3(x2),1"}
DAEMON = {**ALLOCATION, "SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": "1", "SLURM_STEP_TASKS_PER_NODE": "1"}
"""What ranks of mpirun inherit from the daemon that srun has started on their node."""
TORCHRUN = {"TORCHELASTIC_RUN_ID": "none", "LOCAL_WORLD_SIZE": "2", "WORLD_SIZE": "2"}
MPIRUN = {"PMIX_NAMESPACE": "prterun-a-1@1", "OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_LOCAL_SIZE": "2"}


def started(count: int, environ: Mapping[str, str], variables: tuple[str, ...], *, wrapped: bool) -> list[str]:
    """What processes say that one shell starts together, each perhaps by a script of its own."""
    bare = {name: value for name, value in os.environ.items() if not name.startswith(LAUNCHERS)}
    rank = f'"{sys.executable}" -c "{SAYS}"'
    one = f"sh -c '{rank}; true'" if wrapped else rank
    commands = (" ".join([*(f"{variable}={number}" for variable in variables), one]) for number in range(count))
    line = "; ".join(f"{command} & first_pid=$!; wait $first_pid" for command in commands)
    done = subprocess.run(["sh", "-c", line], env={**bare, **environ}, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


@pytest.mark.parametrize("wrapped", [False, True])
@pytest.mark.parametrize("environ", [{}, ALLOCATION, {**STEP, "SLURM_NODEID": "2"}])
def test_scripts_that_a_shell_starts_one_by_one_are_jobs_of_their_own(
    environ: Mapping[str, str], wrapped: bool
) -> None:
    said = started(2, environ, (), wrapped=wrapped)
    assert len({line.split()[0] for line in said}) == 2
    assert [line.split()[1] for line in said] == ["1", "1"]


def test_a_batch_script_is_no_task_of_a_step() -> None:
    """Its variables are of the allocation: it may start torchrun, or train in one process."""
    [said] = started(1, ALLOCATION, (), wrapped=False)
    assert said.split()[1:] == ["1", "False", "True"]


@pytest.mark.parametrize(
    ("environ", "variables", "wrapped"),
    [
        (STEP, ("SLURM_LOCALID", "SLURM_PROCID"), False),
        (STEP, ("SLURM_LOCALID", "SLURM_PROCID"), True),
        (TORCHRUN, ("LOCAL_RANK", "RANK"), False),
        ({"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"}, ("LOCAL_RANK", "RANK"), False),
        ({"WORLD_SIZE": "2", "LOCAL_SIZE": "2"}, ("LOCAL_RANK", "RANK"), False),
        ({"PMI_SIZE": "2", "MPI_LOCALNRANKS": "2"}, ("MPI_LOCALRANKID", "PMI_RANK"), False),
        (MPIRUN, ("OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_RANK"), False),
        (MPIRUN, ("OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_RANK"), True),
        ({**DAEMON, **MPIRUN}, ("OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_RANK"), False),
    ],
    ids=[
        "srun",
        "srun script",
        "torchrun",
        "accelerate",
        "deepspeed",
        "mpiexec.hydra",
        "mpirun",
        "mpirun script",
        "mpirun within Slurm",
    ],
)
def test_ranks_of_a_launcher_are_one_job(environ: Mapping[str, str], variables: tuple[str, ...], wrapped: bool) -> None:
    said = [line.split() for line in started(2, environ, variables, wrapped=wrapped)]
    assert len({line[0] for line in said}) == 1
    assert {line[1] for line in said} == {"3" if environ is STEP else "2"}
    assert [line[2:] for line in said] == [["True", "True"], ["True", "False"]]
    others = {"PMIX_NAMESPACE": "prterun-a-2@1"} if "PMIX_NAMESPACE" in environ else {}
    again = started(2, {**environ, **others}, variables, wrapped=wrapped)
    if environ is not STEP:
        assert again[0].split()[0] != said[0][0], "two launches on one node are two jobs"


STARTS_ITSELF = """
import os, subprocess, sys
from pharoah._rank_identity import job_key
before = job_key()
if "LOCAL_RANK" not in os.environ:
    os.environ.update(LOCAL_RANK="0", WORLD_SIZE="2")
    subprocess.run([sys.executable, __file__], env={**os.environ, "LOCAL_RANK": "1"}, check=True)
print(before, job_key())
"""


def test_a_script_that_starts_further_ranks_of_itself_is_one_of_them(tmp_path: Path) -> None:
    """Lightning starts the script again for all local ranks but the first, and sets the variables of that one."""
    (tmp_path / "train.py").write_text(STARTS_ITSELF)
    bare = {name: value for name, value in os.environ.items() if not name.startswith(LAUNCHERS)}
    said = subprocess.check_output([sys.executable, str(tmp_path / "train.py")], env=bare, text=True).split()
    assert len(said) == 4 and len(set(said)) == 1


def test_machines_that_share_the_folder_of_sockets_have_jobs_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "environ", {**STEP})
    here = _rank_identity.job_key()
    monkeypatch.setattr(_rank_identity, "_boot", lambda: "another boot")
    assert _rank_identity.job_key() != here


@pytest.mark.parametrize("environ", [{}, TORCHRUN])
def test_a_process_of_another_container_with_the_same_number_is_another_job(
    environ: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Containers may share the folder for temporary files, and the first process of each is number 1."""
    monkeypatch.setattr(os, "environ", dict(environ))
    here = _rank_identity.job_key()
    assert _rank_identity.job_key() == here
    monkeypatch.setattr(_rank_identity, "_process_numbers", lambda: "another namespace")
    assert _rank_identity.job_key() != here


@pytest.mark.parametrize(
    ("tasks", "node", "here"),
    [("4", "0", 4), ("4(x2),3", "1", 4), ("4(x2),3", "2", 3), ("4(x2),3", "3", 1), ("4(x99999999999)", "5", 4)],
)
def test_tasks_of_a_node_are_read_from_the_list_of_its_step(tasks: str, node: str, here: int) -> None:
    environ = {**STEP, "SLURM_STEP_TASKS_PER_NODE": tasks, "SLURM_NODEID": node}
    [said] = started(1, environ, (), wrapped=False)
    assert said.split()[1] == f"{here}"
