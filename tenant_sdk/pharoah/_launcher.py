"""Which rank of its job this process is: what a launcher told it, else what its process group says once there is one.

Asked anew whenever it matters: ranks started by `torch.multiprocessing.spawn` learn late who they are.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
from typing import Any


def rank() -> int:
    """0 when there is no launcher and no process group."""
    number = _told("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK")
    return number if number is not None else _of_group("get_rank", 0)


def ranks_here() -> int:
    """Ranks on this node; those of a process group that no launcher started are all taken to be here."""
    number = _told("LOCAL_WORLD_SIZE", "SLURM_NTASKS_PER_NODE", "OMPI_COMM_WORLD_LOCAL_SIZE")
    return max(1, number if number is not None else _of_group("get_world_size", 1))


def is_one_of_several() -> bool:
    """Whether this is a rank of a distributed job; a loader's worker is none."""
    if multiprocessing.parent_process() is not None:
        return _of_group("get_world_size", 1) > 1
    return (_told("WORLD_SIZE") or 1) > 1


def is_first() -> bool:
    """Whether this process speaks for its job, also before spawned ranks know who they are."""
    spawned = multiprocessing.parent_process() is not None and _of_group("get_world_size", 1) < 2
    return rank() == 0 and (not spawned or multiprocessing.current_process().name.endswith("-1"))


def command() -> list[str]:
    """The command line of this job; a spawned process's own is that of Python's `multiprocessing`."""
    arguments = sys.argv if multiprocessing.parent_process() is not None else sys.orig_argv[1:]
    return [sys.executable, *arguments]


def job_key() -> str:
    """The same for all ranks of a job on this node, and for no other job's."""
    job = os.environ.get("TORCHELASTIC_RUN_ID") or os.environ.get("SLURM_JOB_ID")
    parent = multiprocessing.parent_process()
    owner = os.getppid() if job else parent.pid if parent else os.getpid()
    return f"{os.getuid()}/{job}/{owner}"


def _told(*variables: str) -> int | None:
    numbers = (os.environ.get(variable, "") for variable in variables)
    return next((int(number) for number in numbers if number.isdigit()), None)


def _of_group(function: str, otherwise: int) -> int:
    """What the default process group says; torch may be absent, or half imported."""
    distributed: Any = sys.modules.get("torch.distributed")
    exists = getattr(distributed, "is_initialized", None)
    return int(getattr(distributed, function)()) if exists and exists() else otherwise
