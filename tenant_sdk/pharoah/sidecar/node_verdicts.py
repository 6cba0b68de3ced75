"""What the nodes of one job were answered: each node asks for itself, and the first node compares the verdicts.

Nodes do not talk to each other for Pharoah, and the provider does not carry this. Each sidecar writes its verdict into
a folder of this user, which nodes share where they share a home (or `PHAROAH_STATE_DIR`). Where they do not, every node
knows its own verdict, and no more.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import shutil
import socket
import time
from collections.abc import Callable
from pathlib import Path

from pharoah._settings import Settings
from pharoah._verdict import Finding, Verdict
from pharoah.sidecar.evidence import exchange_folder
from pharoah.sidecar.job_identity import JobIdentity
from pharoah.sidecar.node_comparison import NodeVerdict, compare, node_verdict
from pharoah_protocol.typed_json import FieldError, read_object, to_json
from pharoah_protocol.vocabulary import VerdictStatus
from pharoah_system.bounded_reading import parse_json
from pharoah_system.files import write_atomically
from pharoah_system.trusted_paths import UntrustedPathError, find_folder, make_folder, open_unshared

log = logging.getLogger("pharoah.sidecar")

FIRST_LOOK_SECONDS, MAX_LOOK_SECONDS = 2.0, 60.0
"""The folder is looked at this often: at first, and when nothing has changed for some minutes."""
_SLOWER = 1.3
"""Each look that shows nothing new comes so much later than the one before."""
SETTLED_LOOKS = 4
"""Looks without a change after which nodes are compared although some have not written: 12 s."""
SAME_JOB_SECONDS = 600.0
"""A file that is so much older than that of this node is of an earlier job with the same rendezvous."""
KEPT_SECONDS = 86400.0
"""A folder that its job has left behind is deleted after a day."""
MAX_BYTES = 16384
"""A file has no more; ours have less than 2,000 bytes."""


class NodeVerdicts:
    """Owns one task between `share` and `stop`; does nothing for a job on one node."""

    def __init__(
        self,
        job: JobIdentity,
        settings: Settings,
        verdict: Callable[[], Verdict],
        found: Callable[[Finding], None],
    ) -> None:
        """`verdict` gives that of this node, and `found` gets what a comparison of all nodes shows."""
        folder = exchange_folder(settings) if job.job_id else None
        self._folder = folder and folder / "nodes" / job.job_id.hex()
        self._job = job
        self._verdict, self._found = verdict, found
        self._patience = settings.shutdown_timeout_seconds / 2
        self._written: VerdictStatus | None = None
        self._seen: dict[int, tuple[int, NodeVerdict | None]] = {}
        """Numbers of nodes to the time of their file in nanoseconds, and what it holds; None for no verdict."""
        self._task: asyncio.Task[None] | None = None

    def share(self) -> None:
        """Begin, if it has not begun."""
        if self._folder is not None and self._task is None:
            self._task = asyncio.create_task(self._run(self._folder))

    async def stop(self) -> None:
        """The job has ended. Its first node deletes what all have written."""
        if self._task is None or self._folder is None:
            return
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        if self._job.node == 0:
            cleaning = asyncio.create_task(asyncio.to_thread(_delete, self._folder))
            await asyncio.wait([cleaning], timeout=self._patience)

    async def _run(self, folder: Path) -> None:
        await asyncio.to_thread(_delete_old, folder.parent)
        pause, unchanged, last = FIRST_LOOK_SECONDS, 0, None
        while True:
            wrote = await asyncio.to_thread(self._write, folder, self._verdict())
            changed = self._job.node == 0 and await asyncio.to_thread(self._read, folder)
            unchanged = 0 if changed else unchanged + 1
            pause = FIRST_LOOK_SECONDS if wrote or changed else min(_SLOWER * pause, MAX_LOOK_SECONDS)
            verdicts = {number: seen for number, (_, seen) in self._seen.items() if seen is not None}
            if len(verdicts) == self._job.nodes or unchanged >= SETTLED_LOOKS:
                finding = compare(verdicts, self._job.nodes)
                if finding is not None and finding != last:
                    self._found(finding)
                    last = finding
            await asyncio.sleep(pause)

    def _write(self, folder: Path, verdict: Verdict) -> bool:
        """Write this node's verdict when its status is new; whether it was written."""
        if verdict.status in (VerdictStatus.PENDING, self._written):
            return False
        own = node_verdict(socket.gethostname(), verdict)
        try:
            make_folder(folder)
            write_atomically(folder / f"{self._job.node}.json", to_json(own))
        except OSError as error:
            log.info("the other nodes do not learn this node's verdict yet: %s", error)
            return False
        self._written = verdict.status
        return True

    def _read(self, folder: Path) -> bool:
        """Read what is new; whether something was."""
        before = dict(self._seen)
        with contextlib.suppress(OSError), os.scandir(find_folder(folder)) as entries:
            files = {entry.name: entry.stat().st_mtime_ns for entry in entries}
            own = files.get(f"{self._job.node}.json", 0)
            for number in range(self._job.nodes):
                at = files.get(f"{number}.json", 0)
                if own and at > own - 1e9 * SAME_JOB_SECONDS and self._seen.get(number, (0, None))[0] != at:
                    self._seen[number] = (at, _read_one(folder / f"{number}.json"))
        return self._seen != before


def _read_one(path: Path) -> NodeVerdict | None:
    """None for a file that does not hold a verdict: a later release may write others."""
    try:
        with open_unshared(path) as file:
            data = parse_json(file.read(MAX_BYTES), path.name)
        return read_object(NodeVerdict, data, path.name, drop_unknown=True)
    except (OSError, FieldError, UntrustedPathError, ValueError) as error:
        log.info("%s: %s", path, error)
        return None


def _delete(folder: Path) -> None:
    """A folder that others can change stays: what it holds may be something else of ours, by their link."""
    with contextlib.suppress(OSError):
        shutil.rmtree(find_folder(folder), ignore_errors=True)


def _delete_old(folder: Path) -> None:
    with contextlib.suppress(OSError):
        for job in find_folder(folder).iterdir():
            if job.stat().st_mtime < time.time() - KEPT_SECONDS:
                shutil.rmtree(job, ignore_errors=True)
