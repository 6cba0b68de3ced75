"""Capture of one training step from torch's dispatcher. It imports torch, so only code that has torch imports it.

A dispatch mode costs microseconds per operator, so it is on for one or two steps only. It keeps operators, memory
identities as numbers, dtypes and byte counts, and never a tensor.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any, ClassVar, NamedTuple

import torch

from pharoah.capture import hardware
from pharoah.capture.inventory import versions
from pharoah.capture.operator_notes import COMPOSITE, Reader, Reading, are_plain, new, reader
from pharoah.torch_names import (
    NO_BACKWARD,
    TorchDispatchMode,
    calls_kernel,
    current_graph_task,
    find_loaded,
    find_operator,
    is_forward_grad_enabled,
)
from pharoah_archetypes import SERVES, Fingerprint, Operator, Skeleton, canonicalize
from pharoah_archetypes.inventory import inventory
from pharoah_archetypes.operators import BACKWARD, FORWARD, NO_GRAD, OPTIMIZER, RECOMPUTED, Phase
from pharoah_archetypes.vocabulary import vocabulary

MAX_OPERATORS = 1_000_000
"""A step with more operators is not recorded: their records would take gigabytes."""
_TOO_MANY = f"more than {MAX_OPERATORS:,} operators in one step"

_ELSEWHERE = reader(find_operator("aten.empty.memory_format"))
"""Stands for operators outside the structure that have written to memory."""
_NO_READING = Reading((), (), frozenset(), None, 0)


class Record(NamedTuple):
    """One operator that was dispatched."""

    operator: Reader
    phase: Phase
    call: Reading


class Recorder(TorchDispatchMode):
    """Records the operators that are dispatched while it is active. Its first own fault ends the recording."""

    # Without this a higher-order operator (flex attention, for one) raises under any mode.
    supports_higher_order_operators = True
    _plain: ClassVar[tuple[type[torch.Tensor], ...]] = (torch.Tensor, torch.nn.Parameter)
    """Types of tensors for which an operator has no other kernel than that of all tensors."""

    def __init__(self, most_aside: int = sys.maxsize, ended: Callable[[], None] = lambda: None) -> None:
        """After more than `most_aside` operators without gradients, which are no structure, the recording ends.
        `ended` is called when it ends by itself; the recorder cannot be taken off then, since an operator runs."""
        super().__init__()  # type: ignore[no-untyped-call]
        self.records: list[Record] = []
        self.broken = ""
        self.in_optimizer = False
        self.serves = False
        """Whether a model is called that may serve: what it computes is structure, with gradients or without."""
        self.served: list[Record] = []
        """What was recorded of such calls."""
        self._aside: set[int] = set()
        """Memory written without gradients since the last operator of the forward pass."""
        self._aside_left = most_aside
        self._ended = ended

    def give_up(self, reason: str) -> None:
        """From now on record nothing, and keep nothing of what was recorded."""
        self.broken = reason
        self.records.clear()
        self.served.clear()
        self._aside.clear()

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        """Without this, torch.compile gives up for good on every frame it first meets under the mode."""
        return True

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if types and is_distributed(types):
            return NotImplemented  # it is dispatched again for the local parts and for what is sent
        operator = self._operator(func)
        if operator is not None and operator.is_composite and self._is_decomposed(args, kwargs or {}):
            return self._decompose(func, args, kwargs or {})
        result = self._call(func, args, kwargs or {})
        if operator is not None and not self.broken:
            try:
                self._record(operator, args, kwargs, result)
            except Exception as fault:  # noqa: BLE001 - the user's operator has run; only the recording ends
                self.give_up(f"{type(fault).__name__}: {fault}")
            if self.broken:
                self._ended()
        return result

    def _operator(self, func: Any) -> Reader | None:
        """The reader of an operator; None when nothing is recorded any more."""
        try:
            return None if self.broken else reader(func)
        except Exception as fault:  # noqa: BLE001 - the user's operator is still to run; only the recording ends
            self.give_up(f"{type(fault).__name__}: {fault}")
            return None

    def _is_decomposed(self, args: Any, kwargs: Any) -> bool:
        """Whether an operator that is composed of others is seen as these."""
        return torch.is_inference_mode_enabled() and are_plain(args, kwargs, self._plain)

    def _decompose(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Call what an operator is composed of, as autograd does: in inference mode torch dispatches it whole."""
        with self:
            return calls_kernel(
                func, COMPOSITE, *args, **kwargs
            )  # `decompose` prefers formulas that autograd does not use

    def _record(self, operator: Reader, args: Any, kwargs: Any, result: Any) -> None:
        phase = self._phase()
        if self.serves:
            self.served.append(new(Record, (operator, FORWARD, operator.read(args, kwargs, result))))
        if operator.communicates:  # in every phase
            call = operator.read(args, kwargs, result)
            self.records.append(new(Record, (operator, FORWARD if phase == NO_GRAD else phase, call)))
        elif phase == NO_GRAD:
            self._aside.update(operator.read(args, kwargs, result, with_notes=False).writes)
            self._aside_left -= 1
        elif phase == FORWARD:
            if self._aside:  # the operators that computed it are not structure, but that memory has new content
                self.records.append(Record(_ELSEWHERE, NO_GRAD, _NO_READING._replace(writes=tuple(self._aside))))
                self._aside.clear()
            self.records.append(new(Record, (operator, phase, operator.read(args, kwargs, result))))
        elif phase != OPTIMIZER:
            self.records.append(new(Record, (operator, phase, _NO_READING)))
        if self._aside_left < 0 or len(self.records) > MAX_OPERATORS or len(self.served) > MAX_OPERATORS:
            self.give_up(_TOO_MANY)

    def _call(self, func: Any, args: Any, kwargs: Any) -> Any:
        return func(*args, **kwargs)

    def _phase(self) -> Phase:
        differentiable = torch.is_grad_enabled()
        if current_graph_task() != NO_BACKWARD:
            # Autograd computes without a graph; with one, a checkpoint runs its forward pass again.
            return RECOMPUTED if differentiable else BACKWARD
        if differentiable:
            return FORWARD
        if self.in_optimizer:
            return OPTIMIZER
        # An autograd function's own forward (a reentrant checkpoint, a custom kernel) runs without gradients of either
        # direction; evaluation and initialisation under no_grad keep the forward direction.
        inside_function = not is_forward_grad_enabled() and not torch.is_inference_mode_enabled()
        return FORWARD if inside_function else NO_GRAD


