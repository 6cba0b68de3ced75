"""`srun [options] command`: Slurm numbers the processes by variables of its own."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import replace

from pharoah.launchers._launcher import Launcher, launch_of, split, valued_options
from pharoah.launchers._program import Launch, RankVariables, positive_number

_VALUED = valued_options(
    "A B c C d D e G i J L m M n N o p q r S t T w W x account bcast begin chdir cluster-constraint clusters "
    "comment constraint container container-id container-image container-mounts container-name container-workdir "
    "core-spec cores-per-socket cpu-bind cpu-freq cpus-per-gpu cpus-per-task deadline delay-boot dependency "
    "distribution epilog error exclude export export-file extra extra-node-info gid gpu-bind gpu-freq gpus "
    "gpus-per-node gpus-per-socket gpus-per-task gres gres-flags hint input jobid job-name licenses mail-type "
    "mail-user max-exit-timeout mcs-label mem mem-bind mem-per-cpu mem-per-gpu mincpus mpi msg-timeout network "
    "nice nodefile nodelist nodes ntasks ntasks-per-core ntasks-per-gpu ntasks-per-node ntasks-per-socket "
    "open-mode output partition power priority profile prolog qos relative reservation resv-ports signal "
    "slurmd-debug sockets-per-node switches task-epilog task-prolog thread-spec threads threads-per-core time "
    "time-min tmp tres-bind tres-per-task uid wait wckey"
)
"""Options with a value (srun(1) of Slurm 24.05)."""


def _launch(words: Sequence[str]) -> Launch:
    """The command that srun starts; without numbers on the command line those of the job's allocation hold."""
    options, command = split(words, _VALUED)
    launch = launch_of(command)
    nodes = _number("--nodes", options.get("N") or options.get("nodes") or os.environ.get("SLURM_NNODES", "1"))
    per_node = options.get("ntasks-per-node") or ""
    if tasks := options.get("n") or options.get("ntasks"):
        processes = max(1, _number("--ntasks", tasks) // nodes)
    else:
        processes = _number("--ntasks-per-node", per_node or _per_node_of_allocation(nodes))
    launch = launch.within(folder=options.get("D") or options.get("chdir"))
    if launch.program.launcher or launch.program.processes:  # such as `srun torchrun`: one launcher on each node
        return launch
    program = replace(launch.program, nodes=nodes, processes=processes, ranks_by=RankVariables.SLURM)
    return replace(launch, program=program)


def _number(option: str, value: str) -> int:
    """The most of a range such as `2-4`. Raises UnknownReason."""
    return positive_number(option, value.rpartition("-")[2])


def _per_node_of_allocation(nodes: int) -> str:
    """Tasks on each node, from the variables of an allocation: `4`, `4(x2)`, or a number for all nodes together."""
    if match := re.match(r"\d+", os.environ.get("SLURM_NTASKS_PER_NODE", "")):
        return match[0]
    together = os.environ.get("SLURM_NTASKS", "")
    return str(max(1, int(together) // nodes)) if together.isdecimal() else "1"


SRUN = Launcher("srun", "the tasks of a step by Slurm", ("srun",), _launch)
