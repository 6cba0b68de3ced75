"""`mpirun [options] command` and `mpiexec`, of Open MPI, MPICH and Intel MPI."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from pharoah._errors import UnknownReason
from pharoah.launchers._launcher import Launcher, launch_of, split, valued_options
from pharoah.launchers._program import Launch, RankVariables, positive_number

_VALUED = {
    **valued_options(
        "n np c H host hosts hostfile machinefile f x wdir wd bind-to map-by rank-by N npernode ppn npersocket "
        "report-child-jobs-separately cpu-set cpu-list prefix app tune output-filename stdin timeout rankfile rf "
        "launcher bootstrap iface genvlist envlist path umask"
    ),
    **valued_options("mca gmca prtemca pmixmca genv env", words=2),
}
"""Options with values, and how many (mpirun(1) of Open MPI 5, mpiexec of MPICH 4)."""


def _launch(words: Sequence[str]) -> Launch:
    options, command = split(words, _VALUED, one_dash_names=True)
    launch = launch_of(command)
    given = next((options[name] for name in ("n", "np", "c") if options.get(name)), "")
    hosts = _hosts(options)
    processes = positive_number("-np", given) if given else max(1, sum(hosts.values()))
    launch = launch.within(_variables(options), folder=options.get("wdir") or options.get("wd"))
    if launch.program.launcher:
        return launch
    nodes = max(1, len(hosts))
    program = replace(launch.program, nodes=nodes, processes=max(1, processes // nodes), ranks_by=RankVariables.MPI)
    return replace(launch, program=program)


def _hosts(options: Mapping[str, str]) -> dict[str, int]:
    """Name of a node to its number of slots. Raises UnknownReason for a file that is missing."""
    if path := next((options[name] for name in ("hostfile", "machinefile", "f") if options.get(name)), ""):
        try:
            lines = Path(path).read_text().splitlines()
        except OSError as error:
            raise UnknownReason(f"cannot dry-run `mpirun`: {path}: {error.strerror}") from None
        words = [line.partition("#")[0].split() for line in lines]
        return {line[0].partition(":")[0]: _slots(" ".join(line)) for line in words if line}
    listed = next((options[name] for name in ("H", "host", "hosts") if options.get(name)), "")
    return {part.partition(":")[0]: _slots(part) for part in filter(None, listed.split(","))}


def _slots(text: str) -> int:
    """`node1:4` or `node1 slots=4`; one where it is not given."""
    match = re.search(r"(?:slots=|:)(\d+)", text)
    return int(match[1]) if match else 1


def _variables(options: Mapping[str, str]) -> dict[str, str]:
    """Variables that are set for the processes: `-x NAME=VALUE`, `-genv NAME VALUE`."""
    found = dict[str, str]()
    for option in ("x", "genv", "env"):
        for given in filter(None, options.get(option, "").split("\0")):
            name, equals, value = given.partition("=" if option == "x" else " ")
            if equals:
                found[name] = value
    return found


MPIRUN = Launcher(
    "mpirun", "the ranks of a job by MPI", ("mpirun", "mpiexec", "mpiexec.hydra", "orterun", "prterun"), _launch
)
