"""The operators and objects of torch that a step file may name, each in a table. It imports torch.

People hand step files to each other, so a file is data: a name in it is looked up among the operators that torch's own
dispatcher lists, never followed as a path through modules (ADR 64). What torch lists there computes on tensors; what
takes a file, a device's stream or an object of a class is left out.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch

from pharoah.torch_names import OpOverload, find_operator, operator_names, schema_of

NAMESPACE = "aten"
"""The namespace of torch's own operators: `StepSaver` saves no others."""
_TYPES = {
    "Tensor", "int", "bool", "number", "float", "Device", "List[int]", "List[Tensor]", "List[number]", "List[bool]",
    "List[float]", "List[Optional[Tensor]]", "Optional[Tensor]", "Optional[int]", "Optional[float]", "Optional[bool]",
    "Optional[number]", "Optional[Device]", "Optional[List[int]]", "Optional[List[float]]", "Optional[Generator]",
}  # fmt: skip
"""Kinds of arguments that hold numbers and tensors. Dtypes, layouts and memory formats are `int` there; a generator has
no way into a file, and stays None."""
_TEXTS = {
    "norm", "reduce", "rounding_mode", "driver", "interpolation", "UPLO", "approximate", "ord", "padding", "side",
    "mode", "p", "activation", "pad_mode", "equation", "algorithm", "padding_side", "indexing",
}  # fmt: skip
"""Names of arguments whose text chooses a way to compute. No file name, module or message is among them."""
DTYPES = {str(one).removeprefix("torch."): one for one in vars(torch).values() if isinstance(one, torch.dtype)}
LAYOUTS = {str(one).removeprefix("torch."): one for one in vars(torch).values() if isinstance(one, torch.layout)}
MEMORY_FORMATS = {
    str(one).removeprefix("torch."): one for one in vars(torch).values() if isinstance(one, torch.memory_format)
}


class UnknownName(ValueError):
    """A name that stands in no table; the message names it."""


@cache
def operator_of(name: str) -> Any:
    """The operator of a name with its overload, such as `aten.mm.default`. Raises UnknownName."""
    if name not in _names():
        raise UnknownName(f"{name!r:.80} is no operator that this release of torch has and a step file may name")
    found = find_operator(name)
    if not isinstance(found, OpOverload) or not is_permitted(found):
        raise UnknownName(f"{name}: a step file may name no operator like this one")
    return found


@cache
def is_permitted(operator: Any) -> bool:
    """Whether an operator computes on numbers only: it is torch's own, draws no random numbers, and its schema has no
    argument through which a file, a library or an object could be reached."""
    if operator.namespace != NAMESPACE or torch.Tag.nondeterministic_seeded in operator.tags:
        return False
    for argument in schema_of(operator).arguments:
        stated = str(argument.type)
        is_text = stated in ("str", "Optional[str]") and argument.name in _TEXTS
        if not is_text and stated not in _TYPES:
            return False
    return True


@cache
def _names() -> frozenset[str]:
    """All names that the dispatcher lists, as `str` writes an overload."""
    listed = (one.partition("::") for one in (operator_names() if operator_names else ()))
    own = (name for space, _, name in listed if space == NAMESPACE)
    return frozenset(f"{NAMESPACE}.{name}" if "." in name else f"{NAMESPACE}.{name}.default" for name in own)
