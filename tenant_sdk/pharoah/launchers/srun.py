"""`srun [options] command`: Slurm numbers the processes by variables of its own."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from pharoah.launchers._launcher import Launcher, launch_of, numbers_its_ranks, parse_valued_options, split
from pharoah.launchers._program import Launch, Ranks, RankVariables, positive_number

_VALUED = parse_valued_options(
    "A B c C d D e G i J L m M n N o p q r S t T w W x account begin chdir cluster-constraint clusters comment "
    "constraint container container-id container-image container-mounts container-name container-workdir core-spec "
    "cores-per-socket cpu-bind cpu-freq cpus-per-gpu cpus-per-task deadline delay-boot dependency distribution "
    "epilog error exclude export export-file extra extra-node-info gid gpu-bind gpu-freq gpus gpus-per-node "
    "gpus-per-socket gpus-per-task gres gres-flags hint input jobid job-name licenses mail-type mail-user "
    "max-exit-timeout mcs-label mem mem-bind mem-per-cpu mem-per-gpu mincpus mpi msg-timeout network nodefile "
    "nodelist nodes ntasks ntasks-per-core ntasks-per-gpu ntasks-per-node ntasks-per-socket open-mode output "
    "partition power priority profile prolog qos relative reservation signal slurmd-debug sockets-per-node switches "
    "task-epilog task-prolog thread-spec threads threads-per-core time time-min tmp tres-bind tres-per-task uid "
    "wait wckey"
)
"""Options with a value (srun(1) of Slurm 24.05). Not among them are those whose value follows `=` only, as it may be
left out: `--nice`, `--bcast`, `--resv-ports`."""


def _launch(words: Sequence[str]) -> Launch:
    """The command that srun starts; without numbers on the command line those of the job's allocation hold."""
    options, command = split(words, _VALUED)
    launch = launch_of(command)
    ranks = _ranks(options)
    launch = launch.within(folder=options.get("D") or options.get("chdir"))
    if numbers_its_ranks(launch.program) or launch.program.processes:  # `srun torchrun`: one launcher on each node
        return launch
    return replace(launch, program=ranks.set_ranks(launch.program, RankVariables.SLURM))


def _ranks(options: Mapping[str, str]) -> Ranks:
    """The tasks that the options ask for. Raises UnknownReason for a number that is none."""
    asked = options.get("N") or options.get("nodes")
    nodes = _number("--nodes", asked or os.environ.get("SLURM_NNODES", "1"))
    tasks, per_node = options.get("n") or options.get("ntasks"), options.get("ntasks-per-node")
    if not tasks and not per_node:
        tasks, per_node = _tasks_of_allocation()
    limit = _number("--ntasks-per-node", per_node) if per_node else None
    if not tasks:
        return Ranks(nodes, limit or 1)
    count = _number("--ntasks", tasks)
    if limit and not asked:
        nodes = -(-count // limit)
    nodes = min(nodes, count)
    # Slurm gives the nodes their tasks in turn, and the first ones have one more where it does not come out even.
    return Ranks(nodes, -(-count // nodes), count)


def _number(option: str, value: str) -> int:
    """The most of a range such as `2-4`. Raises UnknownReason."""
    return positive_number(option, value.rpartition("-")[2])


class _Tasks(NamedTuple):
    """What an allocation says of its tasks; empty where it says nothing."""

    together: str
    per_node: str


def _tasks_of_allocation() -> _Tasks:
    """Tasks of all nodes together, or of each: an allocation has variables for both (`4`, or `4(x2)` for each node)."""
    if match := re.match(r"\d+", os.environ.get("SLURM_NTASKS_PER_NODE", "")):
        return _Tasks("", match[0])
    together = os.environ.get("SLURM_NTASKS", "")
    return _Tasks(together if together.isdecimal() and int(together) else "", "")


SRUN = Launcher("srun", "the tasks of a step by Slurm", ("srun",), _launch)
