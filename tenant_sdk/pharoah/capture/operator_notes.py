"""What one dispatched operator shows besides its name: memory, dtype, bytes, and the notes of `Operator`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from pharoah.capture.causal_masks import is_causal, is_square
from pharoah.torch_names import DispatchKey, OpOverload, has_kernel, schema_of, storage_id, storage_number
from pharoah_archetypes.vocabulary import MASK_FILLS, OperatorClass, vocabulary


class _Call(NamedTuple):
    args: Any
    kwargs: Any
    result: Any


class Reading(NamedTuple):
    """What one call of an operator did. Its order is that of the fields of `Operator`."""

    reads: tuple[int, ...]
    """Identities of the memory that it read."""
    writes: tuple[int, ...]
    """Identities of the memory that it wrote."""
    notes: frozenset[str]
    dtype: torch.dtype | None
    """The dtype of the result."""
    size: int
    """Bytes of the result."""


new = tuple.__new__
"""Makes a named tuple, `new(Class, fields)`, five times as fast as its constructor does (0.11 against 0.58 us, timeit).
The recorder makes two for every operator of a captured step."""

_Note = Callable[[_Call], str]
"""Reads one note off a call; an empty string is no note."""

_COMPOSITE = "CompositeImplicitAutograd"
COMPOSITE = getattr(DispatchKey, _COMPOSITE, None)
"""The key of kernels that call other operators."""
_DEVICE_KEYS = ("CPU", "CUDA", "XPU", "MPS")
_MASK_ARGUMENTS = {"attn_mask", "attn_bias", "mask"}
"""Arguments of attention kernels that hold a mask."""
_SCORE_CHANGES = {
    "aten.add", "aten.add_", "aten.sub", "aten.sub_", "aten.mul", "aten.mul_", "aten.baddbmm",
}  # fmt: skip
"""Operators that apply a mask to the scores of attention that is written out."""

_storage_id = storage_id or (lambda tensor: storage_number(tensor.untyped_storage()))
_NO_NOTES: frozenset[str] = frozenset()


def storage_of(tensor: torch.Tensor) -> int:
    """The identity of a tensor's memory, or of the tensor itself where it has no memory of one piece (sparse ones)."""
    try:
        return int(_storage_id(tensor))
    except NotImplementedError:
        return storage_number(tensor)


class Reader:
    """Facts about an operator, worked out once; `read` does what remains for each call."""

    __slots__ = ("_notes", "changes", "communicates", "is_composite", "is_view", "name", "operator_class")

    def __init__(self, func: Any) -> None:
        schema = schema_of(func)
        self.name = str(schema.name if schema else f"higher_order::{func.name()}").replace("::", ".")
        self.operator_class = vocabulary().classes.get(self.name, "")
        self.communicates = self.operator_class in vocabulary().collectives
        self.is_view = is_view(func)
        self.is_composite = is_composite(func)
        arguments = schema.arguments if schema else []
        self.changes = tuple(at for at, a in enumerate(arguments) if a.alias_info and a.alias_info.is_write)
        """Positions of the arguments that it writes to."""
        self._notes = _notes(self.name, self.operator_class, [a.name for a in arguments])

    def read(self, args: Any, kwargs: Any, result: Any, *, with_notes: bool = True) -> Reading:
        """Read one call off its arguments and its result.

        Only the first of several results counts, because the statistics and workspaces after it differ between devices.
        Without notes, no value of a tensor is read, which would wait for its device.
        """
        reads: list[int] = []
        for argument in args:
            if isinstance(argument, torch.Tensor):
                reads.append(storage_of(argument))
            elif isinstance(argument, (list, tuple)):
                reads += [storage_of(item) for item in argument if isinstance(item, torch.Tensor)]
        notes = _NO_NOTES
        if with_notes and self._notes:
            call = _Call(args, kwargs or {}, result)
            notes = frozenset(note for read_note in self._notes if (note := read_note(call)))
        if self.is_view:
            return new(Reading, (tuple(reads), _elsewhere(result, reads), notes, None, 0))
        writes: list[int] = []
        dtype, size = None, 0
        for output in result if isinstance(result, (tuple, list)) else (result,):
            if isinstance(output, torch.Tensor):
                writes.append(storage_of(output))
                dtype = dtype or output.dtype
                if not size or isinstance(result, list):
                    size += _read_size(output.numel()) * output.element_size()
        return new(Reading, (tuple(reads), tuple(writes), notes, dtype, size))


def _elsewhere(result: Any, reads: list[int]) -> tuple[int, ...]:
    """The memory of views where it is not that of their source: a fake view of a real tensor, and a fake view of which
    torch remembers the shape, have memory of their own."""
    views = result if isinstance(result, (list, tuple)) else (result,)
    tensors = (view for view in views if isinstance(view, torch.Tensor))
    return tuple(found for view in tensors if (found := storage_of(view)) not in reads)


_readers: dict[Any, Reader] = {}


def reader(func: Any) -> Reader:
    """The reader of an operator, made when the operator is first called."""
    known = _readers.get(func)
    if known is None:
        known = _readers[func] = Reader(func)
    return known


