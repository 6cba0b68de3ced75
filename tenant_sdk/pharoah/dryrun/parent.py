"""The parent's side of a dry run: starts the child, reads what it reports, and ends it.

Fake tensors may abort a process and scripts may do anything, so whatever goes wrong in the child becomes a reason and
never an error of the job.
"""

from __future__ import annotations

import io
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from typing import BinaryIO, Protocol

from pharoah._errors import UnknownReason
from pharoah.capture.hardware import DRY_RUN_GPUS, is_part_of_a_gpu
from pharoah.cost.mitigation import Mitigation
from pharoah.dryrun.environment import child_environment, sandbox_variables
from pharoah.dryrun.late_path import start_code, with_late_path
from pharoah.dryrun.later_stages import with_later_stages
from pharoah.dryrun.report_reader import NOT_OURS, read_report
from pharoah.dryrun.reports import ReportKind
from pharoah.dryrun.result import DryRun, NextStage
from pharoah.dryrun.ways import together
from pharoah.launchers import Launch, launch_of
from pharoah_system.had_time import MAX_WALL_RATIO, LimitClock
from pharoah_system.held_folders import hold_folder
from pharoah_system.memory_group import be_killed_first, group_room
from pharoah_system.parent_process import end_with_parent

_CHILD = "pharoah.dryrun.enter"
"""Started as `__main__`."""
_MAX_REASON_CHARACTERS = 300
DRY_RUN_BYTES = 400 << 20
"""What a dry run of a small model takes of the memory of its control group, nearly all of it torch's own: 260 MB with
torch 2.13 for CPUs, 380 MB with the files that it maps (`python -m evaluation hardening --part memory_group`). Models
weigh nothing in a dry run."""
NARROW_BYTES = 64 << 20
"""Less room than this ends a dry run, which has `oom_score_adj` 1000 as well; ours."""
_SCRATCH = "pharoah-dry-run-"
"""Begins the names of folders for temporary files."""
_PART_OF_A_GPU = (
    "CUDA_VISIBLE_DEVICES names a part of a GPU (MIG), of which neither the memory nor the speed is known here; "
    "name a GPU to check for with --gpus or PHAROAH_GPUS"
)


class ChildProcess(Protocol):
    """The part of `subprocess.Popen` that a dry run needs. The child leads a process group of its own."""

    pid: int

    def wait(self) -> int:
        """Exit status, negative when a signal ended the process."""


Start = Callable[[Launch, Mapping[str, str], int, BinaryIO, float], ChildProcess]
"""Starts a child: of which program, in which environment, which file descriptor takes its report, which file its
standard error, how many seconds it has."""


def start(
    launch: Launch, environment: Mapping[str, str], report: int, errors: BinaryIO, seconds: float
) -> ChildProcess:
    """Start the child with the job's own interpreter, packages and variables: it is the job in small."""
    arguments = [str(report), launch.program.to_json(), str(seconds)]
    return subprocess.Popen(
        [launch.python, *launch.options, "-P", "-c", start_code(_CHILD), *arguments],
        env=with_late_path(environment),
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
    allow_unprotected: bool = False,
    gpus: str = "",
    gpu_driver: str = "",
    wall_seconds: float | None = None,
    start: Start = start,
) -> DryRun:
    """Dry-run the first rank of a command line that `launch_of` recognises. Raises UnknownReason.

    `nodes` and `processes` (on each node) take precedence over the numbers in the command line. With `record_code` the
    fingerprint also states which code of which packages ran, which takes longer. With a `change` the job is dry-run as
    it would be after that mitigation. `allow_unprotected` is the user's word for machines that offer no sandbox.
    `gpus` are those that the script shall see instead of this machine's, as `8x H100`, and `gpu_driver` is the driver
    that the job is checked for. `timeout_seconds` are those that the child has had (`pharoah_system.had_time`);
    `wall_seconds` ends it in any case, by default after ten times as much.
    """
    launch = launch_of(command).on(nodes, processes)
    if change and change.nodes > 1:
        launch = launch.on_more_nodes(change.nodes)
    limit, substitutes = _Limit.from_seconds(timeout_seconds, wall_seconds), list[str]()

    def attempt(stage: NextStage | None = None) -> DryRun:
        one = replace(launch, program=replace(launch.program, rank=stage.rank)) if stage else launch
        with tempfile.TemporaryFile() as errors, _scratch_folder() as folder:
            own = sandbox_variables(folder, allow_unprotected=allow_unprotected)
            environment = child_environment(
                one.environment(), own, record_code=record_code, mitigation=change, gpus=gpus,
                gpu_driver=gpu_driver, substitutes=substitutes, mail=stage.mail if stage else "",
            )  # fmt: skip
            if not environment[DRY_RUN_GPUS] and is_part_of_a_gpu(one.environment()):
                raise UnknownReason(_PART_OF_A_GPU)
            return _in_child(
                lambda report: start(one, environment, report, errors, limit.get_remaining()), limit, errors
            )

    try:
        while True:
            try:
                return with_later_stages(attempt(), attempt)
            except _MissingExtension as missing:
                if missing.name in substitutes:
                    raise
                substitutes.append(missing.name)
    except OSError as error:
        raise UnknownReason(f"the dry run could not start: {error}") from None


