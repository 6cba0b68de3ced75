"""A limit that the kernel keeps on how many threads a cell and all that it starts can be.

Other users than root have RLIMIT_NPROC, which the kernel does not apply to root (getrlimit(2)). Root has the control
group `pids` (docs.kernel.org/admin-guide/cgroup-v2.html), where the group of this process may have one below it. Where
neither holds, a cell is bounded by what `forked` sees of it.
"""

from __future__ import annotations

import contextlib
import os
import resource
from collections.abc import Iterator
from pathlib import Path

_PREFIX = "pharoah-cell-"
_MOUNTS, _OWN = Path("/proc/self/mountinfo"), Path("/proc/self/cgroup")


@contextlib.contextmanager
def make_limited_group(most_threads: int) -> Iterator[Path | None]:
    """A control group with the limit, for the child that calls `enter`; None where there cannot be one."""
    group = _make(most_threads)
    try:
        yield group
    finally:
        if group is not None:
            with contextlib.suppress(OSError):
                group.rmdir()


def enter(group: Path | None, most_threads: int) -> None:
    """Limit the calling process and all that it starts, as far as the kernel allows it."""
    if group is not None:
        with contextlib.suppress(OSError):
            (group / "cgroup.procs").write_text("0")
    _, hard = resource.getrlimit(resource.RLIMIT_NPROC)
    most = _threads_of_user() + most_threads  # it counts the threads of all processes of the user
    most = most if hard == resource.RLIM_INFINITY else min(most, hard)
    resource.setrlimit(resource.RLIMIT_NPROC, (most, most))


def _make(most_threads: int) -> Path | None:
    own = _own_group()
    if own is None:
        return None
    for abandoned in own.glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError):
            abandoned.rmdir()  # fails for one with processes in it
    group = own / f"{_PREFIX}{os.getpid()}"
    try:
        group.mkdir()
        (group / "pids.max").write_text(str(most_threads))
    except OSError:
        with contextlib.suppress(OSError):
            group.rmdir()
        return None
    return group


def _own_group() -> Path | None:
    """The group of this process in the hierarchy that counts processes (cgroups(7))."""
    with contextlib.suppress(OSError, ValueError, StopIteration):
        groups = [line.split(":", 2) for line in _OWN.read_text().splitlines()]
        first = [path for _, controllers, path in groups if "pids" in controllers.split(",")]
        kind = "cgroup" if first else "cgroup2"
        path = first[0] if first else next(path for number, _, path in groups if number == "0")
        for line in _MOUNTS.read_text().splitlines():
            mount, _, rest = line.partition(" - ")
            options = rest.split()[2].split(",")
            if rest.split()[0] == kind and (not first or "pids" in options):
                return Path(mount.split()[4]) / path.lstrip("/")
    return None


def _threads_of_user() -> int:
    found = 0
    for process in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if process.name.isdecimal() and process.stat().st_uid == os.getuid():
                found += sum(1 for _ in (process / "task").iterdir())
    return found