def are_plain(args: Any, kwargs: Any, types: tuple[type[torch.Tensor], ...]) -> bool:
    """Whether all tensors among arguments are of these types, and strided. For nested, sparse and quantized tensors,
    and for subclasses, an operator may have kernels of its own, among which torch must choose."""
    items = (item for a in (*args, *kwargs.values()) for item in (a if isinstance(a, (list, tuple)) else (a,)))
    return all(
        type(item) in types and item.layout == torch.strided and not (item.is_nested or item.is_quantized)
        for item in items
        if isinstance(item, torch.Tensor)
    )


def is_view(func: Any) -> bool:
    """Whether an operator's result is a view: it shares memory with an argument and does not write there.

    `lift_fresh` is not a view: a tensor that is made from Python values first appears as its result.
    """
    schema = schema_of(func)
    if schema is None or schema.name == "aten::lift_fresh":
        return False
    if schema.name == "aten::_unsafe_view":  # it promises autograd that nobody has the other shape
        return True
    alias = schema.returns[0].alias_info if schema.returns else None
    return alias is not None and not alias.is_write


def is_composite(func: Any) -> bool:
    """Whether torch computes an operator by calling others, without a kernel of its own on any device.

    The method of the operator counts formulas in Python as well; a call of a kernel that is missing ends the process.
    """
    if not isinstance(func, OpOverload):
        return False
    name = func.name()
    return has_kernel(name, _COMPOSITE) and not any(has_kernel(name, key) for key in _DEVICE_KEYS)


def _notes(name: str, operator_class: str, arguments: list[str]) -> tuple[_Note, ...]:
    notes: list[_Note] = [_integer] if operator_class else []
    if operator_class == OperatorClass.ATTENTION:
        notes += [_flag("causal", at, arguments[at]) for at in range(len(arguments)) if "causal" in arguments[at]]
        notes += [_causal_mask(at, arguments[at]) for at in range(len(arguments)) if arguments[at] in _MASK_ARGUMENTS]
    if name in _SCORE_CHANGES:
        notes.append(_changes_scores)
    if operator_class == OperatorClass.CONVOLUTION:
        if "transposed" in arguments:
            notes.append(_flag("transposed", arguments.index("transposed"), "transposed"))
        if "groups" in arguments:
            notes.append(_depthwise(arguments.index("groups")))
    if name in ("aten.bmm", "aten.baddbmm"):
        notes.append(lambda call: "rank1" if _read_size(call.args[-2].shape[-1]) == 1 else "")
        notes.append(lambda call: "shared" if _is_repeated(call.args[-1]) or _is_repeated(call.args[-2]) else "")
    if name in MASK_FILLS:
        mask = 0 if name == "aten.where" else 1
        notes.append(lambda call: "pairs" if _is_pair_mask(call.args[mask]) and not _integer(call) else "")
        notes.append(_causal_mask(mask, arguments[mask]))
    return tuple(notes)


def _flag(note: str, at: int, name: str) -> _Note:
    return lambda call: note if (call.args[at] if at < len(call.args) else call.kwargs.get(name)) else ""


def _causal_mask(at: int, name: str) -> _Note:
    return lambda call: "causal" if is_causal(call.args[at] if at < len(call.args) else call.kwargs.get(name)) else ""


def _changes_scores(call: _Call) -> str:
    """Note a causal mask that is added to scores, or multiplied with them."""
    if not isinstance(call.result, torch.Tensor) or not is_square(call.result):
        return ""
    return "causal" if call.result.is_floating_point() and any(map(is_causal, call.args[:2])) else ""


def _depthwise(groups: int) -> _Note:
    """A convolution with a filter for each channel, which mixes no channels."""
    return lambda call: (
        "depthwise" if groups < len(call.args) and _is_depthwise(call.args[groups], call.args[1]) else ""
    )


def _is_depthwise(groups: int, filters: torch.Tensor) -> bool:
    return groups > 1 and _read_size(filters.shape[1]) == 1


def _is_repeated(matrices: torch.Tensor) -> bool:
    """Whether all matrices of a batch are one in memory. torch multiplies with one so when no gradient is needed."""
    return _read_size(matrices.shape[0]) > 1 and _read_size(matrices.stride(0)) == 0 and matrices.stride(-1) != 0


def _integer(call: _Call) -> str:
    first = call.result[0] if isinstance(call.result, (tuple, list)) and call.result else call.result
    floating = not isinstance(first, torch.Tensor) or first.is_floating_point() or first.is_complex()
    return "" if floating else "integer"


def _is_pair_mask(mask: Any) -> bool:
    return (
        isinstance(mask, torch.Tensor)
        and mask.dtype == torch.bool
        and mask.dim() >= 2
        and _read_size(mask.shape[-1]) > 1
        and _read_size(mask.shape[-2]) > 1
    )


def _read_size(size: Any) -> int:
    """A size; 0 when it depends on values that fake tensors do not have."""
    return size if isinstance(size, int) else 0