class _MissingExtension(UnknownReason):
    """The script needs a library of CUDA kernels that cannot be imported."""

    def __init__(self, reason: str, name: str) -> None:
        super().__init__(reason)
        self.name = name


def dry_run_step(
    step: Callable[[], object],
    timeout_seconds: float,
    *,
    wall_seconds: float | None = None,
    allow_unprotected: bool = False,
) -> DryRun:
    """Dry-run a function that does one training step, in a forked child. Raises UnknownReason."""
    limit = _Limit.from_seconds(timeout_seconds, wall_seconds)
    with _scratch_folder() as folder:
        own = sandbox_variables(folder, allow_unprotected=allow_unprotected)
        return _in_child(lambda report: _fork(step, own, report, timeout_seconds), limit, io.BytesIO())


@dataclass
class _Limit:
    """The time of one dry run with all its children."""

    seconds: float
    """What they may still have."""
    wall_deadline: float
    """On the monotonic clock."""
    over: str
    """The reason when it is reached."""

    @classmethod
    def from_seconds(cls, seconds: float, wall_seconds: float | None) -> _Limit:
        wall = MAX_WALL_RATIO * seconds if wall_seconds is None else wall_seconds
        return cls(seconds, time.monotonic() + wall, f"the dry run took longer than {round(seconds, 1) or seconds:g} s")

    def get_remaining(self) -> float:
        return max(0.0, min(self.seconds, self.wall_deadline - time.monotonic()))

    def clock(self, pid: int) -> LimitClock:
        return LimitClock(self.seconds, pid, wall_seconds=self.wall_deadline - time.monotonic())


def _check_room() -> None:
    """Raises UnknownReason where a dry run could take the memory that others of the control group need."""
    room = group_room()
    if room is not None and room.usable_bytes < DRY_RUN_BYTES:
        raise UnknownReason(
            f"{room.free_bytes >> 20} MiB of the memory group are left, and a dry run takes {DRY_RUN_BYTES >> 20} MiB"
            + (", twice as much where the kernel kills the whole group" if room.kills_all else "")
        )


def _narrow_group() -> str:
    """Why a dry run must not go on; empty when it may."""
    room = group_room()
    if room is None or room.usable_bytes >= NARROW_BYTES:
        return ""
    return f"the dry run was stopped: {room.free_bytes >> 20} MiB of the memory group are left"


@contextmanager
def _scratch_folder() -> Iterator[str]:
    """A folder for temporary files of a child that is not isolated; empty where there is none to be had. That of a dry
    run that was interrupted is deleted by the next one."""
    with ExitStack() as held:
        try:
            yield _new_folder(held)
        finally:
            try:
                held.close()
            except RecursionError:
                pass  # a script has made folders within folders, too deep to be removed


