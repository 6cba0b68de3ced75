"""Starting a sidecar: always by exec, never by a fork of the job, one per node and job."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import select
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Protocol

from pharoah._guard import DEBUG
from pharoah._rank_identity import job_key
from pharoah._runtime_folder import PREFIX, lock, own_folder, socket_bases
from pharoah._settings import Settings
from pharoah._sidecar_link import connect
from pharoah_system.memory_group import be_killed_first, group_room
from pharoah_system.own_python import own_environment, own_module

START_SECONDS = 10.0
"""How long a sidecar may take to listen. It takes half a second on an idle machine."""
_LOCK_SECONDS = START_SECONDS + 2.0
"""How long another local rank may take to start the sidecar that this one waits for."""
_TRIAL_SECONDS = 2.0
"""How long a connection may take that only shows whether somebody listens."""
_KILLED_SECONDS = 1.0
"""How long a killed process may take to end; only one that hangs in the kernel takes longer."""
SIDECAR_BYTES = 80 << 20
"""What must be free in the control group for a sidecar to start: what it takes, with what the kernel keeps for it (28
MiB of its own when it begins to listen, 40 MiB with a connection to a provider, as `python -m evaluation hardening
--part memory_group` measures), and what it leaves free (`sidecar.memory_watch.MARGIN_BYTES`)."""
_SOCKET = "sidecar.sock"
_OTHER_NAMES = 8
"""Names that are tried where somebody else has taken the first one."""
_SIDECAR, _DETACHED = "pharoah.sidecar", "pharoah._detached"
"""Modules that are run."""


class NoRoomError(OSError):
    """The control group of the job has no memory for a sidecar."""


class StartedSidecar(Protocol):
    """What shows whether a sidecar has ended, as `subprocess.Popen` does."""

    def poll(self) -> int | None:
        """The exit status of a sidecar that has ended."""


def start_sidecar(
    path: Path, settings: Settings, run_id: str = "", words: int | None = None
) -> subprocess.Popen[bytes]:
    """Start a sidecar that will listen on `path`. It ends by itself when its last rank has gone.

    Its current folder is that of its socket, so nothing beside the job is imported, and paths of settings are absolute.
    `words` is a descriptor on which it says what changes while the job runs. Raises OSError, also NoRoomError.
    """
    arguments = _arguments(path, settings, run_id)
    if words is None:
        return _start(path.parent, own_module(_SIDECAR, *arguments))
    return _start(path.parent, own_module(_SIDECAR, *arguments, str(words)), inherited=(words,))


@contextlib.contextmanager
def start_detached_sidecar(path: Path, settings: Settings) -> Iterator[StartedSidecar]:
    """Start one that is no child of this process: a job may wait for all of its children, or end them, as it trains.

    Inside, the end of the sidecar can be seen. Raises OSError.
    """
    ours, its = os.pipe()
    try:
        try:
            command = own_module(_DETACHED, _SIDECAR, *_arguments(path, settings))
            launcher = _start(path.parent, command, inherited=(its,))
        finally:
            os.close(its)
        try:
            yield _Detached(launcher, ours)
        finally:
            launcher.kill()  # it has ended; or it has not come to its fork in time, and must not do it any more
            with contextlib.suppress(subprocess.TimeoutExpired):
                launcher.wait(_KILLED_SECONDS)
    finally:
        os.close(ours)


class _Detached:
    """A sidecar that another process has forked. It keeps one side of a pipe open for as long as it lives."""

    def __init__(self, launcher: subprocess.Popen[bytes], pipe: int) -> None:
        self._launcher, self._closed = launcher, select.poll()
        self._closed.register(pipe, 0)  # the end of the other side is reported in any case (poll(2))

    def poll(self) -> int | None:
        """None while the sidecar lives, or is still to come. Raises ChildProcessError when it has ended."""
        if status := self._launcher.poll():
            return status
        if self._closed.poll(0):
            raise ChildProcessError(f"the sidecar ended before it listened; {DEBUG}=1 prints why")
        return None


def _arguments(path: Path, settings: Settings, run_id: str = "") -> list[str]:
    return [str(path), json.dumps(asdict(settings.with_absolute_paths())), run_id]


def _start(folder: Path, command: Sequence[str], inherited: Sequence[int] = ()) -> subprocess.Popen[bytes]:
    room = group_room()
    if room is not None and room.usable_bytes < SIDECAR_BYTES:
        raise NoRoomError(
            f"{room.free_bytes >> 20} MiB of the memory group are left, and watching takes {SIDECAR_BYTES >> 20} MiB"
            + (" (twice as much where the kernel kills the whole group)" if room.kills_all else "")
        )
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=None if os.environ.get(DEBUG) else subprocess.DEVNULL,
        env=own_environment(os.environ),
        cwd=folder,
        pass_fds=inherited,
        start_new_session=True,  # a Ctrl-C for the job must not cut its last report
    )
    be_killed_first(process.pid)
    return process


def wait_for(path: Path, process: StartedSidecar, timeout_seconds: float) -> None:
    """Wait until a sidecar listens. Raises TimeoutError when it does not, and ChildProcessError when it has ended."""
    deadline = time.monotonic() + timeout_seconds
    while not path.exists():
        if (status := process.poll()) is not None:
            raise ChildProcessError(f"the sidecar ended with status {status}; PHAROAH_DEBUG=1 prints why")
        if time.monotonic() > deadline:
            raise TimeoutError(f"no sidecar within {timeout_seconds:g} s")
        time.sleep(0.01)


def sidecar_of_this_node(settings: Settings) -> str:
    """Path of the sidecar that serves this job here; started by whichever local rank comes first. Raises OSError."""
    refused: OSError | None = None
    for folder in _folders_of_this_job():
        try:
            own_folder(folder)
            return _sidecar_in(folder, settings)
        except (TimeoutError, ChildProcessError, NoRoomError):  # another folder would not help
            raise
        except OSError as error:  # somebody else has prepared this name, or nothing can be made or locked there
            refused = error
    raise refused or FileNotFoundError("no folder for sockets")


def _sidecar_in(folder: Path, settings: Settings) -> str:
    """Path of the sidecar in a folder; started if none listens. Raises OSError."""
    path = folder / _SOCKET
    with lock(folder, _LOCK_SECONDS):
        if not _listens(path):
            path.unlink(missing_ok=True)  # of a sidecar that was killed
            with start_detached_sidecar(path, settings) as sidecar:
                wait_for(path, sidecar, START_SECONDS)
    return str(path)


def _folders_of_this_job() -> list[Path]:
    """Folders that all ranks of this job here try in the same order."""
    keys = [f"{job_key()}/{number}" if number else job_key() for number in range(_OTHER_NAMES)]
    names = [f"{PREFIX}{hashlib.sha256(key.encode()).hexdigest()[:16]}" for key in keys]
    return [base / name for base in socket_bases() for name in names]


def _listens(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as trial:
        try:
            connect(trial, str(path), _TRIAL_SECONDS)
        except (FileNotFoundError, ConnectionRefusedError):
            return False
    return True
