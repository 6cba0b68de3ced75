"""What our processes print. Text of others loses what a terminal would obey, whoever calls.

`say` is for standard error of a process whose job may be another program: what we say never fails, never waits long,
and never gets into a stream that it is not meant for. `show` is for results on standard output.
"""

from __future__ import annotations

import contextlib
import os
import select
import stat
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from types import TracebackType

from pharoah_system.text import printable_lines

PATIENCE_SECONDS = 0.5
"""How long a message waits for room in a pipe that nobody reads. What does not fit by then is dropped: the start of a
job must not depend on who reads its messages. A reader that lives makes room within milliseconds."""
STANDARD_ERROR = 2
_CHUNK_BYTES = select.PIPE_BUF
"""A pipe with room takes so much at once (pipe(7))."""
_POLL_SECONDS = 0.01


class _Reader:
    """What is known of the other end of standard error."""

    is_stuck = False
    """Whether a message has waited in vain: the next ones do not wait."""


def hold_standard_descriptors() -> None:
    """Keep descriptors 0 to 2 from being given to a file of ours where they are closed.

    A closed one would become the next file or socket that is opened, and what is written to standard output or error
    would end up there. `/dev/null` takes the place; it is closed again in every program that is started, so that a job
    finds its descriptors as it would alone.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            with contextlib.suppress(OSError):
                opened = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
                if opened != number:
                    os.dup2(opened, number, inheritable=False)
                    os.close(opened)


def say(text: str, descriptor: int = STANDARD_ERROR) -> None:
    """Write one message, and a line end, to standard error, or to a descriptor that was given for it. Raises nothing;
    what cannot be written is dropped."""
    try:
        text = printable_lines(text)
        if descriptor != STANDARD_ERROR:
            _write(f"{text}\n".encode(errors="backslashreplace"), descriptor)
            return
        stream = sys.stderr
        if stream is None:  # it was closed when this process started
            return
        if _descriptor(stream) == STANDARD_ERROR:
            encoding = getattr(stream, "encoding", None) or "utf-8"
            _write(f"{text}\n".encode(encoding, "backslashreplace"), STANDARD_ERROR)
        else:  # a program that holds us has put a stream of its own there
            stream.write(f"{text}\n")
            stream.flush()
    except Exception:  # noqa: BLE001 - a full disk, a broken pipe, an odd stream: the job matters more than the message
        pass


def show(*parts: object, end: str = "\n", flush: bool = False) -> None:
    """Write parts of a result, separated by spaces, to standard output; nothing where that is closed.

    Characters that the stream cannot encode are escaped. Raises what the stream raises: BrokenPipeError when nobody
    reads any more, OSError, and ValueError for a stream that was closed.
    """
    stream = sys.stdout
    if stream is None:  # it was closed when this process started
        return
    text = printable_lines(" ".join(map(str, parts)) + end)
    encoding = getattr(stream, "encoding", None) or "utf-8"
    stream.write(text.encode(encoding, "backslashreplace").decode(encoding))
    if flush:
        stream.flush()


def say_uncaught_errors() -> None:
    """From now on, `say` prints the traceback of an error that nobody catches: its message may hold text of others."""

    def uncaught(kind: type[BaseException], error: BaseException | None, trace: TracebackType | None) -> None:
        say("".join(traceback.format_exception(kind, error, trace)).rstrip("\n"))

    sys.excepthook = uncaught
    threading.excepthook = lambda what: uncaught(what.exc_type, what.exc_value, what.exc_traceback)
    sys.unraisablehook = lambda what: uncaught(what.exc_type, what.exc_value, what.exc_traceback)


def _descriptor(stream: object) -> int:
    try:
        return int(stream.fileno())  # type: ignore[attr-defined]
    except (AttributeError, OSError, ValueError):
        return -1


def _write(data: bytes, to: int) -> None:
    """Raises OSError."""
    deadline = time.monotonic() + (0.0 if _Reader.is_stuck else PATIENCE_SECONDS)
    with _unblock(to) as descriptor:
        while data:
            if not _has_room(descriptor, deadline):
                _Reader.is_stuck = True
                return
            try:
                data = data[os.write(descriptor, data[:_CHUNK_BYTES]) :]
            except BlockingIOError:  # less room than the chunk is long, or a descriptor that others made non-blocking
                if time.monotonic() >= deadline:
                    _Reader.is_stuck = True
                    return
                time.sleep(_POLL_SECONDS)
    _Reader.is_stuck = False


def _has_room(descriptor: int, deadline: float) -> bool:
    """Whether a write would not wait. An end that is gone also counts: the write then fails at once."""
    poll = select.poll()
    poll.register(descriptor, select.POLLOUT)
    return bool(poll.poll(max(0.0, deadline - time.monotonic()) * 1000))


@contextlib.contextmanager
def _unblock(descriptor: int) -> Iterator[int]:
    """A descriptor of the same pipe whose writes do not wait.

    The one that we have is shared with the job and others, so its flags stay as they are. Only a pipe can be opened
    again without another position to write at; everything else is asked for room before each short write.
    """
    again = -1
    if stat.S_ISFIFO(os.fstat(descriptor).st_mode):
        with contextlib.suppress(OSError):
            again = os.open(f"/proc/self/fd/{descriptor}", os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    try:
        yield again if again >= 0 else descriptor
    finally:
        if again >= 0:
            os.close(again)