def _new_folder(held: ExitStack) -> str:
    try:
        return str(held.enter_context(hold_folder(_SCRATCH)).path)
    except OSError:
        pass
    try:  # where there are no locks, that of an interrupted dry run is left behind
        folder = tempfile.mkdtemp(prefix=_SCRATCH)
    except OSError:
        return ""
    held.callback(shutil.rmtree, folder, ignore_errors=True)
    return folder


def _fork(step: Callable[[], object], own: Mapping[str, str], report: int, seconds: float) -> ChildProcess:
    pid = os.fork()
    if pid == 0:
        try:
            os.setsid()
            os.environ.update(own)
            from pharoah.dryrun.child import run
            from pharoah.dryrun.isolation import continue_in_child

            end_with_parent()
            # gRPC's fork handlers have started its threads again in this process, and they abort one without its files.
            continue_in_child()
            run(report, lambda: step, seconds)
        finally:
            os._exit(1)  # the child must never go on with the job's own script
    return _ForkedChild(pid)


class _ForkedChild:
    def __init__(self, pid: int) -> None:
        self.pid = pid

    def wait(self) -> int:
        """The exit status; 0 when the job itself has waited for it, as `subprocess.Popen` says then."""
        try:
            return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        except ChildProcessError:
            return 0


def _in_child(start: Callable[[int], ChildProcess], limit: _Limit, errors: BinaryIO) -> DryRun:
    """`errors` holds what the interpreter printed: the child closes it as soon as it runs."""
    _check_room()
    if not limit.get_remaining():
        raise UnknownReason(limit.over)
    read_end, write_end = os.pipe()
    with os.fdopen(read_end, "rb") as results:
        try:
            process = start(write_end)
        finally:
            os.close(write_end)
        be_killed_first(process.pid)
        return _outcome(process, results.fileno(), limit, errors)


def _outcome(process: ChildProcess, results: int, limit: _Limit, errors: BinaryIO) -> DryRun:
    clock = limit.clock(process.pid)
    try:
        report = read_report(results, clock, limit.over, _narrow_group)
    finally:
        limit.seconds = clock.get_remaining()
        _kill(process.pid)
        status = process.wait()
    # A child that has reported and not ended by itself was killed by somebody else, such as the kernel.
    died = f"the dry run died ({_describe_end(status)})" if report.lines and status else ""
    unread = report.unread or died
    try:
        # When something goes wrong in the second step, the first step is still better than nothing.
        if found := together(report.lines, unread):
            return found._replace(exploring_seconds=report.exploring_seconds)
    except (ValueError, TypeError, KeyError, AttributeError):
        raise UnknownReason(NOT_OURS) from None
    # Later reasons are consequences of the first one.
    reason = next((line.content for line in report.lines if line.kind is ReportKind.REASON), "")
    if missing := next((line.content for line in report.lines if line.kind is ReportKind.MISSING), ""):
        raise _MissingExtension(reason, missing)
    raise UnknownReason(reason or unread or _reason_without_report(status, errors))


def _kill(pid: int) -> None:
    """Kill a child and its group. A forked child that hangs in a fork handler of a library leads no group yet."""
    for kill in (os.killpg, os.kill):
        with suppress(ProcessLookupError, PermissionError):
            kill(pid, signal.SIGKILL)


def _reason_without_report(status: int, errors: BinaryIO) -> str:
    """Why a child ended without a report: it died, or the command's Python cannot even start it."""
    errors.seek(0)
    lines = errors.read(1 << 16).decode(errors="replace").split("\n")
    if last := next(filter(None, map(str.strip, reversed(lines))), ""):
        return (
            "the dry run could not start; is pharoah installed for the command's Python? "
            f"It printed: {last[:_MAX_REASON_CHARACTERS]}"
        )
    return f"the dry run died without a report ({_describe_end(status)})"


def _describe_end(status: int) -> str:
    number = -status if status < 0 else status - 128
    if number in set(signal.Signals):
        return signal.Signals(number).name
    return f"exit status {status}"
