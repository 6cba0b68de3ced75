"""PyTorch execution traces: what `torch.profiler.ExecutionTraceObserver` writes (schema 1.0 and 1.1, `...-chakra`)."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Any, NamedTuple

from pharoah_provider.traces.calls import Call, NumberedCall, in_order, range_of
from pharoah_provider.traces.notes import Tensor, notes_of

_TENSOR_FIELDS = 6
"""Tensor number, storage number, offset, elements, bytes per element, device."""


class _Schema(NamedTuple):
    names: tuple[str, ...]
    is_view: bool
    """The result shares memory with an argument, and nothing is written."""


def calls_of(nodes: Iterable[dict[str, Any]]) -> list[Call]:
    """The calls in the order they began, nested as the trace says.

    Raises KeyError, TypeError or ValueError for a node that is none; OverflowError for more than MAX_CALLS.
    """
    return in_order(map(_call, nodes))


def _call(node: dict[str, Any]) -> NumberedCall:
    if "attrs" in node:  # schema 1.1
        facts = {fact["name"]: fact["value"] for fact in node["attrs"]}
        parent = int(node["ctrl_deps"])
        inputs, outputs = node["inputs"], node["outputs"]
        given = inputs["values"], inputs["shapes"], inputs["types"]
        made = outputs["values"], outputs["shapes"], outputs["types"]
    else:
        facts, parent = node, int(node["parent"])
        given = node["inputs"], node["input_shapes"], node["input_types"]
        made = node["outputs"], node["output_shapes"], node["output_types"]
    number, name = int(node["id"]), str(node["name"])
    call = Call(range_of(name), float(number), recorded=int(facts.get("seq_id", -1)) >= 0)
    schema = _schema(str(facts.get("op_schema", "")))
    reads, inputs_ = _tensors(*given)
    writes, outputs_ = _tensors(*made)
    call.reads = tuple(reads)
    call.writes = () if schema.is_view else tuple(writes)
    flags = {flag: value for flag, value in zip(schema.names, given[0], strict=False) if isinstance(value, bool)}
    call.notes = notes_of(name.replace("::", ".", 1), inputs_, outputs_[0] if outputs_ else None, flags)
    return NumberedCall(number=number, around=parent, call=call)


def _tensors(values: list[Any], shapes: list[Any], kinds: list[str]) -> tuple[list[int], list[Tensor]]:
    """Storage numbers and descriptions of all tensors among some arguments, those in lists included."""
    storages: list[int] = []
    tensors: list[Tensor] = []
    for value, shape, written in zip(values, shapes, kinds, strict=False):
        if written.startswith("Tensor(") and _is_tensor(value):
            storages.append(value[1])
            tensors.append(Tensor(tuple(shape), written[7:-1]))
        elif "[Tensor(" in written or ",Tensor(" in written:
            storages += [item[1] for item in value if _is_tensor(item)]
    return storages, tensors


def _is_tensor(value: Any) -> bool:
    return isinstance(value, list) and len(value) >= _TENSOR_FIELDS and isinstance(value[1], int)


@lru_cache(maxsize=4096)
def _schema(text: str) -> _Schema:
    """`aten::t(Tensor(a) self) -> Tensor(a)`: the arguments' names, and whether the result is a view."""
    arguments, _, result = text.partition("(")[2].rpartition(") -> ")
    names = [part.split("=")[0].split(" ")[-1] for part in re.split(r", (?![^\[(]*[\])])", arguments) if part != "*"]
    return _Schema(tuple(names), bool(re.match(r"\(?Tensor\(\w+\)", result)))
