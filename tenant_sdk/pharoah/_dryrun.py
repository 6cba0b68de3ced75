"""The dry run: one step of a script on fake tensors, in a child process that can touch nothing.

`fingerprint_command` is the parent's side; running this module is the child's. Fakes may abort a process and scripts
may do anything, so whatever goes wrong in the child is a reason, never an error of the job.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from pharoah._errors import UnknownReason
from pharoah._link import DRY_RUN
from pharoah_archetypes import Fingerprint

_LARGEST_RESULT = 1 << 22


def fingerprint_command(command: Sequence[str], timeout_seconds: float) -> Fingerprint:
    """Dry-run a Python command line (`python [-m module | script.py] args`). Raises UnknownReason."""
    program = _python_program(command)
    environ = {
        **os.environ,
        DRY_RUN: "1",
        "CUDA_VISIBLE_DEVICES": "",
        "PYTHONDONTWRITEBYTECODE": "1",
        "OMP_NUM_THREADS": "1",
    }
    read_end, write_end = os.pipe()
    try:
        child = subprocess.Popen(
            [command[0], "-m", "pharoah._dryrun", str(write_end), *program],
            env=environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=(write_end,),
            start_new_session=True,
        )
    except OSError as error:
        os.close(read_end)
        raise UnknownReason(f"the dry run could not start: {error}") from None
    finally:
        os.close(write_end)
    with os.fdopen(read_end, "rb") as results:
        return _outcome(child, results.fileno(), timeout_seconds)


def fingerprint_step(step: Callable[[], object], timeout_seconds: float) -> Fingerprint:
    """Dry-run a function that does one training step, in a forked child. Raises UnknownReason."""
    read_end, write_end = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.setsid()
        os.close(read_end)
        _child(write_end, step)
    os.close(write_end)
    with os.fdopen(read_end, "rb") as results:
        return _outcome(_Forked(pid), results.fileno(), timeout_seconds)


class _Forked:
    """The part of Popen that `_outcome` needs, for a forked child."""

    def __init__(self, pid: int) -> None:
        self.pid = pid

    def wait(self) -> int:
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


def _python_program(command: Sequence[str]) -> list[str]:
    """`script.py args` or `-m module args`. Raises UnknownReason for anything else."""
    if not command or "python" not in Path(command[0]).name:
        raise UnknownReason("the command is not `python script.py ...`: nothing to dry-run")
    program = list(command[1:])
    while program and program[0] in ("-u", "-O", "-B", "-E", "-s"):
        program.pop(0)
    if not program or (program[0].startswith("-") and program[0] != "-m"):
        raise UnknownReason(f"cannot dry-run `{' '.join(command[:3])} ...`: no script or module in it")
    return program


def _outcome(child: subprocess.Popen[bytes] | _Forked, results: int, timeout_seconds: float) -> Fingerprint:
    lines = _read(results, time.monotonic() + timeout_seconds)
    try:
        os.killpg(child.pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        pass
    status = child.wait()
    if lines is None:
        raise UnknownReason(f"the dry run took longer than {timeout_seconds:g} s")
    if not lines:
        raise UnknownReason(f"the dry run died without a word (exit status {status})")
    result = json.loads(lines[0])  # a side effect is said when it is tried, so it comes before anything else
    if "reason" in result:
        raise UnknownReason(str(result["reason"]))
    return Fingerprint.from_json(result["fingerprint"])


def _read(results: int, deadline: float) -> list[bytes] | None:
    """Lines until the child closes the pipe, a fingerprint came, or None when the time is over."""
    content = b""
    while (left := deadline - time.monotonic()) > 0 and len(content) < _LARGEST_RESULT:
        if not select.select([results], [], [], left)[0]:
            break
        chunk = os.read(results, 65536)
        content += chunk
        if not chunk or (b'"fingerprint"' in content and content.endswith(b"\n")):
            return content.splitlines()
    return content.splitlines() or None


# ---- the child ----


def _child(results: int, program: Callable[[], object]) -> None:
    """Run under fake tensors until the first optimizer step; say one line about it; never return."""

    def say(**message: str) -> None:
        os.write(results, json.dumps(message).encode() + b"\n")

    try:
        from pharoah._fake import Finished, fake_step
        from pharoah._sandbox import SideEffect, seal

        try:
            with fake_step():
                seal(lambda what: say(reason=f"side effect before the first step: {what}"))
                program()
            say(reason="the script ended before an optimizer stepped")
        except Finished as finished:
            say(fingerprint=finished.fingerprint.to_json())
        except SideEffect:
            pass  # said when it was tried
        except SystemExit as exit_:
            say(reason=f"the script exited with {exit_.code} before an optimizer stepped")
    except BaseException as fault:  # noqa: BLE001 - the child's last line
        say(reason=f"{type(fault).__name__}: {str(fault).strip().partition(chr(10))[0][:300]}")
    os._exit(0)


def _script(program: Sequence[str]) -> Callable[[], object]:
    import runpy

    if program[0] == "-m":
        sys.argv = list(program[1:])
        sys.path[0] = str(Path.cwd())
        return lambda: runpy.run_module(program[1], run_name="__main__", alter_sys=True)
    sys.argv = list(program)
    sys.path[0] = str(Path(program[0]).resolve().parent)
    return lambda: runpy.run_path(program[0], run_name="__main__")


if __name__ == "__main__":
    _child(int(sys.argv[1]), _script(sys.argv[2:]))
