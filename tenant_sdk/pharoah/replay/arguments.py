"""Arguments of operators as JSON, and back. A tensor is a view of a numbered storage. It imports torch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

SCRATCH = {
    "aten.mkldnn_rnn_layer.default": 3,
    "aten._cudnn_rnn.default": 3,
    "aten.cudnn_batch_norm.default": 3,
}
"""Operators that return, at this position, memory for their backward: some of its bits are undefined."""
_NAMED = {torch.dtype: "dtype", torch.layout: "layout", torch.memory_format: "memory_format"}


_READ: dict[str, Callable[[Any], Any]] = {"device": torch.device, "complex": lambda parts: complex(*parts)}
"""What is not an object of torch with its name."""


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


def changed(operator: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Iterator[Tensor]:
    """The tensors that an operator writes to, by its schema."""
    schema = getattr(operator, "_schema", None)
    for at, argument in enumerate(schema.arguments if schema is not None else ()):
        if argument.alias_info is not None and argument.alias_info.is_write:
            yield from tensors(args[at] if at < len(args) else kwargs.get(argument.name))


def is_view(operator: Any) -> bool:
    """Whether an operator computes nothing and returns views of its arguments, by its schema."""
    schema = getattr(operator, "_schema", None)
    if schema is None or any(one.alias_info is not None and one.alias_info.is_write for one in schema.arguments):
        return False
    return any(one.alias_info is not None for one in schema.returns)


def computed(operator: Any, args: Sequence[Any], kwargs: Mapping[str, Any], result: Any) -> list[Tensor]:
    """Everything that an operator has computed: what it changed, and what it returned beside it."""
    touched = list(changed(operator, args, kwargs))
    if (scratch := SCRATCH.get(str(operator))) is not None:
        result = [one for at, one in enumerate(result) if at != scratch]
    return [*touched, *(one for one in tensors(result) if all(one is not other for other in touched))]


def written(value: Any, number: Callable[[Tensor], int]) -> Any:
    """A value as JSON has it; `number` gives the number of a tensor's storage. Raises NotWritable."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, Tensor):
        return _tensor(value, number(value))
    if isinstance(value, (list, tuple)):
        return [written(part, number) for part in value]
    if isinstance(value, torch.device):
        return {"device": value.type}
    if isinstance(value, complex):
        return {"complex": [value.real, value.imag]}
    if (kind := _NAMED.get(type(value))) is not None:
        return {kind: str(value).removeprefix("torch.")}
    raise NotWritable(f"an operator has an argument of the type {type(value).__name__}")


def read(value: Any, storages: dict[int, torch.UntypedStorage]) -> Any:
    """What `written` wrote."""
    if isinstance(value, list):
        return [read(part, storages) for part in value]
    if not isinstance(value, dict):
        return value
    if "storage" in value:
        return _view(value, storages[value["storage"]])
    (kind, content), *_ = value.items()
    return _READ.get(kind, lambda name: getattr(torch, name))(content)


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


def _view(value: dict[str, Any], storage: torch.UntypedStorage) -> Tensor:
    empty = torch.empty(0, dtype=getattr(torch, value["dtype"]), device=storage.device)
    return empty.set_(storage, value["offset"], value["size"], value["stride"])
