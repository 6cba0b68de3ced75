"""`mpirun [options] command` and `mpiexec`, of Open MPI, MPICH and Intel MPI."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from pharoah._errors import UnknownReason
from pharoah.launchers._launcher import Launcher, launch_of, numbers_its_ranks, parse_valued_options, split
from pharoah.launchers._program import Launch, Ranks, RankVariables, positive_number
from pharoah_system.bounded_reading import UnreadableInput, read_text

_VALUED = {
    **parse_valued_options(
        "n np c H host hosts hostfile machinefile f x wdir wd bind-to map-by rank-by N npernode ppn perhost "
        "npersocket report-child-jobs-separately cpu-set cpu-list prefix app tune output-filename stdin timeout "
        "rankfile rf launcher bootstrap iface genvlist envlist path umask output display personality"
    ),
    **parse_valued_options("mca gmca prtemca pmixmca genv env", words=2),
}
"""Options with values, and how many (mpirun(1) of Open MPI 5, mpiexec of MPICH 4)."""
_PER_NODE = ("N", "npernode", "ppn", "perhost")
"""Options that give the number of processes on each node."""
_PROCESSES_PER_NODE = re.compile(r"ppr:(\d+):node\b")
"""The value of Open MPI's `--map-by` that does the same."""
_TASKS = re.compile(r"([1-9]\d{0,5})(?:\(x([1-9]\d{0,5})\))?")


def _launch(words: Sequence[str]) -> Launch:
    options, command = split(words, _VALUED, one_dash_names=True)
    launch = launch_of(command)
    ranks = _ranks(options)
    launch = launch.within(_variables(options), folder=options.get("wdir") or options.get("wd"))
    if numbers_its_ranks(launch.program):
        return launch
    return replace(launch, program=ranks.set_ranks(launch.program, RankVariables.MPI))


def _ranks(options: Mapping[str, str]) -> Ranks:
    """The ranks that the options ask for. Raises UnknownReason for a number that is none, or a file that is missing."""
    slots, per_node, given = _slots_of_hosts(options), _per_node(options), _get_option(options, "n", "np", "c")
    if not given:
        on_nodes = [per_node] * max(1, len(slots)) if per_node else slots or [1]
    elif per_node:
        on_nodes = _by_node(positive_number("-np", given), per_node, len(slots))
    elif _get_option(options, "map-by").startswith("node"):
        on_nodes = _in_turn(positive_number("-np", given), max(1, len(slots)))
    else:
        on_nodes = _by_slot(positive_number("-np", given), slots)
    return Ranks(len(on_nodes), max(on_nodes), sum(on_nodes))


def _by_node(ranks: int, per_node: int, hosts: int) -> list[int]:
    """How many ranks each node gets that gets one, with so many on each; more where there are too few hosts. The number
    of hosts is 0 where it is not known."""
    full, rest = divmod(ranks, per_node)
    if hosts and full + bool(rest) > hosts:
        return _in_turn(ranks, hosts)
    return [*[per_node] * full, *filter(None, [rest])]


def _in_turn(ranks: int, hosts: int) -> list[int]:
    """How many ranks each node gets that gets one, where the nodes get them one by one."""
    each, rest = divmod(ranks, hosts)
    return [each + (number < rest) for number in range(min(hosts, ranks))]


def _by_slot(ranks: int, slots: Sequence[int]) -> list[int]:
    """How many ranks each node gets that gets one, where the slots of one node are filled before those of the next.
    What is left then is put on them in the same way again."""
    rounds, left = divmod(ranks, sum(slots)) if slots else (0, ranks)
    on_nodes = []
    for size in slots or [ranks]:
        on_nodes.append(rounds * size + min(size, left))
        left -= min(size, left)
    return [count for count in on_nodes if count]


def _per_node(options: Mapping[str, str]) -> int | None:
    """The number of processes that the command line asks for on each node. Raises UnknownReason."""
    for name in _PER_NODE:
        if given := _get_option(options, name):
            return positive_number(f"-{name}", given)
    if "pernode" in options:
        return 1
    mapped = _PROCESSES_PER_NODE.match(_get_option(options, "map-by"))
    return positive_number("--map-by ppr", mapped[1]) if mapped else None


def _get_option(options: Mapping[str, str], *names: str) -> str:
    """The value of the first of these options that is there, its last one where it is repeated; empty without one."""
    return next((options[name].rpartition("\0")[2] for name in names if options.get(name)), "")


def _slots_of_hosts(options: Mapping[str, str]) -> list[int]:
    """The number of slots of each node, of which a node has as many more as it is listed again. Where no nodes are
    listed they are those of an allocation of Slurm; empty outside of one.

    Raises UnknownReason for a file that is missing.
    """
    found = Counter[str]()
    for part in _list_hosts(options):
        found[re.split(r"[\s:]", part, maxsplit=1)[0]] += _slots(part)
    return list(found.values()) or _slots_of_allocation()


def _slots_of_allocation() -> list[int]:
    """Tasks on each node of an allocation, `8(x2),4` (sbatch(1), SLURM_TASKS_PER_NODE)."""
    parts = (_TASKS.fullmatch(part) for part in os.environ.get("SLURM_TASKS_PER_NODE", "").split(","))
    return [int(part[1]) for part in parts if part for _ in range(int(part[2] or 1))]


def _list_hosts(options: Mapping[str, str]) -> list[str]:
    """Every mention of a node, with its slots. Raises UnknownReason."""
    if path := _get_option(options, "hostfile", "machinefile", "f"):
        try:
            lines = read_text(Path(path)).splitlines()
        except OSError as error:
            raise UnknownReason(f"cannot dry-run `mpirun`: {path}: {error.strerror}") from None
        except UnreadableInput as error:
            raise UnknownReason(f"cannot dry-run `mpirun`: {error}") from None
        return [line for line in (line.partition("#")[0].strip() for line in lines) if line]
    listed = next((options[name] for name in ("H", "host", "hosts") if options.get(name)), "")
    return [part for part in re.split(r"[,\0]", listed) if part]


def _slots(text: str) -> int:
    """`node1:4` or `node1 slots=4`; one where it is not given."""
    match = re.search(r"(?:slots=|:)(\d+)", text)
    return max(1, int(match[1])) if match else 1


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
