"""Collectives on fake tensors for releases of torch that have no kernels for them: 2.4 to 2.10.

A collective changes what it is given, or writes to it, and returns a handle to wait for. So its kernel returns its own
argument and a handle of work that is done. Runs in the dry-run child only, and is not undone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from pharoah.torch_names import find_operator, has_kernel, operator_names, schema_of

_FAKES, _REAL = "Meta", "CPU"
_WAIT_MILLISECONDS = 1000
"""For a collective that ends at once."""
_registered: list[torch.library.Library] = []
"""Registrations end with the object that made them."""


def communicate_with_fakes() -> None:
    """Register what is missing. The process group is joined, and no mode is on."""
    names = [name.removeprefix("c10d::") for name in operator_names() if name.startswith("c10d::")]
    missing = [one for one in names if has_kernel(f"c10d::{one}", _REAL) and not has_kernel(f"c10d::{one}", _FAKES)]
    if not missing or _registered:
        return
    everybody: Any = torch.distributed.group.WORLD
    work = find_operator("c10d.barrier")(torch.zeros(1), everybody.boxed(), [], _WAIT_MILLISECONDS)
    library = torch.library.Library("c10d", "IMPL")
    _registered.append(library)
    for name in missing:
        library.impl(name, _kernel(name, work), _FAKES)


def _kernel(name: str, work: Any) -> Callable[..., Any]:
    returned = len(schema_of(find_operator(f"c10d.{name}.default")).returns)
    if not returned:
        return lambda *_: None
    return (lambda *_: work) if returned == 1 else (lambda *args: (args[0], work))