def is_distributed(types: Iterable[type]) -> bool:
    """Whether an operator is called with tensors that are spread over ranks. It never raises, since a job calls it."""
    distributed_tensor = find_loaded("DTensor")
    return distributed_tensor is not None and any(issubclass(kind, distributed_tensor) for kind in types)


def _ranks() -> dict[str, int]:
    """The number of ranks in a distributed job."""
    from torch import distributed

    joined = distributed.is_available() and distributed.is_initialized()
    return {"ranks": distributed.get_world_size()} if joined else {}


def prepare() -> None:
    """Read the files that a capture needs now, and not between two steps."""
    vocabulary()
    inventory()
    hardware.facts()
    canonicalize([])


def compiles_under_a_mode() -> bool:
    """Whether torch.compile survives a recorder: from torch 2.13 on, or when nothing is compiled."""
    return not is_compiled() or hasattr(TorchDispatchMode, "ignore_compile_internals")


def is_compiled() -> bool:
    """Whether torch.compile has compiled anything in this process."""
    utils = find_loaded("dynamo_utils")
    return utils is not None and bool(utils.counters["frames"].get("ok"))


def operators(records: Iterable[Record]) -> list[str]:
    """Names of the structural operators of the forward pass. A skeleton only has their classes."""
    return sorted(
        {record.operator.name for record in records if record.operator.operator_class and record.phase == FORWARD}
    )


