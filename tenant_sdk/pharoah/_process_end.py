"""How the process of a job ends: by an exception that nobody catches, or with an exit code.

Python does not say at exit with which code a process leaves. What is known together is the last code that was given to
`sys.exit`, `exit` or `quit` in the main thread, and whether the outermost frame of that thread was left by an
exception: a SystemExit that somebody has caught does not leave it. `raise SystemExit(1)` is not noticed. A process that
has caught the SystemExit of `sys.exit(1)`, and is then ended by one that was raised without a call, counts as failed.

The children of Python's fork server leave without the functions that are registered for exit (before Python 3.13), and
give no exception to a hook. What ends their target is being handled when `multiprocessing` calls its own functions.

An exception that nobody catches is given to `sys.excepthook`. A job may put a hook of its own there that does not call
the one before it. Python keeps the exception in `sys.last_value` before it calls any hook, so it is read there at exit.
"""

from __future__ import annotations

import atexit
import builtins
import functools
import multiprocessing
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any, NamedTuple, NoReturn

from pharoah._guard import Guard

MAX_ERROR_LENGTH = 1000
"""Characters of the exception that ended a job which are kept to judge it. Ours: the rules look for one line."""
BEGINNING = 300
"""Characters of them that begin a longer text; ours. The rest is the end of the text: the error of a worker of a
DataLoader has the traceback of the worker in its message, so its cause is the last line."""
CUT = " [...]\n[...] "
"""Stands for what is left out. No rule then takes half a line for a whole one."""


class Failure(NamedTuple):
    """Why a process fails."""

    status: int
    """Its exit code; 0 where an exception ends it."""
    error: str
    """Type and message of the exception that ends it, or was being handled when it left; empty where there was none."""


def watch_process_end(failed: Callable[[Failure], None], ended: Callable[[], None]) -> None:
    """From now on `failed` gets every reason why this process fails, and `ended` is called when it ends."""
    exits, exit_, excepthook = _Exits(), sys.exit, sys.excepthook

    def note_exception(kind: type[BaseException], value: BaseException, trace: Any) -> None:
        failed(Failure(0, _describe(kind, value)))
        excepthook(kind, value, trace)

    @functools.wraps(exit_)
    def note_exit(*args: Any, **kwargs: Any) -> NoReturn:
        with Guard("exit"):
            exits.note(*args)
        exit_(*args, **kwargs)

    def at_exit() -> None:
        with Guard("exit"):
            if (failure := exits.failure()) is not None:
                failed(failure)
        ended()

    def target_ended() -> None:
        with Guard("exit"):
            if (failure := _failure_of_target(sys.exc_info()[1])) is not None:
                failed(failure)
        ended()

    sys.excepthook, sys.exit = note_exception, note_exit
    _note_quitting(exits)
    atexit.register(at_exit)
    if multiprocessing.parent_process() is not None and multiprocessing.get_start_method(True) == "forkserver":
        from multiprocessing.util import Finalize  # loaded already in such a process

        Finalize(None, target_ended, exitpriority=0)


def _note_quitting(exits: _Exits) -> None:
    """`exit(1)` and `quit(1)`, which the module `site` gives to scripts, raise SystemExit themselves. Neither is there
    with `python -S`."""
    quitter: Any = type(getattr(builtins, "exit", None))
    if quitter.__module__ != "_sitebuiltins":
        return
    quit_ = quitter.__call__

    @functools.wraps(quit_)
    def note_quit(self: object, *args: Any, **kwargs: Any) -> Any:
        with Guard("exit"):
            exits.note(*args, *kwargs.values())
        return quit_(self, *args, **kwargs)

    quitter.__call__ = note_quit


class _Exits:
    """The calls of `sys.exit` in the main thread."""

    def __init__(self) -> None:
        self._main = threading.main_thread().ident
        self._outermost = _outermost(sys._current_frames().get(self._main or 0))
        self._last = Failure(0, "")

    def note(self, code: object = None, *_: object) -> None:
        """`sys.exit`, `exit` or `quit` is called. Another thread ends only itself by that."""
        if threading.get_ident() != self._main:
            return
        status, handled = _status(code), sys.exc_info()[1]
        error = _shorten(f"SystemExit: {code}") if isinstance(code, str) else ""
        if handled is not None and not isinstance(handled, SystemExit):
            error = _describe(type(handled), handled)
        elif not error and status == self._last.status:  # what starts processes leaves with the code of its target
            error = self._last.error
        self._last = Failure(status, error)

    def failure(self) -> Failure | None:
        """Why the process fails that is about to end; None when it does not fail."""
        value = _uncaught(self._outermost)
        if (value is None and not self._last.status) or not _is_left_by_exception(self._outermost):
            return None
        return self._last if value is None else Failure(0, _describe(type(value), value))


def _failure_of_target(error: BaseException | None) -> Failure | None:
    """Why the target of a process fails that this exception leaves; None when it does not fail."""
    if error is None:
        return None
    if isinstance(error, SystemExit):
        status = _status(error.code)
        text = _shorten(f"SystemExit: {error.code}") if isinstance(error.code, str) else ""
        return Failure(status, text) if status else None
    return Failure(0, _describe(type(error), error))


def _describe(kind: type[BaseException], value: BaseException) -> str:
    with Guard("error"):
        return _shorten(f"{kind.__name__}: {value}")
    return kind.__name__


def _shorten(text: str) -> str:
    if len(text) <= MAX_ERROR_LENGTH:
        return text
    return text[:BEGINNING] + CUT + text[BEGINNING + len(CUT) - MAX_ERROR_LENGTH :]


def _uncaught(outermost: FrameType | None) -> BaseException | None:
    """The exception that has left the outermost frame and was given to a hook; None where there was none. One that a
    library has printed may be kept there as well, but its traceback begins at another frame."""
    trace = getattr(sys, "last_traceback", None)
    if outermost is None or trace is None or trace.tb_frame is not outermost:
        return None
    value: BaseException | None = getattr(sys, "last_value", None)
    return value


def _status(code: object) -> int:
    """The exit code of a process that calls `sys.exit(code)`."""
    if code is None or isinstance(code, int):
        return (code or 0) & 0xFF
    return 1


def _outermost(frame: FrameType | None) -> FrameType | None:
    while frame is not None and frame.f_back is not None:
        frame = frame.f_back
    return frame


def _is_left_by_exception(frame: FrameType | None) -> bool:
    """Whether a frame that runs no more has ended in another way than by returning."""
    from opcode import opname  # at exit only

    if frame is None or frame.f_lasti < 0:
        return False
    return not opname[frame.f_code.co_code[frame.f_lasti]].startswith("RETURN_")
