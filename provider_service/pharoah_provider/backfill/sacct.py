"""Slurm accounting: what `sacct --parsable2` prints, with its header."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from pharoah_provider.backfill._source import BackfillError, BackfillSource, Table

NEEDED = ("JobID", "JobName", "State", "ExitCode", "NodeList")
USED = ("AllocTRES", "Partition", "AllocNodes", "Start")
"""Columns that the map uses where they were printed."""
NOT_OVER = ("PENDING", "RUNNING", "SUSPENDED", "COMPLETING", "CONFIGURING", "RESIZING", "REQUEUED", "REQUEUE_HOLD")
"""States of jobs that have not ended (Slurm, JOB STATE CODES). Their rows are left out."""
FAILURES = ("FAILED", "OUT_OF_MEMORY", "NODE_FAIL", "BOOT_FAIL")
"""States that speak against a node."""
NO_NODES = ("", "None assigned")
LONGEST_RANGE = 100_000
"""Nodes that one range of a node list names at most: no cluster is larger."""
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
    lines = path.read_text(encoding="utf-8").splitlines()
    header = lines[0].split("|") if lines else []
    if missing := [name for name in NEEDED if name not in header]:
        raise BackfillError(
            f"{path}: the header lacks {missing[0]}; expected what `sacct --parsable2 --format="
            f"{','.join((*NEEDED, *USED))}` prints"
        )
    rows = [row for row in _rows(path, header, lines[1:]) if _ended(row)]
    columns = {
        name: np.array([row.get(name, "") for row in rows], dtype=str) for name in dict.fromkeys((*header, *USED))
    }
    nodes = [expanded(row["NodeList"]) for row in rows]
    failures = Counter(
        node for row, own in zip(rows, nodes, strict=True) if row["State"].startswith(FAILURES) for node in own
    )
    columns["Host"] = np.array([max(own, key=lambda node: (failures[node], node), default="") for own in nodes], str)
    return Table(path, columns)


def expanded(node_list: str) -> list[str]:
    """The nodes of a list such as `n[01-03,07],login1`, in its order. Raises BackfillError for a list that is none."""
    if node_list in NO_NODES:
        return []
    found: list[str] = []
    place = 0
    while place < len(node_list):
        matched = _PIECE.match(node_list, place)
        if matched is None or not matched[0] or (matched[2] is None and not matched[1]):
            raise BackfillError(f"node list {node_list!r} cannot be read at {node_list[place:]!r}")
        before, ranges, after = matched.groups()
        names = [before] if ranges is None else [f"{before}{number}{after}" for number in _numbers(node_list, ranges)]
        found += names
        place = matched.end() + 1
        if place <= len(node_list) and node_list[place - 1] != ",":
            raise BackfillError(f"node list {node_list!r} cannot be read at {node_list[place - 1 :]!r}")
    return found


def _numbers(node_list: str, ranges: str) -> Iterator[str]:
    """The numbers of `01-03,07`, with their leading zeros."""
    for piece in ranges.split(","):
        first, dash, last = piece.partition("-")
        last = last if dash else first
        if not (first.isdecimal() and last.isdecimal()) or not 0 <= int(last) - int(first) < LONGEST_RANGE:
            raise BackfillError(f"node list {node_list!r}: {piece!r} is no range of numbers")
        yield from (str(number).zfill(len(first)) for number in range(int(first), int(last) + 1))


def _rows(path: Path, header: list[str], lines: list[str]) -> Iterator[dict[str, str]]:
    for number, line in enumerate(lines, 2):
        cells = line.split("|")
        if len(cells) != len(header):
            raise BackfillError(f"{path}: row {number} has {len(cells)} columns, the header has {len(header)}")
        yield dict(zip(header, cells, strict=True))


def _ended(row: dict[str, str]) -> bool:
    """Whether a row is a job that has ended; `17.batch` and `17.0` are steps of job 17."""
    return "." not in row["JobID"] and row["State"].partition(" ")[0] not in NOT_OVER


SOURCE = BackfillSource("sacct", "Slurm accounting, as `sacct --parsable2` prints it", read, _MAP)
