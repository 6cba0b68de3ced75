"""The dry run: one step of a script on fake tensors, in a child process that can touch nothing.

This is the parent's side; `child` is the other. Fakes may abort a process and scripts may do anything, so whatever
goes wrong in the child is a reason, never an error of the job.
"""

from __future__ import annotations

import io
import json
import os
import re
import select
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from typing import BinaryIO, NamedTuple

from pharoah._errors import UnknownReason
from pharoah._sidecar_link import DRY_RUN
from pharoah.capture.hardware import GPUS, gpu_names
from pharoah.cost.step import StepCost
from pharoah.dryrun.command_line import Launch, launch_of
from pharoah.dryrun.mitigations import CHANGE, Mitigation
from pharoah_archetypes import Fingerprint
from pharoah_archetypes.devices import device_named, devices

RECORD_CODE = "PHAROAH_DRY_RUN_CODE"
WISHED_GPUS = "PHAROAH_GPUS"
"""Environment: GPUs to check a job for instead of this machine's, `8x NVIDIA H100 80GB HBM3` or names with commas."""
_LARGEST_RESULT = 1 << 22
_OUTSIDE = {"DISPLAY", "WAYLAND_DISPLAY", "DBUS_SESSION_BUS_ADDRESS", "SSH_AUTH_SOCK", "NOTIFY_SOCKET"}
"""Variables that lead out of the fence."""


class DryRun(NamedTuple):
    """What a dry run has found out about a job."""

    fingerprint: Fingerprint
    cost: StepCost
    settings: dict[str, str]
    """What the script has set in torch and in its optimizers."""

    def to_json(self) -> str:
        return json.dumps([self.fingerprint.to_json(), self.cost.to_json(), self.settings])

    @classmethod
    def from_json(cls, text: str) -> DryRun:
        fingerprint, cost, settings = json.loads(text)
        return cls(Fingerprint.from_json(fingerprint), StepCost.from_json(cost), settings)


def dry_run(
    command: Sequence[str],
    timeout_seconds: float,
    *,
    nodes: int | None = None,
    processes: int | None = None,
    record_code: bool = False,
    change: Mitigation | None = None,
) -> DryRun:
    """Dry-run the first rank of a command line that `launch_of` can read. Raises UnknownReason.

    `nodes` and `processes` (on each node) are the world it shall run in, where the command line does not say it. With
    `record_code` the fingerprint also says which code of which packages ran; it takes longer. With a `change` the job
    is looked at as it would be.
    """
    launch = launch_of(command).on(nodes, processes)
    if change and change.nodes > 1:
        launch = launch.on(launch.nodes * change.nodes, None)
    environ = {
        **{name: value for name, value in os.environ.items() if name not in _OUTSIDE},
        **launch.environment(),
        DRY_RUN: "1",
        GPUS: ",".join(_wished_gpus(os.environ.get(WISHED_GPUS, "")) or gpu_names()),
        "CUDA_VISIBLE_DEVICES": "",
        "PYTHONDONTWRITEBYTECODE": "1",
        "OMP_NUM_THREADS": "1",
        "TORCHDYNAMO_DISABLE": "1",
        **({RECORD_CODE: "1"} if record_code else {}),
        **({CHANGE: change.to_json()} if change else {}),
    }
    try:
        with tempfile.TemporaryFile() as complaints:
            return _in_child(launch, environ, timeout_seconds, complaints)
    except OSError as error:
        raise UnknownReason(f"the dry run could not start: {error}") from None


def _in_child(launch: Launch, environ: dict[str, str], timeout_seconds: float, complaints: BinaryIO) -> DryRun:
    """`complaints` are the interpreter's: the child lets go of them as soon as it lives."""
    read_end, write_end = os.pipe()
    with os.fdopen(read_end, "rb") as results:
        try:
            child = subprocess.Popen(
                [launch.python, "-P", "-m", "pharoah.dryrun.child", str(write_end), *launch.program],
                env=environ,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=complaints,
                pass_fds=(write_end,),
                start_new_session=True,
            )
        finally:
            os.close(write_end)
        return _outcome(child, results.fileno(), timeout_seconds, complaints)


def dry_run_step(step: Callable[[], object], timeout_seconds: float) -> DryRun:
    """Dry-run a function that does one training step, in a forked child. Raises UnknownReason."""
    read_end, write_end = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.setsid()
            os.close(read_end)
            from pharoah.dryrun.child import run

            run(write_end, step)
        finally:
            os._exit(1)  # nothing may go on with the job's own script
    os.close(write_end)
    with os.fdopen(read_end, "rb") as results:
        return _outcome(_Forked(pid), results.fileno(), timeout_seconds, io.BytesIO())


class _Forked:
    """The part of Popen that `_outcome` needs, for a forked child."""

    def __init__(self, pid: int) -> None:
        self.pid = pid

    def wait(self) -> int:
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


def _wished_gpus(wish: str) -> list[str]:
    """Raises UnknownReason when the wish is no list of GPUs."""
    names: list[str] = []
    for part in filter(None, map(str.strip, wish.split(","))):
        counted = re.fullmatch(r"(\d{1,3})\s?x\s+(\S.*)|(\D.*)", part)
        if not counted:
            raise UnknownReason(f"{WISHED_GPUS}={wish}: write `8x NVIDIA H100 80GB HBM3` or names with commas between")
        name = counted[2] or counted[3]
        if device_named(name) is None:
            known = ", ".join(device.part for device in devices())
            raise UnknownReason(f"{WISHED_GPUS}={wish}: {name} is no GPU whose data sheet is known; known are {known}")
        names += [name] * int(counted[1] or 1)
    return names


def _outcome(
    child: subprocess.Popen[bytes] | _Forked, results: int, timeout_seconds: float, complaints: BinaryIO
) -> DryRun:
    try:
        lines = _read(results, time.monotonic() + timeout_seconds)
    finally:
        try:
            os.killpg(child.pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            pass
        status = child.wait()
    said: dict[str, str] = {}
    for line in lines or ():
        for kind, content in json.loads(line).items():
            said.setdefault(kind, content)  # the first reason is the reason
    # One whole step was seen, and then something went wrong on the way to the next: better than nothing.
    if found := said.get("final") or said.get("provisional"):
        return DryRun.from_json(found)
    if lines is None:
        raise UnknownReason(f"the dry run took longer than {timeout_seconds:g} s")
    raise UnknownReason(said.get("reason") or _unsaid(status, complaints))


def _unsaid(status: int, complaints: BinaryIO) -> str:
    """Why a child ended that had said nothing: it died, or the command's Python cannot even start it."""
    complaints.seek(0)
    lines = complaints.read(1 << 16).decode(errors="replace").split("\n")
    if last := next(filter(None, map(str.strip, reversed(lines))), ""):
        return f"the dry run could not start; is pharoah installed for the command's Python? It says: {last[:300]}"
    return f"the dry run died without a word ({_ended(status)})"


def _read(results: int, deadline: float) -> list[bytes] | None:
    """Whole lines until the child closes the pipe or a fingerprint came; None when time was over without a line."""
    content = b""
    while (left := deadline - time.monotonic()) > 0 and len(content) < _LARGEST_RESULT:
        if not select.select([results], [], [], left)[0]:
            break
        chunk = os.read(results, 65536)
        content += chunk
        if not chunk or (b'"final"' in content and content.endswith(b"\n")):
            return content.splitlines()
    return content[: content.rfind(b"\n") + 1].splitlines() or None


def _ended(status: int) -> str:
    number = -status if status < 0 else status - 128
    if number in set(signal.Signals):
        return signal.Signals(number).name
    return f"exit status {status}"
