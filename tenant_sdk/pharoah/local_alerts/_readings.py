"""What this machine shows of the processes of a job: files of /proc and of its control group, nothing in the processes.

Everything here is read by the sidecar, as the user of the job, so it costs the training process nothing. What cannot be
read is absent. Amounts are in bytes and seconds.
"""

from __future__ import annotations

import contextlib
import os
import resource
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from pharoah_system.had_time import ThreadTimes, parse_schedstat
from pharoah_system.memory_group import CGROUPS, PROC, UNLIMITED_BYTES, group_room, groups_of, numbers_in
from pharoah_system.process_family import descendants

NANOSECONDS = 1e9
_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES = resource.getpagesize()
_STATE, _TICKS, _ENDED_TICKS, _THREADS = 0, slice(11, 13), slice(13, 15), 17
"""Columns of /proc/PID/stat behind the name of the program (proc_pid_stat(5)): the state; user and system time of the
process; those of its children that have ended; how many threads it has."""
_AUTOGRAD = "pt_autograd"
"""The beginning of the names of threads in which torch computes backward passes for devices (torch/csrc/autograd/
engine.cpp)."""
_RESIDENT_PAGES, _DATA_PAGES = 1, 5
"""Columns of /proc/PID/statm (proc_pid_statm(5))."""
_IDLE, _IO_WAIT, _STOLEN = 3, 4, 7
"""Columns of the first line of /proc/stat, behind its name (proc_stat(5))."""
MAX_THREADS = 256
"""Threads of one process whose steps are followed; ours. A job may step in a new one each epoch."""
MAX_WORKERS = 256
"""Processes that one rank has started, of which the memory is read."""


@dataclass(frozen=True, kw_only=True)
class ProcessReading:
    """One rank's process at one moment. Times and bytes count from its start, but for memory, which is of now."""

    computed_seconds: float
    """Processor time of all its threads."""
    main_computed_seconds: float
    """Processor time of its main thread, of other threads in which it steps, and of those that compute its backward
    passes for devices, while it waits; in hundredths of a second where the kernel keeps no times of the scheduler."""
    main_queued_seconds: float
    """How long these threads were ready to run, and waited for a core (schedstats, docs.kernel.org); 0 where the
    kernel does not count it."""
    blocked: bool
    """Whether the main thread waits for a device now and cannot be interrupted, as it does for a disk."""
    stopped: bool
    """Whether it has been stopped by a signal, or by a debugger."""
    moved_bytes: int
    """What it has read from and written to files and sockets."""
    resident_bytes: int
    worker_seconds: float
    """Processor time of the processes that it has started, such as workers of a DataLoader, with those that ended."""
    worker_bytes: int
    """Their resident memory."""
    worker_moved_bytes: int
    """What they have read from and written to files, pipes and sockets; not what they have read as mapped memory."""
    throttled_seconds: float
    """How long its control group has waited because its share of processor time was used up."""
    data_free_bytes: int | None
    """What its data segment may still grow by (RLIMIT_DATA); None without a limit."""


@dataclass(frozen=True, kw_only=True)
class MachineReading:
    """The machine and the job's control group at one moment. Times count from the start of the machine."""

    cores: int = 1
    busy_seconds: float = 0.0
    """Processor time of everything on the machine, summed over its cores."""
    stolen_seconds: float = 0.0
    """Time in which something was ready to run on a core of the job, and other virtual machines had it; summed over
    these cores."""
    wanted_seconds: float = 0.0
    """Time in which something was ready to run on a core of the job, whether it ran or not."""
    disk_waited_seconds: float = 0.0
    """Time in which at least one process of the machine waited for a disk (docs.kernel.org/accounting/psi.html); 0
    where the kernel does not count it."""
    available_bytes: int | None = None
    """Memory that programs can still get."""
    group_free_bytes: int | None = None
    """What the control groups of the job may still use; None where nothing limits them."""
    free_bytes: Mapping[str, int] = field(default_factory=dict)
    """Free space by a folder of each file system that the job uses."""
    silent_folders: Set[str] = frozenset()
    """Folders of those whose file systems do not answer."""


def workers_of(pid: int) -> tuple[int, ...]:
    """The processes that a rank has started, with theirs, and without this one: a rank may have started its sidecar.
    They are found through each thread of each process, so this takes milliseconds where there are many."""
    own = {os.getpid(), *descendants(os.getpid())}
    return tuple(islice((worker for worker in descendants(pid) if worker not in own), MAX_WORKERS))


