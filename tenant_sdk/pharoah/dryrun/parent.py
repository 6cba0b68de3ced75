"""The parent's side of a dry run: starts the child, reads what it reports, and ends it.

Fake tensors may abort a process and scripts may do anything, so whatever goes wrong in the child becomes a reason and
never an error of the job.
"""

from __future__ import annotations

import io
import json
import os
import select
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from typing import BinaryIO, Protocol

from pharoah._errors import UnknownReason
from pharoah.cost.mitigation import Mitigation
from pharoah.dryrun.command_line import Launch, launch_of
from pharoah.dryrun.environment import child_environment
from pharoah.dryrun.result import FINAL, PROVISIONAL, REASON, DryRun

_CHILD = "pharoah.dryrun.child"
"""Started as `__main__`, so this module may import it in a forked child only."""
_LARGEST_RESULT_BYTES = 1 << 22
_LARGEST_REASON_CHARACTERS = 300


class ChildProcess(Protocol):
    """The part of `subprocess.Popen` that a dry run needs. The child leads a process group of its own."""

    pid: int

    def wait(self) -> int:
        """Exit status, negative when a signal ended the process."""


Start = Callable[[Launch, Mapping[str, str], int, BinaryIO], ChildProcess]
"""Starts a child: of which program, in which environment, which file descriptor takes its report, which file its
standard error."""


def start(launch: Launch, environment: Mapping[str, str], report: int, errors: BinaryIO) -> ChildProcess:
    """Start the child with the job's own interpreter."""
    return subprocess.Popen(
        [launch.python, *launch.options, "-P", "-m", _CHILD, str(report), launch.program.to_json()],
        env=environment,
        cwd=launch.folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=errors,
        pass_fds=(report,),
        start_new_session=True,
    )


def dry_run(
    command: Sequence[str],
    timeout_seconds: float,
    *,
    nodes: int | None = None,
    processes: int | None = None,
    record_code: bool = False,
    change: Mitigation | None = None,
    start: Start = start,
) -> DryRun:
    """Dry-run the first rank of a command line that `launch_of` recognises. Raises UnknownReason.

    `nodes` and `processes` (on each node) take precedence over the numbers in the command line. With `record_code` the
    fingerprint also states which code of which packages ran, which takes longer. With a `change` the job is dry-run as
    it would be after that mitigation.
    """
    launch = launch_of(command).on(nodes, processes)
    if change and change.nodes > 1:
        launch = launch.on_more_nodes(change.nodes)
    environment = child_environment(launch.environment(), record_code=record_code, mitigation=change)
    try:
        with tempfile.TemporaryFile() as errors:
            return _in_child(lambda report: start(launch, environment, report, errors), timeout_seconds, errors)
    except OSError as error:
        raise UnknownReason(f"the dry run could not start: {error}") from None


def dry_run_step(step: Callable[[], object], timeout_seconds: float) -> DryRun:
    """Dry-run a function that does one training step, in a forked child. Raises UnknownReason."""
    return _in_child(lambda report: _fork(step, report), timeout_seconds, io.BytesIO())


def _fork(step: Callable[[], object], report: int) -> ChildProcess:
    pid = os.fork()
    if pid == 0:
        try:
            os.setsid()
            from pharoah.dryrun.child import run

            run(report, lambda: step)
        finally:
            os._exit(1)  # the child must never go on with the job's own script
    return _ForkedChild(pid)


class _ForkedChild:
    def __init__(self, pid: int) -> None:
        self.pid = pid

    def wait(self) -> int:
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


def _in_child(start: Callable[[int], ChildProcess], timeout_seconds: float, errors: BinaryIO) -> DryRun:
    """`errors` holds what the interpreter printed: the child closes it as soon as it runs."""
    read_end, write_end = os.pipe()
    with os.fdopen(read_end, "rb") as results:
        try:
            process = start(write_end)
        finally:
            os.close(write_end)
        return _outcome(process, results.fileno(), timeout_seconds, errors)


def _outcome(process: ChildProcess, results: int, timeout_seconds: float, errors: BinaryIO) -> DryRun:
    try:
        lines = _read(results, time.monotonic() + timeout_seconds)
    finally:
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            pass
        status = process.wait()
    reported: dict[str, str] = {}
    for line in lines or ():
        for kind, content in json.loads(line).items():
            reported.setdefault(kind, content)  # later reasons are consequences of the first one
    # When something goes wrong in the second step, the first step is still better than nothing.
    if found := reported.get(FINAL) or reported.get(PROVISIONAL):
        return DryRun.from_json(found)
    if lines is None:
        raise UnknownReason(f"the dry run took longer than {timeout_seconds:g} s")
    raise UnknownReason(reported.get(REASON) or _reason_without_report(status, errors))


def _reason_without_report(status: int, errors: BinaryIO) -> str:
    """Why a child ended without a report: it died, or the command's Python cannot even start it."""
    errors.seek(0)
    lines = errors.read(1 << 16).decode(errors="replace").split("\n")
    if last := next(filter(None, map(str.strip, reversed(lines))), ""):
        return (
            "the dry run could not start; is pharoah installed for the command's Python? "
            f"It printed: {last[:_LARGEST_REASON_CHARACTERS]}"
        )
    return f"the dry run died without a report ({_ended(status)})"


def _read(results: int, deadline: float) -> list[bytes] | None:
    """Whole lines until the child closes the pipe or reports a fingerprint; None when it reports nothing in time."""
    content = b""
    while (left := deadline - time.monotonic()) > 0 and len(content) < _LARGEST_RESULT_BYTES:
        if not select.select([results], [], [], left)[0]:
            break
        chunk = os.read(results, 65536)
        content += chunk
        if not chunk or (f'"{FINAL}"'.encode() in content and content.endswith(b"\n")):
            return content.splitlines()
    return content[: content.rfind(b"\n") + 1].splitlines() or None


def _ended(status: int) -> str:
    number = -status if status < 0 else status - 128
    if number in set(signal.Signals):
        return signal.Signals(number).name
    return f"exit status {status}"
