"""The process of a job: started as it would be alone, waited for, and imitated at its end."""

from __future__ import annotations

import contextlib
import errno
import os
import resource
import select
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from types import FrameType, TracebackType
from typing import Any

from pharoah.node_restrictions import Restrictions
from pharoah_protocol.job_program import by_shell, read_given_environment
from pharoah_system.own_python import own_environment
from pharoah_system.standard_streams import say
from pharoah_system.waiting import become_waiter, block

_NAMES = ("TERM", "INT", "HUP", "QUIT", "USR1", "USR2", "ALRM", "VTALRM", "PROF", "XCPU", "IO", "PWR")
FORWARDED = (
    *(getattr(signal, f"SIG{name}") for name in _NAMES if hasattr(signal, f"SIG{name}")),
    *range(signal.SIGRTMIN, signal.SIGRTMAX + 1),
)
"""Signals that end a process by default and can be sent to one: schedulers announce their limits by any of them. Not
among them are those of faults, and SIGPIPE, which Python ignores."""
_OF_TERMINAL = (signal.SIGINT, signal.SIGQUIT)
"""A terminal sends these to its whole foreground group."""
_ASK_TO_END = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_MAX_REPORT_BYTES = 4096
_LOOK_SECONDS, _LOOK_SECONDS_WITHOUT_PIDFD = 1.0, 0.05
"""How often `wait_for` looks for signals that have not ended its waiting, and for the end of a job where no descriptor
reports it: kernels before Linux 5.3, and builds of Python without `os.pidfd_open`."""


def start(command: Sequence[str], variables: Mapping[str, str], restrictions: Restrictions) -> subprocess.Popen[bytes]:
    """Start a job with further variables and under restrictions; without either where that is not possible.

    Descriptors, signals, limits and variables are otherwise what the job would find alone. Raises OSError when the
    command itself cannot be started.
    """
    plain = read_given_environment()
    try:
        return _start(command, plain, variables, restrictions)
    except OSError as error:
        if error.errno != errno.ENOEXEC:
            raise
        return _start(by_shell(command, plain), plain, variables, restrictions)


def _start(
    command: Sequence[str], plain: Mapping[str, str], variables: Mapping[str, str], restrictions: Restrictions
) -> subprocess.Popen[bytes]:
    try:
        return _start_restricted(command, {**plain, **variables, **restrictions.variables}, restrictions)
    except Exception as error:  # noqa: BLE001 - whatever it was, the command alone may work
        child = _popen(command, plain)
        say(f"pharoah: the job was started without it: {type(error).__name__}: {error}")
        return child


def _popen(
    command: Sequence[str], environ: Mapping[str, str], prepare: Callable[[], None] | None = None
) -> subprocess.Popen[bytes]:
    """Start a process; `prepare` is called in it before its program begins."""
    steps = [step for step in (prepare, _ignore_children if _ignored_children else None) if step is not None]

    def before_program() -> None:
        for step in steps:
            step()

    # `close_fds=False`: a job may have been given descriptors. Ours are not inheritable (PEP 446).
    return subprocess.Popen(command, env=environ, close_fds=False, preexec_fn=before_program if steps else None)


_ignored_children = False
"""Whether this process was started with SIGCHLD ignored."""


def notice_children() -> None:
    """Let the kernel keep how children end, as it does by default. Who has started us may have ignored SIGCHLD, which
    is passed on to programs: then nobody could know how the job has ended. The job itself finds it ignored."""
    global _ignored_children
    if signal.getsignal(signal.SIGCHLD) is signal.SIG_IGN:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        _ignored_children = True


def _ignore_children() -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)


def _start_restricted(
    command: Sequence[str], environ: Mapping[str, str], restrictions: Restrictions
) -> subprocess.Popen[bytes]:
    if not restrictions.outside_environment:
        return _popen(command, environ)
    read_end, write_end = os.pipe()

    def restrict() -> None:
        for failed in restrictions.apply():
            os.write(write_end, f"{failed} ".encode())

    try:
        # Between fork and exec, so that no process of the job is ever without its limits. At this moment this process
        # has one thread, so a function in Python may run there.
        child = _popen(command, environ, restrict)
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
        if failed := file.read(_MAX_REPORT_BYTES).decode().split():
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

    @property
    def numbers(self) -> Sequence[int]:
        """The signals that are passed on."""
        return list(self._before)

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
        elif not (number in _OF_TERMINAL and _in_foreground()):
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


def wait_small(child: subprocess.Popen[bytes], signals: SignalForwarding, command_at_end: Sequence[str]) -> None:
    """Become a small process that waits for a job and then becomes another command (`become_waiter`). Returns only
    where that cannot be done; then signals are passed on as before."""
    passed_on = signals.numbers
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [])
    block(passed_on)
    asked = 0 if signals.asked_at is None else int(signals.asked_at * 1e9)
    become_waiter(child.pid, passed_on, asked, command_at_end, own_environment(os.environ))
    signal.pthread_sigmask(signal.SIG_SETMASK, before)


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
