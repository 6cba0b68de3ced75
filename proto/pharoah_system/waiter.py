"""Waits for a job in the place of `pharoah run`, with as little memory as an interpreter can have.

    python -I -S waiter.py JOB SIGNALS ASKED COMMAND...

JOB is a child of this process. SIGNALS are those that are passed on to it, in a mask of 64 bits (hexadecimal); all of
them and SIGCHLD are blocked already, so that none is lost on the way here. ASKED is when the job was first asked to
end, in nanoseconds since 1970; 0 for never. When the job has ended, this becomes COMMAND with two more words, the wait
status (waitpid(2)) and ASKED; without a command, or where that cannot be started, it ends as the job has ended.

This is `waiter.c` in Python, for machines that cannot run what is compiled from it. It imports nothing that an
interpreter has not loaded when it starts (`python -I -S`).
"""

# No annotations from `__future__`, no typing: each module that is imported stays in memory as long as the job runs.

import _signal  # type: ignore[import-not-found]  # `signal` brings `enum`
import posix
import sys
import time

ASK_TO_END = (_signal.SIGTERM, _signal.SIGINT, _signal.SIGHUP)
OF_TERMINAL = (_signal.SIGINT, _signal.SIGQUIT)
"""A terminal sends these to its whole foreground group."""


def main() -> None:
    """Wait, and become what follows."""
    job, mask, asked, command = int(sys.argv[1]), int(sys.argv[2], 16), int(sys.argv[3]), sys.argv[4:]
    signals = {number for number in range(1, 65) if mask >> number - 1 & 1}
    while (status := _status_of(job)) is None:
        number = _signal.sigwait(signals | {_signal.SIGCHLD})
        if number == _signal.SIGCHLD:
            continue
        if number in ASK_TO_END and not asked:
            asked = time.time_ns()
        if not (number in OF_TERMINAL and _in_foreground()):
            _send(job, number)
    if command:
        try:
            posix.execv(command[0], [*command, str(status), str(asked)])
        except OSError:
            pass
    _end_as(status)


def _status_of(job: int) -> int | None:
    """The wait status of a job that has ended; None while it runs."""
    try:
        ended, status = posix.waitpid(job, posix.WNOHANG)
    except OSError:  # somebody else has waited for it
        return 0
    return status if ended else None


def _send(job: int, number: int) -> None:
    try:
        posix.kill(job, number)
    except OSError:  # it belongs to somebody else by now
        pass


def _in_foreground() -> bool:
    """Whether this process is in the foreground group of its terminal: then the job has the signal already."""
    try:
        terminal = posix.open("/dev/tty", posix.O_RDONLY | posix.O_NOCTTY | posix.O_CLOEXEC)
    except OSError:
        return False
    try:
        return bool(posix.tcgetpgrp(terminal) == posix.getpgrp())
    except OSError:
        return False
    finally:
        posix.close(terminal)


def _end_as(status: int) -> None:
    number = status & 0x7F
    if number:
        # The job has left a core dump where one is wanted; ours would only hide it.
        try:
            _signal.signal(number, _signal.SIG_DFL)
        except (OSError, ValueError):  # SIGKILL and SIGSTOP have no handler
            pass
        _signal.pthread_sigmask(_signal.SIG_UNBLOCK, {number})
        posix.kill(posix.getpid(), number)
    posix._exit(128 + number if number else status >> 8 & 0xFF)


main()
