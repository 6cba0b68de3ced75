"""Which calls of models make one step of a job that serves: it answers requests and trains nothing.

A step begins with a call of the model that was called first, and everything until its next call belongs to the step:
a pipeline of several models is one step, and so is a prompt with the tokens that are generated from it. A call for one
more token begins no step. A script that calls `session.step()` states itself where steps end.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch

_TOKENS = ("decoder_input_ids", "decoder_inputs_embeds", "input_ids", "inputs_embeds")
"""Names of arguments that hold the positions which a model computes now, beside what it has computed before."""


class ModelCall(NamedTuple):
    """What a call of a model is to the step that it belongs to."""

    begins_step: bool
    is_token: bool
    """Whether it computes one more token of a sequence."""
    is_new: bool
    """Whether the step had no call of this kind: the same model, with one position or with several."""


class ServingSteps:
    """Divides the calls of models into steps, in the order in which they come."""

    def __init__(self) -> None:
        self._first: weakref.ref[torch.nn.Module] | None = None
        self._has_others = False
        """Whether another model than the first one has ever been called."""
        self._other_was_called = False
        """Whether one was called in this step."""
        self._has_positions = False
        """Whether the step has begun with several positions."""
        self._seen: set[tuple[int, bool]] = set()
        self.are_stated = False
        """Whether the script states where steps end."""

    def end_stated(self) -> None:
        """The script says that a step is over."""
        self.are_stated = True
        self._begin()

    def call(self, model: torch.nn.Module, positions: int) -> ModelCall:
        """A model is called from outside of any model. `positions` is as `positions_of` gives it."""
        first = self._first() if self._first else None
        begins = first is None
        if first is None:
            self._first = weakref.ref(model)
        elif model is not first:
            self._has_others = self._other_was_called = True
        single = positions == 1
        is_token = single and self._has_positions and not begins
        if model is first and not is_token:
            begins = self._other_was_called or not self._has_others
        if begins and not self.are_stated:
            self._begin()
        self._has_positions = self._has_positions or positions > 1
        kind = (id(model), single)
        is_new = kind not in self._seen
        self._seen.add(kind)
        return ModelCall(begins and not self.are_stated, is_token, is_new)

    def _begin(self) -> None:
        self._other_was_called = self._has_positions = False
        self._seen.clear()


def is_model(module: torch.nn.Module) -> bool:
    """Whether a module has parameters. Others prepare data or compute metrics. A module may have a `parameters` of its
    own that is no such method; then it counts as a model."""
    try:
        return next(iter(module.parameters()), None) is not None
    except Exception:  # noqa: BLE001 - the user's own method, which the job may never call itself
        return True


def positions_of(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> int:
    """How many positions of sequences a call computes; 0 when its arguments do not show it."""
    named = (kwargs.get(name) for name in _TOKENS)
    for value in (*named, *args, *kwargs.values()):
        if isinstance(value, torch.Tensor) and value.dim() in (2, 3):
            size = value.shape[1]
            return size if type(size) is int else 0
    return 0


Caller = Callable[..., Any]


class _Here(threading.local):
    """What the current thread does."""

    is_inside = False
    """Whether a model is being called."""


def around_calls(call: Callable[[Caller, torch.nn.Module, tuple[Any, ...], dict[str, Any]], Any]) -> Callable[[], bool]:
    """From now on `call(original, module, args, kwargs)` stands for every call of a model from outside of any model.

    Returns what takes it out again, and then returns whether it could: others may have patched over it. Calls of the
    modules inside take 0.4 us longer (`python -m timeit`, 2 cores). While torch compiles, modules are called as without
    it.
    """
    from pharoah.torch_names import is_compiling

    original: Any = torch.nn.Module.__call__
    here = _Here()

    def call_module(self: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:
        if is_compiling() or here.is_inside or not is_model(self):
            return original(self, *args, **kwargs)
        here.is_inside = True
        try:
            return call(original, self, args, kwargs)
        finally:
            here.is_inside = False

    # The compiler of torch begins to compile at functions of users and not at those of torch: this one must count as
    # the one that it stands for.
    call_module.__code__ = call_module.__code__.replace(
        co_filename=original.__code__.co_filename, co_firstlineno=original.__code__.co_firstlineno
    )

    def take_out() -> bool:
        if torch.nn.Module.__call__ is not call_module:
            return False
        torch.nn.Module.__call__ = original  # type: ignore[method-assign]
        return True

    torch.nn.Module.__call__ = call_module  # type: ignore[method-assign]
    return take_out
