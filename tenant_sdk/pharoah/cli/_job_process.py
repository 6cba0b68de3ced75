"""The process of a job: started as it would be alone, waited for, and imitated at its end."""

from __future__ import annotations

import contextlib
import os
import resource
import select
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from types import FrameType, TracebackType
from typing import Any

from pharoah.node_restrictions import Restrictions
from pharoah_protocol.job_program import given_environment
from pharoah_protocol.standard_streams import say

FORWARDED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
_ASK_TO_END = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_LONGEST_REPORT_BYTES = 4096
_LOOK_SECONDS, _LOOK_SECONDS_WITHOUT_PIDFD = 1.0, 0.05
"""How often `wait_for` looks for signals that have not ended its waiting, and for the end of a job where no descriptor
reports it: kernels before Linux 5.3, and builds of Python without `os.pidfd_open`."""


def start(command: Sequence[str], variables: Mapping[str, str], restrictions: Restrictions) -> subprocess.Popen[bytes]:
    """Start a job with further variables and under restrictions; without either where that is not possible.

    Descriptors, signals, limits and variables are otherwise what the job would find alone. Raises OSError when the
    command itself cannot be started.
    """
    plain = given_environment()
    try:
        return _start_restricted(command, {**plain, **variables, **restrictions.variables}, restrictions)
    except Exception as error:  # noqa: BLE001 - whatever it was, the command alone may work
        # `close_fds=False`: a job may have been given descriptors. Ours are not inheritable (PEP 446).
        child = subprocess.Popen(command, env=plain, close_fds=False)
        say(f"pharoah: the job was started without it: {type(error).__name__}: {error}")
        return child


def _start_restricted(
    command: Sequence[str], environ: Mapping[str, str], restrictions: Restrictions
) -> subprocess.Popen[bytes]:
    if not restrictions.outside_environment:
        return subprocess.Popen(command, env=environ, close_fds=False)
    read_end, write_end = os.pipe()

    def restrict() -> None:
        for failed in restrictions.apply():
            os.write(write_end, f"{failed} ".encode())

    try:
        # Between fork and exec, so that no process of the job is ever without its limits. At this moment this process
        # has one thread, so a function in Python may run there.
        child = subprocess.Popen(command, env=environ, close_fds=False, preexec_fn=restrict)
    except BaseException:
        os.close(read_end)
        raise
    finally:
        os.close(write_end)
    _say_what_failed(read_end)
    return child


def _say_what_failed(report: int) -> None:
    """Print which restrictions the new process could not apply. Raises nothing: the job runs already."""
    with contextlib.suppress(Exception), os.fdopen(report, "rb") as file:
        if failed := file.read(_LONGEST_REPORT_BYTES).decode().split():
            say(f"pharoah: not applied of the node's profile: {', '.join(failed)}")


class SignalForwarding:
    """While inside, signals for this process go to the job. What this process ignores, the job ignores as well."""

    def __init__(self) -> None:
        self.asked_at: float | None = None
        """Unix seconds of the first signal that asks the job to end, also where the job has it from its terminal: many
        launchers catch it, and end with an exit code that does not show it. None without one."""
        self._child: subprocess.Popen[bytes] | None = None
        self._early: list[int] = []
        """Signals that came before the job had started."""
        self._before: dict[int, Any] = {}

    def __enter__(self) -> SignalForwarding:
        for number in FORWARDED:
            with contextlib.suppress(OSError, ValueError):  # ValueError: not in the main thread
                if signal.getsignal(number) is not signal.SIG_IGN:
                    self._before[number] = signal.signal(number, self._forward)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            with contextlib.suppress(OSError, ValueError, TypeError):  # TypeError: it was not set from Python
                signal.signal(number, handler)

    def to(self, child: subprocess.Popen[bytes]) -> None:
        """The job has started."""
        self._child = child
        for number in self._early:
            self._send(number)

    def _forward(self, number: int, _: FrameType | None) -> None:
        if self.asked_at is None and number in _ASK_TO_END:
            self.asked_at = time.time()
        if self._child is None:
            self._early.append(number)
        elif not (number == signal.SIGINT and _in_foreground()):
            self._send(number)

    def _send(self, number: int) -> None:
        with contextlib.suppress(OSError):  # the job belongs to somebody else, or has ended
            if self._child is not None:
                self._child.send_signal(number)


def wait_for(child: subprocess.Popen[bytes]) -> int:
    """Wait until a job has ended. Its exit code; -n when signal n ended it.

    A signal that comes just before `waitpid` begins, or to another thread, does not end `waitpid`: it would be passed
    on when the job is over. So this waits in steps.
    """
    with contextlib.ExitStack() as stack:
        ended, seconds = select.poll(), _LOOK_SECONDS_WITHOUT_PIDFD
        with contextlib.suppress(OSError, AttributeError):
            descriptor = os.pidfd_open(child.pid)
            stack.callback(os.close, descriptor)
            ended.register(descriptor, select.POLLIN)
            seconds = _LOOK_SECONDS
        while (code := child.poll()) is None:
            ended.poll(seconds * 1000)
    return code


def die_of(number: int) -> int:
    """End this process by the signal that ended the job, as a shell does: a scheduler or a script that started us then
    sees what it would see of the job itself. Gives the exit code for a signal that does not end a process."""
    with contextlib.suppress(OSError, ValueError):
        # The job has left a core dump where one is wanted; ours would only hide it.
        resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    with contextlib.suppress(OSError, ValueError):  # SIGKILL and SIGSTOP have no handler
        signal.signal(number, signal.SIG_DFL)
    with contextlib.suppress(OSError, ValueError):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {number})
        os.kill(os.getpid(), number)
    return 128 + number


def _in_foreground() -> bool:
    """A terminal sends Ctrl-C to its whole foreground group: then the job has it already. Where standard input leads
    does not matter, so this asks the terminal of the session."""
    try:
        terminal = os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError:  # the session has no terminal
        return False
    try:
        return os.getpgrp() == os.tcgetpgrp(terminal)
    except OSError:
        return False
    finally:
        os.close(terminal)
