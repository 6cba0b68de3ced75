"""Slurm accounting: what `sacct --parsable2` prints, with its header."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import IO, NamedTuple

import numpy as np

from pharoah_learning.effects import Names
from pharoah_provider.backfill._source import BackfillError, BackfillSource, LazyColumns, Table
from pharoah_system.bounded_reading import open_regular

NEEDED = ("JobID", "JobName", "State", "ExitCode", "NodeList")
USED = ("AllocTRES", "Partition", "AllocNodes", "Start")
"""Columns that the map uses where they were printed."""
NOT_OVER = ("PENDING", "RUNNING", "SUSPENDED", "COMPLETING", "CONFIGURING", "RESIZING", "REQUEUED", "REQUEUE_HOLD")
"""States of jobs that have not ended (Slurm, JOB STATE CODES). Their rows are left out."""
FAILURES = ("FAILED", "OUT_OF_MEMORY", "NODE_FAIL", "BOOT_FAIL")
"""States that speak against a node."""
NO_NODES = ("", "None assigned")
MAX_RANGE = 100_000
"""Nodes that one range of a node list names at most: no cluster is larger."""
MAX_NODES, MAX_NODES_OF_BYTE = 200_000, 100
"""Nodes of all different node lists of a file together: so many in any, else so many for each byte of them. A list of
4,000 nodes without a gap has 15 bytes, and jobs rarely get one."""
MAX_LINE_BYTES = 1 << 18
"""One row. A list of 10,000 nodes without ranges has 100 KB."""
HOST = "Host"
_DELIMITER = re.compile(r"\w+(\W+)")
_DIGITS = re.compile("[0-9]{1,18}")
_PIECE = re.compile(r"([^,\[\]]*)(?:\[([^\]]*)\])?([^,\[\]]*)")
_MAP = """
model = "JobName"
error = "State"
exit_status = "ExitCode"
identity = ["JobID"]
[time]
column = "Start"
pattern = '^\\d.*' # sacct prints Unknown for a job that never began
[end_state]
column = "State"
pattern = '^\\w+'
[end_state.values]
COMPLETED = "ok"
FAILED = "failed"
OUT_OF_MEMORY = "failed"
NODE_FAIL = "lost"
BOOT_FAIL = "lost"
TIMEOUT = "time_limit"
DEADLINE = "time_limit"
CANCELLED = "cancelled"
REVOKED = "moved"
PREEMPTED = "preempted"
[context]
gpu = { column = "AllocTRES", pattern = 'gres/gpu:([\\w.-]+)' }
partition = "Partition"
[confounders]
nodes = "AllocNodes"
[clusters]
host = "Host"
"""


def read(path: Path) -> Table:
    """The jobs that have ended, without their steps, and the column `Host` that this source adds.

    A job on several nodes gets as its host the one of its nodes on which most jobs failed: one bad node then makes one
    cluster, whatever nodes its jobs had beside it.
    """
    with open_regular(path) as file:
        lines = _lines(path, file)
        header = _header(path, next(lines, ""))
        jobs = list(_jobs(path, header, lines))
    hosts = _hosts(path, header, jobs)

    def column(name: str) -> Names:
        if name == HOST:
            return hosts
        place = header.names.index(name) if name in header.names else None
        return np.array(["" if place is None else job.cells[place] for job in jobs], dtype=object)

    return Table(
        path, LazyColumns((*header.names, *USED, HOST), column), rows=np.array([job.row for job in jobs], np.int64)
    )


def _lines(path: Path, file: IO[bytes]) -> Iterator[str]:
    """Raises BackfillError for what is no text of lines."""
    number = 0
    while line := file.readline(MAX_LINE_BYTES + 1):
        number += 1
        if len(line) > MAX_LINE_BYTES:
            raise BackfillError(f"{path}: row {number} has more than {MAX_LINE_BYTES:,} bytes")
        yield line.decode()


class _Job(NamedTuple):
    """One job that has ended."""

    row: int
    """Its place in the file, counted from 1."""
    cells: list[str]


class _Header(NamedTuple):
    """What the first line of a file says."""

    names: list[str]
    delimiter: str
    """What stands between two columns: `|`, or what `sacct --delimiter` named."""


def _header(path: Path, line: str) -> _Header:
    """Raises BackfillError that lists the columns that there must be."""
    between = _DELIMITER.match(line.rstrip("\r\n"))
    delimiter = between[1] if between else "|"
    names = line.rstrip("\r\n").split(delimiter)
    if missing := [name for name in NEEDED if name not in names]:
        raise BackfillError(
            f"{path}: the header lacks {missing[0]}; expected what `sacct --parsable2 --format="
            f"{','.join((*NEEDED, *USED))}` prints"
        )
    return _Header(names, delimiter)


def _jobs(path: Path, header: _Header, lines: Iterable[str]) -> Iterator[_Job]:
    """The rows of jobs that have ended; equal values are one object."""
    job_id, state = header.names.index("JobID"), header.names.index("State")
    shared: dict[str, str] = {}
    for number, line in enumerate(lines, 2):
        cells = line.rstrip("\r\n").split(header.delimiter)
        if len(cells) != len(header.names):
            raise BackfillError(
                f"{path}: row {number} has {len(cells)} columns, the header has {len(header.names)}; where a value "
                f"holds {header.delimiter!r} itself, print with another delimiter: sacct --parsable2 --delimiter='@@'"
            )
        if _has_ended(cells[job_id], cells[state]):
            yield _Job(number, [shared.setdefault(cell, cell) for cell in cells])


def _has_ended(job_id: str, state: str) -> bool:
    """Whether a row is a job that has ended; `17.batch` and `17.0` are steps of job 17."""
    return "." not in job_id and state.partition(" ")[0] not in NOT_OVER


def _hosts(path: Path, header: _Header, jobs: Sequence[_Job]) -> Names:
    """The host of each job. Jobs of one node list have one host, so that each list is read once."""
    node_list, state = header.names.index("NodeList"), header.names.index("State")
    nodes: dict[str, list[str]] = {}
    shared: dict[str, str] = {}
    count = size = 0
    failures: Counter[str] = Counter()
    for job in jobs:
        text = job.cells[node_list]
        if text not in nodes:
            try:
                nodes[text] = [shared.setdefault(node, node) for node in expand(text)]
            except BackfillError as error:
                raise BackfillError(f"{path}: row {job.row}, column NodeList: {error}") from None
            count, size = count + len(nodes[text]), size + len(text)
            if count > max(MAX_NODES, MAX_NODES_OF_BYTE * size):
                raise BackfillError(f"{path}: row {job.row}, column NodeList: {count:,} nodes in {size:,} characters")
        if job.cells[state].startswith(FAILURES):
            failures.update(nodes[text])
    hosts = {text: max(own, key=lambda node: (failures[node], node), default="") for text, own in nodes.items()}
    return np.array([hosts[job.cells[node_list]] for job in jobs], dtype=object)


def expand(node_list: str) -> list[str]:
    """The nodes of a list such as `n[01-03,07],login1`, in its order. Raises BackfillError for a list that is none."""
    if node_list in NO_NODES:
        return []
    found: list[str] = []
    place = 0
    while place < len(node_list):
        matched = _PIECE.match(node_list, place)
        if matched is None or not matched[0] or (matched[2] is None and not matched[1]):
            raise BackfillError(f"node list {node_list[:80]!r} cannot be read at {node_list[place:][:80]!r}")
        before, ranges, after = matched.groups()
        names = [before] if ranges is None else [f"{before}{number}{after}" for number in _numbers(node_list, ranges)]
        found += names
        if len(found) > MAX_RANGE:
            raise BackfillError(f"node list {node_list[:80]!r}: more than {MAX_RANGE:,} nodes")
        place = matched.end() + 1
        if place <= len(node_list) and node_list[place - 1] != ",":
            raise BackfillError(f"node list {node_list[:80]!r} cannot be read at {node_list[place - 1 :][:80]!r}")
    return found


def _numbers(node_list: str, ranges: str) -> Iterator[str]:
    """The numbers of `01-03,07`, with their leading zeros."""
    for piece in ranges.split(","):
        first, dash, last = piece.partition("-")
        last = last if dash else first
        if not (_DIGITS.fullmatch(first) and _DIGITS.fullmatch(last)) or not 0 <= int(last) - int(first) < MAX_RANGE:
            raise BackfillError(f"node list {node_list[:80]!r}: {piece[:80]!r} is no range of numbers")
        yield from (str(number).zfill(len(first)) for number in range(int(first), int(last) + 1))


SOURCE = BackfillSource("sacct", "Slurm accounting, as `sacct --parsable2` prints it", read, _MAP)
