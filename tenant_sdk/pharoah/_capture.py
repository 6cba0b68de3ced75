"""Capture of one training step from torch's dispatcher. Imports torch, so it is imported only where torch already is.

A dispatch mode costs microseconds per operator whatever it does, so it is a probe: on for a step or two, then gone.
It keeps names, dtypes and byte counts, never a tensor.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from functools import cache
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from pharoah._inventory import versions
from pharoah_archetypes import Fingerprint, Operator, canonicalize
from pharoah_archetypes.vocabulary import vocabulary

_COMPUTE = {"gemm", "bmm", "conv", "attn", "embbag", "rnn"}

Record = tuple[Any, str, torch.dtype | None, int]
"""Operator, phase, dtype and bytes of what it returned."""


class Recorder(TorchDispatchMode):
    """Records the operators dispatched while it is active. The first fault of its own switches the recording off."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.records: list[Record] = []
        self.broken = ""
        self.in_optimizer = False

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        """Without this, torch.compile gives up for good on every frame it first meets under the mode."""
        return True

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if not self.broken:
            try:
                self.records.append((func, self._phase(), *_described(result)))
            except Exception as fault:  # noqa: BLE001 - the user's operator has run; only the recording ends
                self.broken = f"{type(fault).__name__}: {fault}"
        return result

    def _phase(self) -> str:
        if torch._C._current_graph_task_id() != -1:
            return "bwd"
        if self.in_optimizer:
            return "opt"
        # Without gradients it is an evaluation or an initialisation, not the step.
        return "fwd" if torch.is_grad_enabled() else "aside"


def fingerprint(
    records: Iterable[Record], parameter_bytes: int, optimizer: torch.optim.Optimizer | None
) -> Fingerprint:
    """What the records of one step say about the job. Raises ValueError when there is no structure in them."""
    records = list(records)
    skeleton = canonicalize(Operator(_packet(func), phase) for func, phase, _, _ in records)
    if not skeleton.text:
        raise ValueError("no operator with structure was seen before the optimizer stepped")
    features = {
        "dtype": _compute_dtype(records),
        "optimizer": _optimizer_family(optimizer),
        **skeleton.features,
    }
    sizes = {"parameters": parameter_bytes, "activations": _activation_bytes(records)}
    return Fingerprint(skeleton.archetype, skeleton.text, features, sizes, versions())


def parameter_bytes(optimizer: torch.optim.Optimizer) -> int:
    return sum(p.numel() * p.element_size() for group in optimizer.param_groups for p in group["params"])


def _described(result: Any) -> tuple[torch.dtype | None, int]:
    outputs = result if isinstance(result, (tuple, list)) else (result,)
    dtype, size = None, 0
    for output in outputs:
        if isinstance(output, torch.Tensor):
            dtype = dtype or output.dtype
            size += int(output.numel()) * output.element_size()
    return dtype, size


@cache
def _packet(func: Any) -> str:
    return (
        str(func.name()).replace("::", ".").rpartition(".")[0]
        if _has_overload(func)
        else str(func.name()).replace("::", ".")
    )


def _has_overload(func: Any) -> bool:
    return bool(func._overloadname) and func._overloadname != "default"


@cache
def _is_view(func: Any) -> bool:
    returns = func._schema.returns
    return bool(returns) and returns[0].alias_info is not None


def _compute_dtype(records: list[Record]) -> str:
    classes = vocabulary().classes
    seen = Counter(
        dtype for func, phase, dtype, _ in records if phase == "fwd" and classes.get(_packet(func)) in _COMPUTE
    )
    return str(seen.most_common(1)[0][0]).removeprefix("torch.") if seen else "none"


def _activation_bytes(records: list[Record]) -> int:
    """Bytes the forward pass writes, from its first structural operator on (what comes before prepares data)."""
    classes, started, total = vocabulary().classes, False, 0
    for func, phase, _, size in records:
        if phase == "fwd":
            started = started or _packet(func) in classes
            total += size if started and not _is_view(func) else 0
    return total


def _optimizer_family(optimizer: torch.optim.Optimizer | None) -> str:
    """Name and implementation: `adamw/fused`, `adamw/foreach`, `sgd/forloop`."""
    if optimizer is None:
        return "none"
    group = optimizer.param_groups[0]
    if group.get("fused"):
        kind = "fused"
    elif group.get("foreach"):
        kind = "foreach"
    else:
        # None lets torch choose: foreach where all parameters are on an accelerator, a loop elsewhere.
        chosen = group.get("foreach") is None and all(p.device.type == "cuda" for p in group["params"])
        kind = "foreach" if chosen else "forloop"
    return f"{type(optimizer).__name__.lower()}/{kind}"