def read_process(
    pid: int,
    workers: Sequence[int] = (),
    proc: Path = PROC,
    cgroups: Path = CGROUPS,
    threads: SteppingThreads | None = None,
) -> ProcessReading | None:
    """A process now, with the workers that it has, and the other `threads` in which it steps; None once it has
    ended."""
    try:
        folder = proc / str(pid)
        stat = (folder / "stat").read_text().rpartition(")")[2].split()
        pages = (folder / "statm").read_text().split()
    except (OSError, ValueError, IndexError):
        return None
    stepping = [*_stepping_threads(folder, stat), *(threads.times() if threads else ())]
    data = int(pages[_DATA_PAGES]) * _PAGE_BYTES
    limit = _data_limit(pid)
    return ProcessReading(
        computed_seconds=_seconds(stat[_TICKS]),
        main_computed_seconds=sum(one.computed for one in stepping),
        main_queued_seconds=sum(one.queued for one in stepping),
        blocked=stat[_STATE] == "D",
        stopped=stat[_STATE] in ("T", "t"),
        moved_bytes=_read_moved_bytes(folder),
        resident_bytes=int(pages[_RESIDENT_PAGES]) * _PAGE_BYTES,
        worker_seconds=_seconds(stat[_ENDED_TICKS]) + sum(map(_read_computed_seconds, workers)),
        worker_bytes=sum(_resident_bytes(worker) for worker in workers),
        worker_moved_bytes=sum(_read_moved_bytes(PROC / str(worker)) for worker in workers),
        throttled_seconds=max(map(_read_throttled_seconds, groups_of(pid, "cpu", proc, cgroups)), default=0.0),
        data_free_bytes=None if limit is None else max(0, limit - data),
    )


def read_machine(pid: int, cores: Collection[int], proc: Path = PROC, cgroups: Path = CGROUPS) -> MachineReading:
    """The machine without its file systems, and the control groups of a process. `cores`: those of the job."""
    lines = [line.split() for line in _text(proc / "stat").splitlines() if line.startswith("cpu")]
    seconds = {line[0]: [int(column) / _TICKS_PER_SECOND for column in line[1:]] for line in lines}
    columns = seconds.pop("cpu", [])
    of_job = [seconds[name] for core in cores if (name := f"cpu{core}") in seconds] or list(seconds.values())
    room = group_room(pid, proc, cgroups)
    available = numbers_in(proc / "meminfo").get("MemAvailable:")
    return MachineReading(
        cores=max(1, len(seconds)),
        busy_seconds=_busy_seconds(columns),
        stolen_seconds=sum(map(_stolen_seconds, of_job)),
        wanted_seconds=sum(_busy_seconds(core) + _stolen_seconds(core) for core in of_job),
        disk_waited_seconds=_read_stalled_seconds(proc / "pressure" / "io"),
        available_bytes=None if available is None else available << 10,
        group_free_bytes=room.free_bytes if room else None,
    )


def cores_of(pid: int) -> set[int]:
    """The cores on which a process may run; none once it has ended."""
    try:
        return os.sched_getaffinity(pid)
    except OSError:
        return set()


def list_used_folders(pid: int) -> Iterator[str]:
    """The current folder of a process, and the folders of the files that it has open for writing."""
    with contextlib.suppress(OSError):
        yield os.readlink(f"/proc/{pid}/cwd")  # noqa: PTH115 - as it stands, also of a folder that was deleted
    with contextlib.suppress(OSError):
        for number in os.listdir(f"/proc/{pid}/fd")[:MAX_WORKERS]:  # noqa: PTH208 - names only
            with contextlib.suppress(OSError, ValueError, IndexError):
                target = os.readlink(f"/proc/{pid}/fd/{number}")  # noqa: PTH115
                flags = int(_text(PROC / str(pid) / "fdinfo" / number).split()[3], 8)
                if target.startswith("/") and flags & os.O_ACCMODE and Path(target).is_file():
                    yield str(Path(target).parent)


def mount_point_of(folder: str) -> str:
    """Where the file system of a folder is mounted, also of a folder that is gone."""
    path = folder
    while not os.path.ismount(path) and path != os.path.dirname(path):  # noqa: PTH120 - pathlib raises for some errors
        path = os.path.dirname(path)  # noqa: PTH120
    return path


class Space(NamedTuple):
    """The free space of one file system."""

    device: int
    """Names the file system on this machine."""
    free_bytes: int


def space_of(folder: str) -> Space | None:
    """The free space of the file system of a folder; None where that is gone. A server that is away does not answer,
    and then this waits for it."""
    try:
        device, of = Path(folder).stat().st_dev, os.statvfs(folder)
    except OSError:
        return None
    return Space(device, of.f_bavail * of.f_frsize)


def _read_throttled_seconds(group: Path) -> float:
    counts = numbers_in(group / "cpu.stat")
    return counts.get("throttled_usec", 0) / 1e6 + counts.get("throttled_time", 0) / NANOSECONDS


