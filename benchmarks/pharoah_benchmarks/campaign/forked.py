"""Work in a forked process that ends with it: whatever a cell does, the process that forked it stays as it was.

What the work has started is ended with it, also daemons (`pharoah_system.process_family`). What it writes into its
scratch folder goes with it. Both are bounded while it runs.
"""

from __future__ import annotations

import contextlib
import os
import resource
import select
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from pharoah_benchmarks.campaign.process_limit import enter, make_limited_group
from pharoah_system.had_time import LimitClock
from pharoah_system.held_folders import HeldFolder, hold_folder
from pharoah_system.parent_process import adopt_orphans, end_with_parent
from pharoah_system.process_family import children, descendants, end_family
from pharoah_system.standard_streams import say

_PREFIX = "ph-cell-"
"""Begins the name of a scratch folder; short, because sockets in it have paths of at most 107 characters (unix(7))."""
MAX_ANSWER_BYTES = 16 << 20
"""Step times, windows and telemetry of the longest cell take 4 MB."""
_NO_DUMP_BYTES = 1
"""A limit of one byte also keeps programs that collect core dumps from being started; zero does not (core(5))."""
LOOK_SECONDS = 0.2
"""How often a cell is looked at while it runs; a look takes about half a millisecond."""


@dataclass(frozen=True, kw_only=True)
class Bounds:
    """What a cell may use at most. A cell that uses more is ended."""

    seconds: float
    """Time that it may have had (`pharoah_system.had_time`)."""
    processes: int = 256
    """What it has started: ranks, data loaders, a CPU stressor. The largest cell of ours has 8 ranks with one each."""
    threads: int = 2048
    """The threads of all its processes, as the kernel limits them; matrix products take some for each core."""
    scratch_bytes: int = 1 << 30
    scratch_files: int = 10_000


class ForkedAnswer(NamedTuple):
    """What a forked process left."""

    text: str = ""
    """What its work returned; empty when it ended before."""
    status: int = 0
    """Its exit status; negative is the signal that ended it."""
    late: bool = False
    """Whether it was ended because it took too long."""
    starved: bool = False
    """Whether it was ended without the time that it may have, because the machine was too busy for too long."""
    beyond: str = ""
    """Another bound that it went beyond, in words."""
    outlived: int = 0
    """Processes that it had started and that lived on when it had ended by itself."""


def in_child(work: Callable[[], str], bounds: Bounds) -> ForkedAnswer:
    """Do `work` in a forked child, in a scratch folder, and end everything that it has started.

    The calling process must start nothing else meanwhile: all its new descendants count as the child's.
    """
    adopt_orphans()
    before = set(children(os.getpid()))
    answer = os.memfd_create("pharoah-answer")  # a pipe would stay open in a daemon
    try:
        with hold_folder(_PREFIX) as folder, make_limited_group(bounds.threads) as group:
            pid = _fork(work, folder, group, answer, bounds)
            late, starved, beyond = False, False, ""
            try:
                late, starved, beyond = _watch(pid, folder.path, bounds, before)
            finally:
                outlived = _end(before, pid)
            status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        if os.fstat(answer).st_size > MAX_ANSWER_BYTES:
            beyond = f"its result has more than {MAX_ANSWER_BYTES} bytes"
        text = "" if late or starved or beyond else os.pread(answer, MAX_ANSWER_BYTES, 0).decode(errors="replace")
    finally:
        os.close(answer)
    ended = late or starved or bool(beyond)
    return ForkedAnswer(text, status, late, starved, beyond, 0 if ended else outlived)


def _fork(work: Callable[[], str], folder: HeldFolder, group: Path | None, answer: int, bounds: Bounds) -> int:
    parent, pid = os.getpid(), os.fork()
    if pid:
        return pid
    try:
        end_with_parent(parent)
        os.setsid()
        os.close(folder.lock)
        os.chdir(folder.path)
        os.environ["TMPDIR"], tempfile.tempdir = str(folder.path), None
        nothing = os.open(os.devnull, os.O_RDWR)
        for descriptor in (0, 1):
            os.dup2(nothing, descriptor)
        enter(group, bounds.threads)
        _leave_no_core_dump()
        resource.setrlimit(resource.RLIMIT_FSIZE, (bounds.scratch_bytes, bounds.scratch_bytes))
        content = work().encode()
        while content:
            content = content[os.write(answer, content) :]
    except BaseException as fault:  # noqa: BLE001 - a child must end here
        say(f"cell: {type(fault).__name__}: {fault}")
        os._exit(1)
    os._exit(0)


def _leave_no_core_dump() -> None:
    """A core dump of a cell may hold gigabytes, and would lie outside its scratch folder."""
    hard = resource.getrlimit(resource.RLIMIT_CORE)[1]
    most = _NO_DUMP_BYTES if hard == resource.RLIM_INFINITY else min(_NO_DUMP_BYTES, hard)
    resource.setrlimit(resource.RLIMIT_CORE, (most, most))


class _Watched(NamedTuple):
    late: bool = False
    starved: bool = False
    beyond: str = ""


def _watch(pid: int, folder: Path, bounds: Bounds, before: set[int]) -> _Watched:
    """Wait for the child to end, and look at it again and again."""
    ended, limit = os.pidfd_open(pid), LimitClock(bounds.seconds, pid)
    try:
        while (left := limit.get_remaining()) > 0:
            if select.select([ended], [], [], min(LOOK_SECONDS, left))[0]:
                return _Watched()
            if sum(1 for _ in islice(_find_started_since(before), bounds.processes + 2)) > bounds.processes + 1:
                return _Watched(beyond=f"it has started more than {bounds.processes} processes")
            if beyond := _beyond(folder, bounds):
                return _Watched(beyond=beyond)
        return _Watched(starved=True) if limit.has_starved else _Watched(late=True)
    finally:
        os.close(ended)


def _beyond(folder: Path, bounds: Bounds) -> str:
    """What a scratch folder holds too much of, in words; empty when it does not."""
    size = count = 0
    for path, _, files in os.walk(folder):
        count += 1 + len(files)
        if count > bounds.scratch_files:
            return f"its scratch folder holds more than {bounds.scratch_files} files"
        for name in files:
            with contextlib.suppress(OSError):
                size += (Path(path) / name).lstat().st_blocks * 512  # stat(2): blocks of 512 bytes
    most = bounds.scratch_bytes
    return f"its scratch folder holds more than {most} bytes" if size > most else ""


def _find_started_since(before: set[int]) -> Iterator[int]:
    """All processes that this one has started since, with theirs; orphans have become its children."""
    for child in set(children(os.getpid())) - before:
        yield child
        yield from descendants(child)


def _end(before: set[int], pid: int) -> int:
    """End what was started since. How many of them, besides the child itself, were still there."""

    def eldest() -> set[int]:
        mine = set(children(os.getpid())) - before
        for orphan in mine - {pid}:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(orphan, os.WNOHANG)
        return mine

    return len(end_family(eldest) - {pid})
