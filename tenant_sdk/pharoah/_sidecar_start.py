"""Starting a sidecar: always by exec, never by fork, one per node and job."""

from __future__ import annotations

import atexit
import hashlib
import json
import os
import socket
import subprocess
import time
from dataclasses import asdict
from pathlib import Path

from pharoah._guard import DEBUG
from pharoah._rank_identity import job_key
from pharoah._runtime_folder import PREFIX, locked, own_folder, socket_bases
from pharoah._settings import Settings
from pharoah_protocol.own_python import own_environment, own_module

START_SECONDS = 10.0
"""How long a sidecar may take to listen. It takes half a second on an idle machine."""
_LOCK_SECONDS = START_SECONDS + 2.0
"""How long another local rank may take to start the sidecar that this one waits for."""
_TRIAL_SECONDS = 2.0
"""How long a connection may take that only shows whether somebody listens."""
_SOCKET = "sidecar.sock"
_OTHER_NAMES = 8
"""Names that are tried where somebody else has taken the first one."""


_outliving: list[subprocess.Popen[bytes]] = []
"""Sidecars that this process has started and that may outlive it."""


@atexit.register
def _let_go() -> None:
    """At the end of this process: keep Python from printing the warning that a process of ours still runs."""
    for process in _outliving:
        if process.poll() is None:
            process.returncode = 0


def start_sidecar(path: Path, settings: Settings, run_id: str = "") -> subprocess.Popen[bytes]:
    """Start a sidecar that will listen on `path`. It ends by itself when its last rank has gone.

    Its current folder is that of its socket, so nothing beside the job is imported, and paths of settings are absolute.
    """
    return subprocess.Popen(
        own_module("pharoah.sidecar", str(path), json.dumps(asdict(settings.with_absolute_paths())), run_id),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=None if os.environ.get(DEBUG) else subprocess.DEVNULL,
        env=own_environment(os.environ),
        cwd=path.parent,
        start_new_session=True,  # a Ctrl-C for the job must not cut its last report
    )


def wait_for(path: Path, process: subprocess.Popen[bytes], timeout_seconds: float) -> None:
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
        except OSError as error:  # somebody else has prepared this name, or nothing can be made there
            refused = error
            continue
        path = folder / _SOCKET
        with locked(folder, _LOCK_SECONDS):
            if not _listens(path):
                path.unlink(missing_ok=True)  # of a sidecar that was killed
                process = start_sidecar(path, settings)
                wait_for(path, process, START_SECONDS)
                _outliving.append(process)
        return str(path)
    raise refused or FileNotFoundError("no folder for sockets")


def _folders_of_this_job() -> list[Path]:
    """Folders that all ranks of this job here try in the same order."""
    keys = [f"{job_key()}/{number}" if number else job_key() for number in range(_OTHER_NAMES)]
    names = [f"{PREFIX}{hashlib.sha256(key.encode()).hexdigest()[:16]}" for key in keys]
    return [base / name for base in socket_bases() for name in names]


def _listens(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as trial:
        trial.settimeout(_TRIAL_SECONDS)
        try:
            trial.connect(str(path))
        except (FileNotFoundError, ConnectionRefusedError):
            return False
    return True
