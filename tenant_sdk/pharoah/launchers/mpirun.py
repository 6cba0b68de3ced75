"""`mpirun [options] command` and `mpiexec`, of Open MPI, MPICH and Intel MPI."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from pharoah._errors import UnknownReason
from pharoah.launchers._launcher import Launcher, launch_of, split, valued_options
from pharoah.launchers._program import Launch, RankVariables, positive_number

_VALUED = {
    **valued_options(
        "n np c H host hosts hostfile machinefile f x wdir wd bind-to map-by rank-by N npernode ppn perhost "
        "npersocket report-child-jobs-separately cpu-set cpu-list prefix app tune output-filename stdin timeout "
        "rankfile rf launcher bootstrap iface genvlist envlist path umask"
    ),
    **valued_options("mca gmca prtemca pmixmca genv env", words=2),
}
"""Options with values, and how many (mpirun(1) of Open MPI 5, mpiexec of MPICH 4)."""
_PER_NODE = ("N", "npernode", "ppn", "perhost")
"""Options that give the number of processes on each node."""
_PROCESSES_PER_NODE = re.compile(r"ppr:(\d+):node\b")
"""The value of Open MPI's `--map-by` that does the same."""


class _Ranks(NamedTuple):
    """How many ranks there are."""

    nodes: int
    processes: int
    """Number of processes on each node."""


def _launch(words: Sequence[str]) -> Launch:
    options, command = split(words, _VALUED, one_dash_names=True)
    launch = launch_of(command)
    ranks = _ranks(options)
    launch = launch.within(_variables(options), folder=options.get("wdir") or options.get("wd"))
    if launch.program.launcher:
        return launch
    program = replace(launch.program, nodes=ranks.nodes, processes=ranks.processes, ranks_by=RankVariables.MPI)
    return replace(launch, program=program)


def _ranks(options: Mapping[str, str]) -> _Ranks:
    """The ranks that the options ask for. Raises UnknownReason for a number that is none, or a file that is missing."""
    hosts, per_node, given = _hosts(options), _per_node(options), _given(options, "n", "np", "c")
    nodes = max(1, len(hosts))
    if not given:
        return _Ranks(nodes, per_node or max(1, sum(hosts.values()) // nodes))
    processes = positive_number("-np", given)
    if per_node:
        full = -(-processes // per_node)  # the last node may have fewer
        nodes = min(nodes, full) if hosts else full
    return _Ranks(nodes, max(1, processes // nodes))


def _per_node(options: Mapping[str, str]) -> int | None:
    """The number of processes that the command line asks for on each node. Raises UnknownReason."""
    for name in _PER_NODE:
        if given := _given(options, name):
            return positive_number(f"-{name}", given)
    if "pernode" in options:
        return 1
    mapped = _PROCESSES_PER_NODE.match(_given(options, "map-by"))
    return positive_number("--map-by ppr", mapped[1]) if mapped else None


def _given(options: Mapping[str, str], *names: str) -> str:
    """The value of the first of these options that is there, its last one where it is repeated; empty without one."""
    return next((options[name].rpartition("\0")[2] for name in names if options.get(name)), "")


def _hosts(options: Mapping[str, str]) -> dict[str, int]:
    """Name of a node to its number of slots, of which a node has as many more as it is listed again.

    Raises UnknownReason for a file that is missing.
    """
    found = Counter[str]()
    for part in _listed_hosts(options):
        found[re.split(r"[\s:]", part, maxsplit=1)[0]] += _slots(part)
    return dict(found)


def _listed_hosts(options: Mapping[str, str]) -> list[str]:
    """Every mention of a node, with its slots. Raises UnknownReason."""
    if path := _given(options, "hostfile", "machinefile", "f"):
        try:
            lines = Path(path).read_text().splitlines()
        except OSError as error:
            raise UnknownReason(f"cannot dry-run `mpirun`: {path}: {error.strerror}") from None
        return [line for line in (line.partition("#")[0].strip() for line in lines) if line]
    listed = next((options[name] for name in ("H", "host", "hosts") if options.get(name)), "")
    return [part for part in re.split(r"[,\0]", listed) if part]


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
