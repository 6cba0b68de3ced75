"""What the child of a dry run has to run: a Python program, as the first process of a job."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from typing import Any, NamedTuple

from pharoah._errors import UnknownReason
from pharoah.capture.hardware import gpu_names

PER_GPU_OR_CPU = "auto"
"""The value of `--nproc-per-node` that asks for one process for each GPU, or for each core where there is no GPU."""
PER_GPU = ("gpu", PER_GPU_OR_CPU)
"""Values of `--nproc-per-node` that ask for one process for each GPU."""
_COUNT = re.compile(r"[1-9]\d{0,5}")


class RankVariables(StrEnum):
    """Who numbers the processes of a job; each does it by variables of its own."""

    TORCH = "torch"
    """torchrun and what follows it: `RANK`, `LOCAL_RANK`, `WORLD_SIZE`."""
    SLURM = "slurm"
    """https://slurm.schedmd.com/srun.html, output environment variables."""
    MPI = "mpi"
    """Open MPI and the programs that follow PMI."""


class Ranks(NamedTuple):
    """How many processes there are."""

    nodes: int
    processes: int
    """Number of processes on each node, the most where they differ."""
    together: int | None = None
    """Number of processes on all nodes; None where each node has `processes`."""

    def set_ranks(self, program: Program, by: RankVariables) -> Program:
        """The program as so many ranks."""
        ranks = None if self.together == self.nodes * self.processes else self.together
        return replace(program, nodes=self.nodes, processes=self.processes, ranks=ranks, ranks_by=by)


@dataclass(frozen=True)
class Program:
    """A Python program, or the arguments of a launcher that starts one."""

    arguments: tuple[str, ...]
    """`script.py args` or `-m module args`; with a launcher the launcher's arguments."""
    launcher: str = ""
    """Name of the launcher in the registry whose arguments these are; empty for the program itself."""
    nodes: int | None = None
    """Number of nodes; None leaves it to the command line."""
    processes: int | None = None
    """Number of processes on each node, the most where they differ; None leaves it to the command line."""
    ranks: int | None = None
    """Number of processes on all nodes together, where nodes have different numbers; None where all have `processes`.
    """
    times_nodes: int = 1
    """Factor on the number of nodes."""
    ranks_by: RankVariables = RankVariables.TORCH
    rank: int = 0
    """Which process of the job it is."""

    @property
    def is_distributed(self) -> bool:
        """Whether every process gets a rank."""
        return bool(self.launcher) or self.nodes is not None or self.processes is not None

    def rank_environment(self) -> dict[str, str]:
        """What a launcher would set for the process; nothing for a job without ranks."""
        if not self.is_distributed:
            return {}
        nodes, processes = (self.nodes or 1) * self.times_nodes, self.processes or 1
        ranks = self.ranks * self.times_nodes if self.ranks else nodes * processes
        return _RANK_VARIABLES[self.ranks_by](nodes, processes, ranks) | _place(self.rank, processes, self.ranks_by)

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Program:
        data: dict[str, Any] = json.loads(text)
        fixed = {"arguments": tuple(data["arguments"]), "ranks_by": RankVariables(data["ranks_by"])}
        return cls(**{**data, **fixed})


@dataclass(frozen=True)
class Launch:
    """A program, the interpreter that runs it and the environment it starts in."""

    python: str
    program: Program
    options: tuple[str, ...] = ()
    """Options of the interpreter that change what the program computes."""
    variables: Mapping[str, str] = field(default_factory=dict)
    """Variables that the command line adds."""
    removed: frozenset[str] = frozenset()
    """Variables that it removes."""
    clears_environment: bool = False
    """Whether it removes all other variables."""
    folder: str | None = None
    """The folder that it changes to."""
    processes_here: int = 1
    """Number of processes on this node, as far as the command line shows it without the launcher's library."""
    one_per_gpu: bool = False
    """Whether there is a process for each GPU that the launcher sees, instead of `processes_here`."""

    @property
    def processes(self) -> int:
        """Number of processes on this node."""
        gpus = gpu_names(self.environment()) if self.one_per_gpu else []
        return self.program.processes or len(gpus) or self.processes_here

    def on(self, nodes: int | None, processes: int | None) -> Launch:
        """The same program on other nodes; None leaves a number to the command line."""
        if nodes is None and processes is None:
            return self
        program = self.program
        program = replace(program, nodes=nodes or program.nodes, processes=processes or program.processes, ranks=None)
        return replace(self, program=program)

    def on_more_nodes(self, factor: int) -> Launch:
        """The same program on `factor` times as many nodes."""
        program = self.program
        if not program.is_distributed:
            program = replace(program, nodes=1)
        return replace(self, program=replace(program, times_nodes=factor))

    def within(
        self,
        variables: Mapping[str, str] | None = None,
        *,
        removed: frozenset[str] = frozenset(),
        clears_environment: bool = False,
        folder: str | None = None,
    ) -> Launch:
        """The same, started by a program that changes the environment or the folder. What is nearer to the program
        wins."""
        return replace(
            self,
            variables={**(variables or {}), **self.variables},
            removed=self.removed | removed,
            clears_environment=clears_environment or self.clears_environment,
            folder=self.folder or folder,
        )

    def environment(self) -> dict[str, str]:
        """The environment in which the process starts that `program.rank` numbers.

        That is another one than this process where a launcher has started this one as a rank of the job.
        """
        inherited = {} if self.clears_environment else os.environ
        found = {**{k: v for k, v in inherited.items() if k not in self.removed}, **self.variables}
        for by, size in _RANKS_OF_A_NODE.items():
            processes = found.get(size, "")
            place = _place(self.program.rank, int(processes) if processes.isdecimal() else 1, by)
            found |= {name: value for name, value in place.items() if name in found}
        return found


