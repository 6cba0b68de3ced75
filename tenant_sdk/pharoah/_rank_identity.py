"""Which rank of its job this process is: from its process group once there is one, else from its launcher.

Asked anew whenever it matters: ranks started by `torch.multiprocessing.spawn` learn their number late.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import re
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

# Those of Open MPI before those of Slurm: mpirun starts its daemons by srun, whose variables its ranks inherit.
# The last names before Slurm's are those of Intel MPI and MPICH; DeepSpeed's launcher sets LOCAL_SIZE.
_RANK = ("RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID")
_LOCAL_RANK = ("LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID")
_RANKS = ("WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS", "SLURM_NTASKS")
_RANKS_HERE = ("LOCAL_WORLD_SIZE", "LOCAL_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS")
_STEP = "SLURM_STEP_ID"
_MAX_COMMAND_LENGTH = 4000
_MAX_NODES = 1 << 16
"""More than any cluster has; a number in a variable must not fill the memory."""


def rank() -> int:
    """0 when there is no launcher and no process group."""
    number = _from_group("get_rank")
    return number if number is not None else _from_launcher(*_RANK) or 0


def ranks_here() -> int:
    """Ranks on this node; those that a script spawned are all taken to be here."""
    here = _from_group("get_world_size") if _is_spawned() else _from_launcher(*_RANKS_HERE) or _tasks_here()
    return here or 1


def is_one_of_several() -> bool:
    """Whether this is a rank of a distributed job. Workers of loaders are not, whatever they inherit."""
    size = _from_group("get_world_size") or (None if _is_spawned() else _from_launcher(*_RANKS))
    return (size or 1) > 1


def may_ask() -> bool:
    """Whether this process may dry-run its job and ask about it, for its node.

    The first rank of each node may. Where only the number in the job is known, rank 0 may. Spawned ranks all may before
    they know their numbers.
    """
    local = None if _is_spawned() else _from_launcher(*_LOCAL_RANK)
    return (rank() if local is None else local) == 0


def command() -> list[str]:
    """The command line of this job; a spawned process's own is that of Python's `multiprocessing`."""
    if not (parent := multiprocessing.parent_process()):
        return [sys.executable, *sys.orig_argv[1:]]
    try:
        words = os.fsdecode(Path(f"/proc/{parent.pid}/cmdline").read_bytes()).split("\0")[1:-1]
    except OSError:
        words = []
    return [sys.executable, *(words or sys.argv)]


def render_command(words: Sequence[str]) -> str:
    """A command line as people read it, in a message's space: a run's record keeps no more of it."""
    return shlex.join(words)[:_MAX_COMMAND_LENGTH].encode(errors="replace").decode()


def job_key() -> str:
    """The same for all ranks of a job on this node, and for no other job's.

    Ranks are known by the process that started them, unless their launcher names what it has launched: a script may
    stand between them and the launcher. The number of a process means something in its own container only. A script
    that starts further ranks of itself, as Lightning does, is one of them. Machines may share the folder of sockets.
    """
    environ, starter = os.environ, f"{_process_numbers()}/{os.getppid()}"
    if parent := multiprocessing.parent_process():
        launch = f"spawn/{_process_numbers()}/{parent.pid}"
    elif run := environ.get("TORCHELASTIC_RUN_ID"):
        launch = f"torchrun/{run}/{starter}"
    elif "OMPI_COMM_WORLD_LOCAL_RANK" in environ:
        launch = f"mpirun/{environ.get('PMIX_NAMESPACE') or starter}"
    elif _tasks_here() > 1:
        launch = f"srun/{environ.get('SLURM_JOB_ID')}.{environ[_STEP]}"
    elif "MPI_LOCALRANKID" in environ or (is_one_of_several() and _was_given("LOCAL_RANK")):
        launch = f"process/{starter}"
    else:
        launch = f"process/{_process_numbers()}/{os.getpid()}"
    return f"{os.getuid()}/{_boot()}/{launch}"


def _was_given(variable: str) -> bool:
    """Whether this process was started with a variable that it has now: the script may have set it for itself. What
    the kernel shows of the start says nothing where the process has written a title over it (setproctitle)."""
    if variable not in os.environ:
        return False
    with contextlib.suppress(OSError):
        words = b"".join(os.fsencode(word) + b"\0" for word in sys.orig_argv)
        if Path("/proc/self/cmdline").read_bytes() == words:
            return f"\0{variable}=".encode() in b"\0" + Path("/proc/self/environ").read_bytes()
    return True


def _process_numbers() -> str:
    """Names what gives numbers to processes of this machine: the namespace of the container, which may share its folder
    for temporary files with others. Empty where /proc does not show it."""
    with contextlib.suppress(OSError):
        return str(Path("/proc/self/ns/pid").stat().st_ino)
    return ""


def _boot() -> str:
    """The same for all processes of this machine until it is started again, also in containers; empty without /proc."""
    with contextlib.suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return ""


def _is_spawned() -> bool:
    return multiprocessing.parent_process() is not None


def _from_launcher(*variables: str) -> int | None:
    """The first of these that is a number. Slurm's describe a task in a job step only: in a batch script, they describe
    what was allocated to it (srun(1), OUTPUT ENVIRONMENT VARIABLES)."""
    known = (variable for variable in variables if _STEP in os.environ or not variable.startswith("SLURM_"))
    numbers = (os.environ.get(variable, "") for variable in known)
    return next((int(number) for number in numbers if number.isdecimal()), None)


def _tasks_here() -> int:
    """Tasks of this job step of Slurm on this node: the word of this node in a list such as `4(x2),3`. 0 outside of
    a step."""
    words = os.environ.get("SLURM_STEP_TASKS_PER_NODE", "") if _STEP in os.environ else ""
    found = re.findall(r"(\d+)(?:\(x(\d+)\))?", words)
    counts = [int(tasks) for tasks, nodes in found for _ in range(min(int(nodes or 1), _MAX_NODES))]
    node = _from_launcher("SLURM_NODEID") or 0
    return counts[node] if node < len(counts) else _from_launcher("SLURM_NTASKS_PER_NODE") or 0


_remembered: dict[str, int] = {}


def _from_group(function: str) -> int | None:
    """A number from the default process group, also after the script destroyed it. torch may be half imported."""
    distributed: Any = sys.modules.get("torch.distributed")
    exists = getattr(distributed, "is_initialized", None)
    if exists and exists():
        _remembered[function] = int(getattr(distributed, function)())
    return _remembered.get(function)