def fingerprint(
    records: Iterable[Record], optimizers: Sequence[torch.optim.Optimizer], *, compiled: bool
) -> Fingerprint:
    """The fingerprint of a job, from the records of one step and the optimizers that ended it.

    Raises ValueError when the records hold no structure.
    """
    on_gpu = bool(hardware.list_simulated_gpus())  # a dry run has its parameters on the CPU
    families = {_optimizer_family(each, on_gpu) for each in optimizers if not _wraps(each)}
    groups = [group for optimizer in optimizers for group in optimizer.param_groups]
    parameters = [parameter for group in groups for parameter in group["params"]]
    return _fingerprint(records, parameters, {"optimizer": "+".join(sorted(families)) or "none"}, compiled=compiled)


def serving_fingerprint(records: Iterable[Record], models: Iterable[torch.nn.Module], *, compiled: bool) -> Fingerprint:
    """The fingerprint of a job that serves, from what one step's calls of its models recorded.

    Raises ValueError when the records hold no structure.
    """
    # Not the model's own `parameters`: it may be no method, or give something else.
    parameters = [parameter for model in models for parameter in torch.nn.Module.parameters(model)]
    return _fingerprint(records, parameters, {SERVES: "yes"}, compiled=compiled)


def _fingerprint(
    records: Iterable[Record], parameters: Iterable[torch.Tensor], features: dict[str, str], *, compiled: bool
) -> Fingerprint:
    records = list(records)
    skeleton = skeleton_of(records)
    if not skeleton.forward:
        raise ValueError("no operator with structure was seen in a step: does the script compute in another thread?")
    features = {
        "dtype": _compute_dtype(records),
        **features,
        **({"compiled": "yes"} if compiled else {}),
        **skeleton.features,
    }
    sizes = {"parameters": parameter_bytes(parameters), "activations": activation_bytes(records), **_ranks()}
    return Fingerprint(
        skeleton.archetype, skeleton.compute, skeleton.text, features, sizes, versions(), hardware.facts()
    )


def skeleton_of(records: Iterable[Record]) -> Skeleton:
    """The canonical form of the recorded operators of one step."""
    return canonicalize(
        Operator(record.operator.name, record.phase, record.call.reads, record.call.writes, record.call.notes)
        for record in records
    )


def parameter_bytes(parameters: Iterable[torch.Tensor]) -> int:
    """Bytes of parameters, each counted once."""
    return sum(p.numel() * p.element_size() for p in {id(p): p for p in parameters}.values())


def _compute_dtype(records: list[Record]) -> str:
    """The most frequent dtype of the contractions of the forward pass."""
    heavy = vocabulary().compute | {"embbag"}
    seen = Counter(
        record.call.dtype
        for record in records
        if record.phase == FORWARD and record.operator.operator_class in heavy and record.call.dtype
    )
    return str(seen.most_common(1)[0][0]).removeprefix("torch.") if seen else "none"


def activation_bytes(records: list[Record]) -> int:
    """Bytes that the forward pass writes, from its first structural operator on (before it, data is prepared)."""
    started, total = False, 0
    for record in records:
        if record.phase == FORWARD:
            started = started or bool(record.operator.operator_class)
            total += record.call.size if started else 0
    return total


def _wraps(optimizer: torch.optim.Optimizer) -> bool:
    """Whether an optimizer lets another one step, as ZeroRedundancyOptimizer does. The inner one steps as well, and is
    what the wrapper's parameters are updated by."""
    return isinstance(getattr(optimizer, "optim", None), torch.optim.Optimizer)


def _optimizer_family(optimizer: torch.optim.Optimizer, on_gpu: bool) -> str:
    """Name and implementation: `adamw/fused`, `adamw/foreach`, `sgd/forloop`."""
    return f"{type(optimizer).__name__.lower()}/{implementation(optimizer.param_groups[0], on_gpu)}"


def implementation(group: dict[str, Any], on_gpu: bool) -> str:
    """How torch updates a group of parameters: `fused`, `foreach` or `forloop`."""
    if group.get("fused"):
        return "fused"
    if group.get("foreach"):
        return "foreach"
    # None lets torch choose: foreach where all parameters are on an accelerator, a loop elsewhere.
    on_gpu = on_gpu or all(p.device.type == "cuda" for p in group["params"])
    return "foreach" if group.get("foreach") is None and on_gpu else "forloop"
