"""One captured step of a running job: the recorder goes on the dispatcher's stack of modes and comes off again.

Modes nest. Ours is put on only when the user has none, and taken off only when it lies on top; until then it lets
everything pass. It comes off during optimizer steps, whose operators are no structure. Each thread has a stack of its
own. Autograd restores the stack after each of its nodes: what is put on or taken off in a node lasts until its end.
"""

from __future__ import annotations

import sys
import weakref
from threading import get_ident
from typing import Any, NamedTuple

from pharoah._guard import Guard

MAX_ASIDE = 200_000
"""Operators without gradients after which a step is not recorded any more: a job that evaluates for hours after its
third step is slowed in the first seconds of it (18 us for an operator, timeit, 2 cores)."""


class Captured(NamedTuple):
    """What one captured step shows."""

    fingerprint: str
    """As JSON."""
    operators: list[str]
    """Names of operators with structure that the forward pass calls."""


class OneStep:
    """Records from `enter` to `leave`. None of it raises for reasons of the user's program."""

    def __init__(self) -> None:
        self._recorder: Any = None
        self._thread = 0
        """The thread on whose stack the recorder was put."""
        self._paused = 0
        """The thread that has taken the recorder off for the step of an optimizer; 0 for none."""
        self._computes_inside = False
        """Whether the outermost step of an optimizer that has begun last got a closure."""
        self._optimizers: dict[int, weakref.ref[Any]] = {}
        """The optimizers that have stepped; they are not kept alive."""
        self._module_hook: Any = None
        """Waits for the next call of a module where the recorder has ended and still lies on the stack."""

    @property
    def active(self) -> bool:
        """Whether the recorder may still be somewhere on the stack."""
        return self._recorder is not None

    @property
    def recording(self) -> bool:
        return self._recorder is not None and not self._recorder.broken

    def enter(self) -> None:
        """Begin, unless the user has a mode of their own open or this torch would give up compiling under one. Not for
        use inside of a node of autograd."""
        from pharoah.capture import recorder as capture
        from pharoah.torch_names import dispatch_modes

        if dispatch_modes() == 0 and capture.compiles_under_a_mode():
            self._recorder = capture.Recorder(MAX_ASIDE, self._take_off_soon)
            self._thread, self._paused, self._optimizers = get_ident(), 0, {}
            self._recorder.__enter__()

    def pause(self, closure: bool, is_inner: bool = False) -> None:
        """An optimizer begins its step: nothing to see there, unless a closure computes the loss in it. The step of an
        optimizer `is_inner` when another step calls it."""
        if self._recorder is None:
            return
        self._recorder.in_optimizer = True
        if not is_inner:
            self._computes_inside = closure
        if not closure and top_mode() is self._recorder:
            self._take_off()
            self._paused = get_ident()

    def note_step(self, optimizer: Any, is_inner: bool = False) -> None:
        """An optimizer has stepped: go on, unless it `is_inner` and the step around it is no place to go on."""
        if self._recorder is None:
            return
        self._optimizers[id(optimizer)] = weakref.ref(optimizer)
        if is_inner and not self._computes_inside:
            return
        self._recorder.in_optimizer = is_inner
        if self._paused == get_ident():
            self._paused = 0
            if not _is_on_stack(self._recorder):
                self._recorder.__enter__()
        elif self._thread == get_ident() and not _is_on_stack(self._recorder):
            self._forget("the stack of modes was restored without the recorder")

    def leave(self) -> Captured | None:
        """End. What was captured; None when nothing could be, or it cannot end yet. Not for use inside of a node of
        autograd."""
        recorder = self._recorder
        if recorder is None:
            return None
        if self._thread != get_ident() or top_mode() is not recorder:
            recorder.give_up("another mode lies on top, or the step ends in another thread than it began in")
            if self._thread == get_ident() and not _is_on_stack(recorder):
                self._forget("the stack of modes was restored without the recorder")
            return None
        self._take_off()
        optimizers = [optimizer for known in self._optimizers.values() if (optimizer := known()) is not None]
        self._let_go()
        if recorder.broken:
            return None
        from pharoah.capture import recorder as capture

        fingerprint = capture.fingerprint(recorder.records, optimizers, compiled=capture.is_compiled())
        return Captured(fingerprint.to_json(), capture.operators(recorder.records))

    def drop(self) -> None:
        """End without an answer. Another thread than the one that captures cannot take the recorder off; it lets
        everything pass from now on."""
        if self._recorder is None:
            return
        if self._thread != get_ident() and self._thread in sys._current_frames():  # in a forked child it is gone
            self._recorder.give_up("dropped")
            self._take_off_soon()
            return
        if self._thread == get_ident() and top_mode() is self._recorder:
            self._take_off()
        self._forget("dropped")

    def _forget(self, reason: str) -> None:
        self._recorder.give_up(reason)
        self._let_go()

    def _let_go(self) -> None:
        self._recorder, self._optimizers = None, {}
        if self._module_hook is not None:
            self._module_hook.remove()
            self._module_hook = None

    def _take_off_soon(self) -> None:
        """The recorder has ended in the middle of an operator, or in another thread: take it off when its thread calls
        a module next, because each operator that it lets pass takes longer (6 us, timeit, 2 cores)."""
        with Guard("capture"):
            from torch.nn.modules.module import register_module_forward_pre_hook

            from pharoah.capture import recorder as capture

            # Modules that torch has compiled would be compiled again.
            if self._module_hook is None and not capture.is_compiled():
                self._module_hook = register_module_forward_pre_hook(self._module_begins)

    def _module_begins(self, *_: Any) -> None:
        from pharoah.torch_names import is_compiling

        if is_compiling() or self._thread != get_ident() or self._recorder is None:
            return
        with Guard("capture"):
            if top_mode() is self._recorder and not inside_backward():
                self._take_off()
                self._let_go()

    def _take_off(self) -> None:
        """Take the recorder, which lies on top, off the stack."""
        if getattr(self._recorder, "old_dispatch_mode_flags", True):  # older releases keep none
            self._recorder.__exit__(None, None, None)
        else:  # it was taken off in a node of autograd that has failed, and autograd has put it back
            from pharoah.torch_names import pop_mode

            pop_mode()


def computes_inside(args: Any, kwargs: Any) -> bool:
    """Whether `optimizer.step` got a closure, from what its hooks see: the optimizer itself is the first argument."""
    return any(argument is not None for argument in (*args[1:], kwargs.get("closure")))


def inside_backward() -> bool:
    """Whether a node of autograd has called this."""
    from pharoah.torch_names import NO_BACKWARD, current_graph_task

    return bool(current_graph_task() != NO_BACKWARD)


def top_mode() -> Any:
    """The innermost dispatch mode; None without one."""
    from pharoah.torch_names import dispatch_mode_at, dispatch_modes

    size = dispatch_modes()
    return dispatch_mode_at(size - 1) if size else None


def _is_on_stack(mode: Any) -> bool:
    from pharoah.torch_names import dispatch_mode_at, dispatch_modes

    size = dispatch_modes()
    return any(dispatch_mode_at(at) is mode for at in range(size))
