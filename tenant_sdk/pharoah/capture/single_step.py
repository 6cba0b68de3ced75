"""One captured step of a running job: the recorder goes on the dispatcher's stack of modes and comes off again.

Modes nest. Ours is put on only when the user has none, and taken off only when it lies on top; until then it lets
everything pass. It comes off during optimizer steps, whose operators are no structure.
"""

from __future__ import annotations

from typing import Any, NamedTuple


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
        self._on = False
        self._optimizers: list[Any] = []

    @property
    def active(self) -> bool:
        """Whether the recorder is still somewhere on the stack."""
        return self._recorder is not None

    @property
    def recording(self) -> bool:
        return self._recorder is not None and not self._recorder.broken

    def enter(self) -> None:
        """Begin, unless the user has a mode of their own open or this torch would give up compiling under one."""
        import torch

        from pharoah.capture import recorder as capture

        if torch._C._len_torch_dispatch_stack() == 0 and capture.compiles_under_a_mode():
            self._recorder = capture.Recorder()
            self._switch_on()

    def pause(self, closure: bool) -> None:
        """An optimizer begins its step: nothing to see there, unless a closure computes the loss in it."""
        if self._recorder is not None:
            self._recorder.in_optimizer = True
            if not closure:
                self._switch_off()

    def stepped(self, optimizer: Any) -> None:
        """An optimizer has stepped: go on."""
        if self._recorder is not None:
            self._recorder.in_optimizer = False
            if all(optimizer is not known for known in self._optimizers):
                self._optimizers.append(optimizer)
            self._switch_on()

    def leave(self) -> Captured | None:
        """End. What was captured; None when nothing could be, or it cannot end yet."""
        self._switch_off()
        if self._on or self._recorder is None:
            if self._recorder is not None:
                self._recorder.broken = "another mode lies on top"
            return None
        recorder, self._recorder = self._recorder, None
        optimizers, self._optimizers = self._optimizers, []
        if recorder.broken:
            return None
        from pharoah.capture import recorder as capture

        fingerprint = capture.fingerprint(recorder.records, optimizers, compiled=capture.is_compiled())
        return Captured(fingerprint.to_json(), capture.operators(recorder.records))

    def drop(self) -> None:
        """End without an answer."""
        if self._recorder is not None:
            self._recorder.broken = "dropped"
            self._switch_off()
            self._recorder, self._optimizers = None, []

    def _switch_on(self) -> None:
        if not self._on:
            self._recorder.__enter__()
            self._on = True

    def _switch_off(self) -> None:
        if self._on and top_mode() is self._recorder:
            self._recorder.__exit__(None, None, None)
            self._on = False


def computes_inside(args: Any, kwargs: Any) -> bool:
    """Whether `optimizer.step` got a closure, from what its hooks see: the optimizer itself is the first argument."""
    return any(argument is not None for argument in (*args[1:], kwargs.get("closure")))


def top_mode() -> Any:
    """The innermost dispatch mode; None without one."""
    import torch

    size = torch._C._len_torch_dispatch_stack()
    return torch._C._get_dispatch_stack_at(size - 1) if size else None
