"""Notes of an operator from the shapes and types in a trace; `Operator` describes each note."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pharoah_archetypes.vocabulary import MASK_FILLS, OperatorClass, vocabulary

_NO_NOTES: frozenset[str] = frozenset()
_COMPARISONS = {"aten.le", "aten.lt", "aten.ge", "aten.gt"}
_TRIANGLES = {"aten.tril", "aten.triu", "aten.tril_", "aten.triu_"}
"""Traces hold no values of masks; how a mask is made is the best sign of a causal one."""


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor in a trace: its shape and the name of its element type."""

    shape: tuple[int, ...]
    kind: str

    @property
    def is_floating(self) -> bool:
        return any(word in self.kind.lower() for word in ("float", "double", "half", "bfloat", "complex"))

    @property
    def is_mask(self) -> bool:
        return self.kind.lower() == "bool" and _both_long(self.shape)


def notes_of(name: str, inputs: Sequence[Tensor], output: Tensor | None, flags: Mapping[str, object]) -> frozenset[str]:
    """`flags` are the named arguments that are not tensors; `output` is None where the trace does not record it."""
    operator_class = vocabulary().classes.get(name, "")
    noted: set[str] = set()
    result = output or (inputs[0] if inputs else None)
    if operator_class and result is not None and not result.is_floating:
        noted.add("integer")
    if operator_class == OperatorClass.ATTENTION and any(
        value is True for flag, value in flags.items() if "causal" in flag
    ):
        noted.add("causal")
    if operator_class == OperatorClass.CONVOLUTION and flags.get("transposed") is True:
        noted.add("transposed")
    if operator_class == OperatorClass.CONVOLUTION and _is_depthwise(inputs):
        noted.add("depthwise")
    if name in ("aten.bmm", "aten.baddbmm") and len(inputs) >= 2 and inputs[-2].shape[-1:] == (1,):
        noted.add("rank1")
    if name in _TRIANGLES or (name in _COMPARISONS and _compares_positions(inputs)):
        noted.add("causal")
    if name in MASK_FILLS and result is not None and any(tensor.is_mask for tensor in inputs[:2]):
        noted.add("pairs")
    return frozenset(noted) if noted else _NO_NOTES


def _is_depthwise(inputs: Sequence[Tensor]) -> bool:
    """A filter for each channel: the first input has channels, the second has filters of one channel."""
    return len(inputs) >= 2 and inputs[0].shape[1:2] > (1,) and inputs[1].shape[1:2] == (1,)


def _compares_positions(inputs: Sequence[Tensor]) -> bool:
    """A row of positions compared with a column of positions makes a mask over pairs."""
    if len(inputs) < 2 or inputs[0].is_floating or inputs[1].is_floating:
        return False
    left, right = inputs[0].shape, inputs[1].shape
    return left != right and _both_long(_broadcast(left, right))


def _broadcast(left: tuple[int, ...], right: tuple[int, ...]) -> tuple[int, ...]:
    longest = max(len(left), len(right))
    padded = ((1,) * (longest - len(shape)) + shape for shape in (left, right))
    return tuple(max(a, b) for a, b in zip(*padded, strict=True))


def _both_long(shape: tuple[int, ...]) -> bool:
    return len(shape) >= 2 and shape[-1] > 1 and shape[-2] > 1
