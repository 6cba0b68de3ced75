"""A running job that serves: times its steps, and has one step captured early in the run.

Calls of models come from any thread, and each thread has steps of its own. The recorder is on only while a model is
called for the first time in the captured step. What the job itself raises passes through.
"""

from __future__ import annotations

import logging
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any

import torch

from pharoah.capture import recorder as capture
from pharoah.capture.serving_steps import Caller, ModelCall, ServingSteps, around_calls, positions_of
from pharoah.capture.single_step import Captured
from pharoah.torch_names import dispatch_modes

log = logging.getLogger("pharoah")

CAPTURED_STEP = 4
"""Models compile, and caches fill, in the first ones."""


class ServedModels:
    """Watches the calls of models of this process from `install` to `remove`."""

    def __init__(
        self, stepped: Callable[[int, bool], None], captured: Callable[[Captured], None], *, is_known: bool = True
    ) -> None:
        """`stepped` gets the nanoseconds of each step and whether it may train, `captured` the one captured step; both
        from any thread.

        `is_known` states that a dry run has found that the job serves. Otherwise calls with gradients are not captured:
        they may belong to a training by hand.
        """
        self._stepped, self._captured, self._is_known = stepped, captured, is_known
        self._threads = threading.local()
        self._reporting = threading.Lock()
        self._was_captured = False
        self._remove: Callable[[], bool] = lambda: True

    def install(self) -> None:
        """Patch torch."""
        self._remove = around_calls(self._call)

    def remove(self) -> None:
        """Take the patch out again, if nobody has patched over it; in any case do nothing from now on."""
        self._reporting = threading.Lock()  # in a forked child, another thread may have held it
        self._was_captured = True
        self._stepped = lambda _, __: None
        self._remove()

    def end_stated(self) -> None:
        """The script says that a step of this thread is over."""
        thread = self._thread()
        thread.steps.end_stated()
        self._began(thread)
        thread.began = 0  # the next step begins with its first call: until then the job may wait for a request

    def _thread(self) -> _Thread:
        thread: _Thread | None = getattr(self._threads, "state", None)
        if thread is None:
            thread = self._threads.state = _Thread()
        return thread

    def _call(self, original: Caller, model: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        thread = self._thread()
        try:
            recorder = self._before(thread, model, args, kwargs)
            if recorder is None:
                return original(model, *args, **kwargs)
            with recorder:
                return original(model, *args, **kwargs)
        finally:
            thread.ended = time.perf_counter_ns()

    def _before(self, thread: _Thread, model: torch.nn.Module, args: Any, kwargs: Any) -> capture.Recorder | None:
        """What is to record this call; None for nothing. Never raises."""
        try:
            call = thread.steps.call(model, positions_of(args, kwargs))
            if call.begins_step:
                self._began(thread)
            thread.began = thread.began or time.perf_counter_ns()
            thread.may_train |= torch.is_grad_enabled()
            self._time(thread, call)
            return self._recorder(thread, model, call)
        except Exception as fault:  # noqa: BLE001 - a call of the user's model must not fail for us
            log.debug("served models: %s", fault)
            return None

    def _began(self, thread: _Thread) -> None:
        """A step of a thread begins; the one before is over."""
        if thread.is_captured:
            self._finish_capture(thread)
        if thread.began and not thread.made_tokens:
            self._report(thread, thread.ended - thread.began)
        thread.count += 1
        thread.began = time.perf_counter_ns()
        thread.made_tokens = False
        thread.is_captured = thread.count == CAPTURED_STEP and not self._was_captured

    def _time(self, thread: _Thread, call: ModelCall) -> None:
        """Where tokens are generated, the time from one to the next is a step's time."""
        now = time.perf_counter_ns()
        if call.is_token:
            self._report(thread, now - thread.last_token if thread.made_tokens else now - thread.began)
            thread.made_tokens = True
        thread.last_token = now

    def _report(self, thread: _Thread, nanoseconds: int) -> None:
        with self._reporting:
            self._stepped(nanoseconds, thread.may_train)

    def _recorder(self, thread: _Thread, model: torch.nn.Module, call: ModelCall) -> capture.Recorder | None:
        if not thread.is_captured or not call.is_new:
            return None
        may_train = torch.is_grad_enabled() and not self._is_known
        if may_train or dispatch_modes() or not capture.compiles_under_a_mode():
            thread.recorder.give_up("the job may train, or has a mode of its own")
            return None
        thread.models.append(weakref.ref(model))
        thread.recorder.serves = True
        return thread.recorder

    def _finish_capture(self, thread: _Thread) -> None:
        recorder, thread.recorder = thread.recorder, capture.Recorder()
        models = [model for reference in thread.models if (model := reference()) is not None]
        thread.models.clear()
        if recorder.broken or not recorder.served:
            return
        try:
            compiled = capture.is_compiled()
            fingerprint = capture.serving_fingerprint(recorder.served, models, compiled=compiled)
        except Exception as fault:  # noqa: BLE001 - what was called computes nothing, or its own methods raise
            log.debug("served models: %s", fault)
            return
        with self._reporting:  # the first thread that has captured a step is the one that counts
            first, self._was_captured = not self._was_captured, True
            if first:
                self._captured(Captured(fingerprint.to_json(), capture.operators(recorder.served)))


class _Thread:
    """What one thread of the job does."""

    def __init__(self) -> None:
        self.steps = ServingSteps()
        self.count = 0
        """Number of steps that have begun."""
        self.began = self.ended = self.last_token = 0
        """Nanoseconds: when the step began, when its last call ended, when its last call began."""
        self.may_train = False
        """Whether any call has kept what a backward pass needs: a training may evaluate now and then."""
        self.is_captured = False
        """Whether the step is captured."""
        self.made_tokens = False
        """Whether the step has generated a token after the first."""
        self.recorder = capture.Recorder()
        self.models: list[weakref.ref[torch.nn.Module]] = []