def process_count(value: str, gpus: Sequence[str]) -> int:
    """The number of processes that `--nproc-per-node` asks for on a node with these GPUs. Raises UnknownReason."""
    if value == "cpu" or (value == PER_GPU_OR_CPU and not gpus):
        return cpu_count()
    return max(1, len(gpus)) if value in PER_GPU else positive_number("--nproc-per-node", value)


def cpu_count() -> int:
    """How many processes torchrun starts for `cpu`: one for each core that it may use."""
    return len(os.sched_getaffinity(0))


def count_or_one(value: str | None) -> int:
    """A number on a command line of a launcher; 1 for everything else, which the launcher's own parser refuses."""
    return int(value) if value and _COUNT.fullmatch(value) else 1


def positive_number(option: str, value: str) -> int:
    """Raises UnknownReason."""
    if not _COUNT.fullmatch(value):
        raise UnknownReason(f"{option}={value}: not a number of {'nodes' if 'nodes' in option else 'processes'}")
    return int(value)


def _place(rank: int, processes: int, by: RankVariables) -> dict[str, str]:
    """The variables that say which process of a job it is, with so many `processes` on each node."""
    node, local = divmod(rank, max(processes, 1))
    places = {"rank": rank, "local": local, "node": node}
    return {name: str(places[which]) for name, which in _PLACES[by].items()}


def _torch_variables(nodes: int, processes: int, ranks: int) -> dict[str, str]:
    return {
        "WORLD_SIZE": str(ranks),
        "LOCAL_WORLD_SIZE": str(processes), "GROUP_WORLD_SIZE": str(nodes), "ROLE_WORLD_SIZE": str(ranks),
        "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500", "TORCHELASTIC_RUN_ID": "dry-run",
        "TORCHELASTIC_RESTART_COUNT": "0", "TORCHELASTIC_MAX_RESTARTS": "0",
    }  # fmt: skip


def _slurm_variables(nodes: int, processes: int, ranks: int) -> dict[str, str]:
    tasks = _tasks_per_node(nodes, processes, ranks)
    return {
        "SLURM_NTASKS": str(ranks), "SLURM_NPROCS": str(ranks),
        "SLURM_NNODES": str(nodes), "SLURM_JOB_NUM_NODES": str(nodes), "SLURM_TASKS_PER_NODE": tasks,
        "SLURM_NTASKS_PER_NODE": str(processes), "SLURM_STEP_NUM_TASKS": str(ranks), "SLURM_STEP_ID": "0",
        "SLURM_STEP_TASKS_PER_NODE": tasks,
        "SLURM_JOB_ID": os.environ.get("SLURM_JOB_ID", "1"),
        "SLURM_JOB_NODELIST": os.environ.get("SLURM_JOB_NODELIST", "localhost"),
        "SLURM_NODELIST": os.environ.get("SLURM_NODELIST", "localhost"),
        "SLURM_LAUNCH_NODE_IPADDR": "127.0.0.1", "SLURMD_NODENAME": "localhost",
    }  # fmt: skip


def _tasks_per_node(nodes: int, processes: int, ranks: int) -> str:
    """Slurm's form of the number of tasks on each node, `3(x2),2`: the first nodes have one more than the others."""
    full = nodes - (nodes * processes - ranks)
    groups = [(processes, full), (processes - 1, nodes - full)] if full > 0 else [(processes, nodes)]
    return ",".join(f"{tasks}(x{times})" if times > 1 else str(tasks) for tasks, times in groups if times > 0)


def _mpi_variables(_: int, processes: int, ranks: int) -> dict[str, str]:
    return {
        "OMPI_COMM_WORLD_SIZE": str(ranks), "OMPI_COMM_WORLD_LOCAL_SIZE": str(processes), "PMI_SIZE": str(ranks),
        "MPI_LOCALNRANKS": str(processes),
    }  # fmt: skip


_PLACES = {
    RankVariables.TORCH: {"RANK": "rank", "LOCAL_RANK": "local", "GROUP_RANK": "node", "ROLE_RANK": "rank"},
    RankVariables.SLURM: {"SLURM_PROCID": "rank", "SLURM_LOCALID": "local", "SLURM_NODEID": "node"},
    RankVariables.MPI: {
        "OMPI_COMM_WORLD_RANK": "rank", "OMPI_COMM_WORLD_LOCAL_RANK": "local", "OMPI_COMM_WORLD_NODE_RANK": "local",
        "PMI_RANK": "rank", "MPI_LOCALRANKID": "local",
    },
}  # fmt: skip
"""Variables that say which process of a job it is: by its rank, by its place on its node, or by its node."""
_RANK_VARIABLES = {
    RankVariables.TORCH: _torch_variables,
    RankVariables.SLURM: _slurm_variables,
    RankVariables.MPI: _mpi_variables,
}
_RANKS_OF_A_NODE = {
    RankVariables.TORCH: "LOCAL_WORLD_SIZE",
    RankVariables.SLURM: "SLURM_NTASKS_PER_NODE",
    RankVariables.MPI: "OMPI_COMM_WORLD_LOCAL_SIZE",
}
"""Variables that hold the number of processes on each node."""
