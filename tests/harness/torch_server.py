"""A process that has imported torch, and forks a fresh process for every job: most of a dry run is the import of torch.

The children run the product's own code (`pharoah.dryrun.child`). Nothing has been computed in the server, so that a
child starts like an interpreter that has imported torch and nothing else.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO

from pharoah.dryrun import parent
from pharoah.launchers import Launch
from pharoah_system.parent_process import end_with_parent

_MAX_REQUEST_BYTES = 1 << 18
_ENVIRONMENT = {"OMP_NUM_THREADS": "1", "TORCHDYNAMO_DISABLE": "1", "CUDA_VISIBLE_DEVICES": ""}
"""What torch reads when it is imported, as a dry run sets it."""


class TorchServer:
    """The client's side. Leave the `with` block to end the server."""

    def __init__(self, environment: Mapping[str, str] | None = None) -> None:
        """`environment` adds variables that only a new process reads, such as those of the C library."""
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", __name__, str(theirs.fileno())],
                cwd=Path(__file__).parents[2],
                env={**os.environ, **_ENVIRONMENT, **(environment or {})},
                pass_fds=(theirs.fileno(),),
            )

    def __enter__(self) -> TorchServer:
        return self

    def __exit__(self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None) -> None:
        self._socket.close()  # the server ends when nobody can ask it any more
        self._process.wait()

    def start(
        self, launch: Launch, environment: Mapping[str, str], report: int, errors: BinaryIO, seconds: float
    ) -> parent.ChildProcess:
        """Start the child of a dry run; what the server's interpreter cannot be is started as a process of its own."""
        if launch.python != sys.executable or launch.options:
            return parent.start(launch, environment, report, errors, seconds)
        request = {
            "program": launch.program.to_json(),
            "environment": dict(environment),
            "folder": launch.folder,
            "seconds": seconds,
        }
        return self._fork(request, [report, errors.fileno()])

    def run_code(self, code: str, *arguments: str, environment: Mapping[str, str] | None = None) -> bytes:
        """What a script prints. Raises CalledProcessError when it fails."""
        request = {"code": code, "arguments": arguments, "environment": {**os.environ, **(environment or {})}}
        with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
            status = self._fork(request, [output.fileno(), errors.fileno()]).wait()
            output.seek(0)
            errors.seek(0)
            if status:
                failed = subprocess.CalledProcessError(status, list(arguments), output.read(), errors.read())
                failed.add_note(failed.stderr.decode(errors="replace"))
                raise failed
            return output.read()

    def _fork(self, request: Mapping[str, Any], files: Sequence[int]) -> _Child:
        content = json.dumps({"folder": None, **request, "cwd": str(Path.cwd())}).encode()
        socket.send_fds(self._socket, [content], files)
        return _Child(self._socket, int(self._socket.recv(64)))


class _Child:
    def __init__(self, server: socket.socket, pid: int) -> None:
        self._server = server
        self.pid = pid

    def wait(self) -> int:
        self._server.send(json.dumps({"wait": self.pid}).encode())
        return int(self._server.recv(64))


def _serve(requests: socket.socket) -> None:
    while True:
        content, files, _, _ = socket.recv_fds(requests, _MAX_REQUEST_BYTES, 2)
        if not content:
            return
        request = json.loads(content)
        if "wait" in request:
            requests.send(str(os.waitstatus_to_exitcode(os.waitpid(request["wait"], 0)[1])).encode())
            continue
        pid = os.fork()
        if pid == 0:
            try:
                requests.close()
                _run(request, *files)
            finally:
                os._exit(1)
        for file in files:
            os.close(file)
        requests.send(str(pid).encode())


def _run(request: dict[str, Any], output: int, errors: int) -> None:
    """Run a job in a forked child. Never returns."""
    from pharoah.dryrun import child
    from pharoah.launchers import Program

    os.setsid()
    os.environ.clear()
    os.environ.update(request["environment"])
    os.chdir(request["folder"] or request["cwd"])
    os.dup2(errors, 2)
    if "program" in request:
        child.run(output, child.prepare_child(Program.from_json(request["program"])), request["seconds"])
    os.dup2(output, 1)
    end_with_parent()
    sys.argv = ["-c", *request["arguments"]]
    sys.path.insert(0, "")
    status = 0
    try:
        exec(compile(request["code"], "<string>", "exec"), {"__name__": "__main__"})
    except BaseException:  # printed, as the interpreter does it
        sys.excepthook(*sys.exc_info())
        status = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def main() -> None:
    import torch
    import torch._dynamo  # every script imports it with its first optimizer

    torch.set_num_threads(1)
    del sys.path[0]  # this repository: a script sees its own folder and the installed packages
    with socket.socket(fileno=int(sys.argv[1])) as requests:
        _serve(requests)


if __name__ == "__main__":
    main()
