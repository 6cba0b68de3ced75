"""Arguments of operators as JSON, and back. A tensor is a view of a numbered storage. It imports torch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from pharoah.replay.operators import DTYPES, LAYOUTS, MEMORY_FORMATS
from pharoah.torch_names import schema_of

SCRATCH = {
    "aten.mkldnn_rnn_layer.default": 3,
    "aten._cudnn_rnn.default": 3,
    "aten.cudnn_batch_norm.default": 3,
}
"""Operators that return, at this position, memory for their backward: some of its bits are undefined."""
_NAMED = {torch.dtype: "dtype", torch.layout: "layout", torch.memory_format: "memory_format"}
_OBJECTS: dict[str, Mapping[str, Any]] = {"dtype": DTYPES, "layout": LAYOUTS, "memory_format": MEMORY_FORMATS}
"""Kind of an object of torch to all that there are, by name."""
_DEVICES = ("cpu", "cuda")
"""What a file may name: the node chooses which of its GPUs."""


class NotWritable(ValueError):
    """An argument that cannot be saved; the message names it."""


def tensors(value: Any) -> Iterator[Tensor]:
    """All tensors in nested lists, tuples and dictionaries."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for part in value:
            yield from tensors(part)
    elif isinstance(value, dict):
        for part in value.values():
            yield from tensors(part)


def find_changed(operator: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Iterator[Tensor]:
    """The tensors that an operator writes to, by its schema."""
    schema = schema_of(operator)
    for at, argument in enumerate(schema.arguments if schema is not None else ()):
        if argument.alias_info is not None and argument.alias_info.is_write:
            yield from tensors(args[at] if at < len(args) else kwargs.get(argument.name))


def is_view(operator: Any) -> bool:
    """Whether an operator computes nothing and returns views of its arguments, by its schema."""
    schema = schema_of(operator)
    if schema is None or any(one.alias_info is not None and one.alias_info.is_write for one in schema.arguments):
        return False
    return any(one.alias_info is not None for one in schema.returns)


def find_computed(operator: Any, args: Sequence[Any], kwargs: Mapping[str, Any], result: Any) -> list[Tensor]:
    """Everything that an operator has computed: what it changed, and what it returned beside it."""
    touched = list(find_changed(operator, args, kwargs))
    if (scratch := SCRATCH.get(str(operator))) is not None:
        result = [one for at, one in enumerate(result) if at != scratch]
    return [*touched, *(one for one in tensors(result) if all(one is not other for other in touched))]


def write(value: Any, number: Callable[[Tensor], int]) -> Any:
    """A value as JSON has it; `number` gives the number of a tensor's storage. Raises NotWritable."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, Tensor):
        return _tensor(value, number(value))
    if isinstance(value, (list, tuple)):
        return [write(part, number) for part in value]
    if isinstance(value, torch.device):
        return {"device": value.type}
    if isinstance(value, complex):
        return {"complex": [value.real, value.imag]}
    if (kind := _NAMED.get(type(value))) is not None:
        return {kind: str(value).removeprefix("torch.")}
    raise NotWritable(f"an operator has an argument of the type {type(value).__name__}")


def read(value: Any, storages: Mapping[int, torch.UntypedStorage]) -> Any:
    """What `write` wrote. Raises ValueError for anything else: whatever stands in a file."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, list):
        return [read(part, storages) for part in value]
    if isinstance(value, dict) and "storage" in value:
        return _view(value, storages)
    if isinstance(value, dict) and len(value) == 1:
        ((what, content),) = value.items()
        if what in _OBJECTS and isinstance(content, str) and content in _OBJECTS[what]:
            return _OBJECTS[what][content]
        if what == "device" and content in _DEVICES:
            return torch.device(content)
        if what == "complex" and isinstance(content, list) and [type(part) for part in content] == [float, float]:
            return complex(*content)
    raise ValueError(f"{value!r:.80} is no argument of an operator")


def _tensor(tensor: Tensor, storage: int) -> dict[str, Any]:
    if tensor.layout is not torch.strided or tensor.is_quantized or tensor.is_conj() or tensor.is_neg():
        raise NotWritable(f"an operator has a tensor that is {tensor.layout}, quantized, or conjugated lazily")
    return {
        "storage": storage,
        "dtype": str(tensor.dtype).removeprefix("torch."),
        "offset": tensor.storage_offset(),
        "size": list(tensor.shape),
        "stride": list(tensor.stride()),
    }


def _view(value: Mapping[str, Any], storages: Mapping[int, torch.UntypedStorage]) -> Tensor:
    """A tensor, which must lie within its storage: torch would otherwise make the storage larger."""
    storage, dtype = storages.get(value["storage"]), DTYPES.get(value.get("dtype", ""))
    offset, size, stride = value.get("offset"), value.get("size"), value.get("stride")
    if storage is None or dtype is None or not all(map(_are_counts, ([offset], size, stride))):
        raise ValueError(f"a tensor without storage, dtype, offset, size or stride: {value!r:.80}")
    assert isinstance(offset, int) and isinstance(size, list) and isinstance(stride, list)
    last = offset + sum((count - 1) * step for count, step in zip(size, stride, strict=True))
    if 0 not in size and (last + 1) * dtype.itemsize > storage.nbytes():
        raise ValueError(f"a tensor that is larger than its storage of {storage.nbytes():,} bytes")
    return torch.empty(0, dtype=dtype, device=storage.device).set_(storage, offset, size, stride)


def _are_counts(value: object) -> bool:
    return isinstance(value, list) and all(type(one) is int and one >= 0 for one in value)
