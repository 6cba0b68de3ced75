"""Hooks into torch's optimizers, and what becomes of them in forked children. Everything put in can be taken out."""

from __future__ import annotations

import multiprocessing
import os
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

from pharoah._guard import Guard
from pharoah.capture.clock import StepClock
from pharoah.capture.open_steps import OpenSteps
from pharoah.capture.single_step import computes_inside

_clock: StepClock | None = None
_handles: list[Any] = []
_open_steps = OpenSteps()
_inert = False


def attach(clock: StepClock) -> None:
    """Let `clock` see every optimizer step of this process from now on. Waits for a thread that is importing torch."""
    import torch  # noqa: F401

    global _clock
    _clock = clock
    _prepare()
    watch_optimizers(lambda: clock)
    if clock.serves:
        clock.watch_models()


def watch_models(clock: Callable[[], StepClock | None]) -> None:
    """For a job that serves: `clock` is asked at the first call of a model, so nothing is connected before."""
    import torch

    from pharoah.capture.serving_steps import Caller, around_calls

    was_called = False

    def first(original: Caller, module: Any, args: Any, kwargs: Any) -> Any:
        nonlocal was_called
        if was_called:  # others have patched over it, so that it could not be taken out
            return original(module, *args, **kwargs)
        was_called = True
        is_out = take_out()
        if not _inert:
            with Guard("models"):
                if (watching := clock()) is not None:
                    attach(watching)
        if not is_out:
            return original(module, *args, **kwargs)
        # Watched by now. The module's own `__call__`, if it has one, is running already.
        return torch.nn.Module.__call__(module, *args, **kwargs)

    take_out = around_calls(first)


def watch_optimizers(clock: Callable[[], StepClock | None]) -> None:
    """Register once; `clock` is asked at the first step, so nothing is connected before there is one."""
    if _handles:
        return
    from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

    from pharoah.torch_names import is_compiling

    def begins(_: Any, args: Any, kwargs: Any) -> None:
        if is_compiling():
            return  # a compiled step is traced through here
        is_inner = not _open_steps.begin()
        if (watching := _clock) is not None:
            watching.optimizer_begins(computes_inside(args, kwargs), is_inner)

    def ends(optimizer: Any, *_: Any) -> None:
        global _clock
        if is_compiling() or _inert:
            return
        is_outermost = _open_steps.end()
        if _clock is None:
            _clock = clock()
            if _clock is not None:
                _prepare()
        if (watching := _clock) is not None:
            if is_outermost:
                watching.tick("optimizer", optimizer)
            else:
                watching.inner_stepped(optimizer)

    _handles.append(register_optimizer_step_pre_hook(begins))
    _handles.append(register_optimizer_step_post_hook(ends))


def _prepare() -> None:
    """Load what a capture needs now rather than between two steps."""
    with Guard("capture"):
        from pharoah.capture import recorder

        recorder.prepare()


def detach() -> None:
    """Take every hook out again."""
    global _clock
    if _clock is not None:
        _clock.abandon()
    _clock = None
    while _handles:
        _handles.pop().remove()


_in_dry_run: list[Callable[[], None]] = []


def on_stated_step(callback: Callable[[], None]) -> None:
    """In a dry run, call `callback` whenever the script says that a step is over."""
    _in_dry_run.append(callback)


def step_stated() -> None:
    """The script says that a step is over, and nothing watches it but a dry run."""
    for callback in _in_dry_run:
        callback()


def inert() -> bool:
    """True in a forked child, to which nothing belongs that was set up. Not in the processes of a fork server."""
    return _inert


_after_fork: list[Callable[[], None]] = []


def on_fork(callback: Callable[[], None]) -> None:
    """Call `callback` in a forked child. One process-wide hook serves all: registrations cannot be undone."""
    _after_fork.append(callback)


def _fork() -> None:
    global _inert, _clock
    if not _after_fork and in_fork_server():
        return
    if _clock is not None:
        _clock.abandon()
    _inert, _clock = True, None
    for callback in _after_fork:
        callback()


def in_fork_server() -> bool:
    """Whether this runs in the fork server of `multiprocessing`, or in a process at the moment in which it was forked.

    The server gives each process that it is asked for a start of its own, and may have loaded torch for all of them:
    `set_forkserver_preload`, or the module of the script, which newer releases of Python load there.
    """
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_globals.get("__name__") != "multiprocessing.forkserver":
        frame = frame.f_back
    return frame is not None and multiprocessing.parent_process() is None


os.register_at_fork(after_in_child=_fork)