def _read_stalled_seconds(pressure: Path) -> float:
    some = _text(pressure).partition("\n")[0].rpartition("total=")[2].strip()
    return int(some) / 1e6 if some.isdecimal() else 0.0


def _stolen_seconds(columns: Sequence[float]) -> float:
    """Time in which other virtual machines had cores, from the columns of a line of /proc/stat in seconds."""
    return columns[_STOLEN] if len(columns) > _STOLEN else 0.0


def _busy_seconds(columns: Sequence[float]) -> float:
    return sum(columns[:_STOLEN]) - columns[_IDLE] - columns[_IO_WAIT] if len(columns) > _STOLEN else 0.0


def _data_limit(pid: int) -> int | None:
    try:
        soft, _ = resource.prlimit(pid, resource.RLIMIT_DATA)
    except (OSError, ValueError):
        return None
    return None if soft == resource.RLIM_INFINITY or soft >= UNLIMITED_BYTES else soft


class SteppingThreads:
    """Threads of one process in which it steps, without its main thread, and those of its backward passes.

    What a thread has computed before its first step is no part of a step, and what one has that ended stays in the sum.
    Steps come in one thread, and times are read in another one.
    """

    def __init__(self, pid: int, proc: Path = PROC) -> None:
        self._tasks = proc / str(pid) / "task"
        self._first: dict[int, ThreadTimes] = {}
        self._newest: dict[int, ThreadTimes] = {}

    def note_step(self, thread: int) -> None:
        """A step has ended in a thread. Beyond MAX_THREADS, no new one is followed."""
        folder = self._tasks / str(thread)
        if thread in self._first or len(self._first) == MAX_THREADS or _text(folder / "comm").startswith(_AUTOGRAD):
            return
        if (times := _times_of(folder)) is not None:
            self._newest[thread] = self._first[thread] = times

    def times(self) -> list[ThreadTimes]:
        """What each of them has done since its first step."""
        found = []
        for thread, first in list(self._first.items()):
            # A thread that ends while it is read seems to have computed nothing.
            newest = max(_times_of(self._tasks / str(thread)) or first, self._newest[thread])
            self._newest[thread] = newest
            found.append(newest.since(first))
        return found


def _times_of(folder: Path) -> ThreadTimes | None:
    """The times of a thread; None once it has ended."""
    return _thread_times(folder / "schedstat", folder / "stat", ()) if _text(folder / "stat") else None


def _stepping_threads(folder: Path, stat: Sequence[str]) -> list[ThreadTimes]:
    """The times of the main thread of a process, and of the threads of its backward passes."""
    main = _thread_times(folder / "schedstat", folder / "task" / folder.name / "stat", stat)
    others = _autograd_threads(folder / "task", stat[_THREADS])
    return [main, *(_thread_times(one / "schedstat", one / "stat", ()) for one in others)]


@lru_cache(maxsize=MAX_WORKERS)
def _autograd_threads(threads: Path, _count: str) -> tuple[Path, ...]:
    """The threads of a process in which backward passes are computed. They live as long as the process, which may have
    hundreds of threads, so their names are read again only when it has got another number of threads."""
    return tuple(name.parent for name in threads.glob("*/comm") if _text(name).startswith(_AUTOGRAD))


def _thread_times(schedstat: Path, stat: Path, otherwise: Sequence[str]) -> ThreadTimes:
    """How long a thread has computed, and was queued for a core; 0 for the second where the kernel does not count."""
    if (times := parse_schedstat(_text(schedstat))) is not None and times.computed:
        return times
    own = _text(stat).rpartition(")")[2].split()
    return ThreadTimes(_seconds((own or otherwise)[_TICKS]), 0.0)


def _seconds(ticks: Iterable[str]) -> float:
    return sum(map(int, ticks)) / _TICKS_PER_SECOND


def _read_computed_seconds(pid: int) -> float:
    """Processor time of a process and of its children that have ended; 0 once it has ended itself."""
    columns = _text(PROC / str(pid) / "stat").rpartition(")")[2].split()
    return _seconds([*columns[_TICKS], *columns[_ENDED_TICKS]]) if columns else 0.0


def _read_moved_bytes(folder: Path) -> int:
    counts = numbers_in(folder / "io")
    return counts.get("rchar:", 0) + counts.get("wchar:", 0)


def _resident_bytes(pid: int) -> int:
    columns = _text(PROC / str(pid) / "statm").split()
    return int(columns[_RESIDENT_PAGES]) * _PAGE_BYTES if len(columns) > _RESIDENT_PAGES else 0


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except (OSError, ValueError):
        return ""
