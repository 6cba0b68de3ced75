"""Repeated calls of a model without gradients: many scripts evaluate a model hundreds of times before they train it.

After some calls with equal shapes the result is known: further calls return fake tensors of the same shapes and compute
nothing. What an evaluation records before the first step is folded into a repeat, so that the step stays the same.
Runs in the dry-run child only.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Hashable
from typing import Any, NamedTuple

import torch

from pharoah.dryrun.dry_recorder import DryRecorder
from pharoah.torch_names import FakeTensor, pytree

EQUAL_CALLS = 3
"""A call is repeated so often before it is left out. Two show that the result is the same; one more, that it stays."""
_PLAIN = (bool, int, float, str, type(None))


class _TensorShape(NamedTuple):
    """A tensor as far as a dry run knows it."""

    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: torch.dtype


_Leaf = _TensorShape | tuple[type, Any]
"""A tensor, or a plain value with its type."""


class _NotPlain(Exception):
    """A value that is neither a tensor of known size nor plain, so that equal calls are not recognised."""


class _Result(NamedTuple):
    """What a call returned."""

    leaves: tuple[_Leaf, ...]
    spec: Any


class RepeatedCalls:
    """Leaves out calls of modules whose result is known. Inner modules are never asked about."""

    def __init__(self, recorder: DryRecorder) -> None:
        self._recorder = recorder
        self._inside = False
        self._results: dict[Hashable, _Result] = {}
        self._equal: Counter[Hashable] = Counter()

    def install(self) -> None:
        """Patch `torch.nn.Module` for the rest of the process, where torch can take results apart."""
        if pytree is None:
            return
        original: Any = torch.nn.Module.__call__

        @functools.wraps(original)
        def call(module: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:
            if self._inside or torch.is_grad_enabled():
                return original(module, *args, **kwargs)
            self._inside = True
            try:
                return self._call(original, module, args, kwargs)
            finally:
                self._inside = False

        torch.nn.Module.__call__ = call  # type: ignore[method-assign]

    def _call(self, original: Any, module: torch.nn.Module, args: Any, kwargs: Any) -> Any:
        try:
            state = (id(module), module.training, torch.is_autocast_enabled("cpu"))
            key = (*state, str(pytree.tree_structure((args, kwargs))), *_describe((args, kwargs)))
        except _NotPlain:
            return original(module, *args, **kwargs)
        if self._equal[key] >= EQUAL_CALLS:
            return self._make(self._results[key])
        result = original(module, *args, **kwargs)
        try:
            found = _Result(_describe(result), pytree.tree_structure(result))
        except _NotPlain:
            return result
        self._equal[key] = self._equal[key] + 1 if self._results.get(key) == found else 1
        self._results[key] = found
        return result

    def _make(self, known: _Result) -> Any:
        """Fake tensors of the same shapes, which are not recorded."""
        paused, self._recorder.paused = self._recorder.paused, True
        try:
            leaves = [
                torch.empty_strided(leaf.shape, leaf.stride, dtype=leaf.dtype)
                if isinstance(leaf, _TensorShape)
                else leaf
                for leaf in known.leaves
            ]
        finally:
            self._recorder.paused = paused
        return pytree.tree_unflatten(leaves, known.spec)


def _describe(value: Any) -> tuple[_Leaf, ...]:
    """The leaves of arguments or of a result. Raises _NotPlain."""
    return tuple(map(_leaf, pytree.tree_leaves(value)))


def _leaf(leaf: Any) -> _Leaf:
    if type(leaf) in _PLAIN:
        return (type(leaf), leaf)  # 1 and True are equal
    if type(leaf) in (FakeTensor, torch.Tensor) and all(type(size) is int for size in leaf.shape):
        return _TensorShape(tuple(leaf.shape), leaf.stride(), leaf.dtype)
    raise _NotPlain
