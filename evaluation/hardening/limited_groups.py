"""Control groups with a limit of memory, made for the time of a test, and what is used in them."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from pharoah_system.memory_group import groups_of, number_in, numbers_in
from pharoah_system.process_family import lives
from pharoah_system.process_memory import own_bytes

_NAMES = iter(range(1 << 30))
LOOK_SECONDS = 0.02
NEARLY_ALL = 0.97
"""From this share on the most is held: what a job and the kernel hold changes by a few pages."""
SIDECAR = b"pharoah.sidecar"
"""In the command line of a sidecar."""


class LimitedGroup:
    """One control group, of version 1 or 2, whichever counts memory here."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.is_second_version = (folder / "memory.max").exists()

    def limit(self, limit_bytes: int, kills_all: bool = False) -> None:
        """Set the limit; swap does not help."""
        if self.is_second_version:
            (self.folder / "memory.max").write_text(str(limit_bytes))
            with contextlib.suppress(OSError):
                (self.folder / "memory.swap.max").write_text("0")
            (self.folder / "memory.oom.group").write_text(str(int(kills_all)))
            return
        (self.folder / "memory.limit_in_bytes").write_text(str(limit_bytes))
        with contextlib.suppress(OSError):
            (self.folder / "memory.memsw.limit_in_bytes").write_text(str(limit_bytes))

    def held_bytes(self) -> int:
        """What is used and cannot be taken back."""
        first = ("memory.usage_in_bytes", ("total_inactive_file", "total_active_file"))
        second = ("memory.current", ("inactive_file", "active_file", "slab_reclaimable"))
        use, caches = second if self.is_second_version else first
        counted = numbers_in(self.folder / "memory.stat")
        return (number_in(self.folder / use) or 0) - sum(counted.get(cache, 0) for cache in caches)

    def processes(self) -> list[int]:
        with contextlib.suppress(OSError):
            return [int(line) for line in (self.folder / "cgroup.procs").read_text().split()]
        return []

    def sidecar(self) -> int:
        """The process that watches the job of the group; 0 where there is none."""
        for pid in self.processes():
            with contextlib.suppress(OSError):
                if SIDECAR in Path(f"/proc/{pid}/cmdline").read_bytes().partition(b"_job_end")[0] and lives(pid):
                    return pid
        return 0


@contextlib.contextmanager
def limited_group() -> Iterator[LimitedGroup]:
    """A new group below our own, or below the root. Raises OSError where none can be made."""
    folder = _made()
    try:
        yield LimitedGroup(folder)
    finally:
        deadline = time.monotonic() + 10.0
        while time.monotonic() < deadline:
            for pid in LimitedGroup(folder).processes():
                with contextlib.suppress(OSError):
                    os.kill(pid, 9)
            with contextlib.suppress(OSError):
                folder.rmdir()
                break
            time.sleep(LOOK_SECONDS)


def _made() -> Path:
    refused: OSError | None = None
    for above in groups_of("self", "memory"):
        folder = above / f"pharoah-evaluation-{os.getpid()}-{next(_NAMES)}"
        if not ((above / "memory.limit_in_bytes").exists() or (above / "cgroup.subtree_control").exists()):
            continue
        try:
            folder.mkdir()
        except OSError as error:
            refused = error
            continue
        if (folder / "memory.max").exists() or (folder / "memory.limit_in_bytes").exists():
            return folder
        folder.rmdir()
    raise refused or FileNotFoundError("no control group here counts memory")


class Watched:
    """While inside, what is held in a group at most, and whether its sidecar was there when the most was held."""

    def __init__(self, group: LimitedGroup) -> None:
        self._group, self._over = group, threading.Event()
        self.most_bytes = 0
        self.sidecar_at_most = False
        self.sidecar_bytes = 0
        """Its own pages, at most."""
        self._thread = threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> Watched:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._over.wait(LOOK_SECONDS):
            held = self._group.held_bytes()
            sidecar = self._group.sidecar()
            self.sidecar_bytes = max(self.sidecar_bytes, own_bytes(sidecar) if sidecar else 0)
            if held > NEARLY_ALL * self.most_bytes:
                self.most_bytes, self.sidecar_at_most = max(held, self.most_bytes), bool(sidecar)
