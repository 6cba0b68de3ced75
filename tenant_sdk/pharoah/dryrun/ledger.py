"""What the operators of a dry run cost: floating-point operations, bytes, and the lifetimes of memory."""

from __future__ import annotations

import sys
import weakref
from array import array
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import torch

from pharoah.capture.operator_notes import Reader, storage_of
from pharoah.dryrun.flops import formula_of
from pharoah.dryrun.kernels import Kernels, Taken, are_known
from pharoah.dryrun.operator_traffic import bytes_of, count_moved_bytes, group_size, size_of
from pharoah.torch_names import (
    BACKWARD_CALLER,
    COMPILER_FRAMES,
    DisableTorchFunction,
    base_of,
    local_part,
    storage_number,
)
from pharoah_archetypes.operators import BACKWARD, FORWARD, NO_GRAD
from pharoah_archetypes.vocabulary import vocabulary


class OperatorCall(NamedTuple):
    """One call of an operator; equal calls are counted together."""

    phase: str
    name: str
    """As in the vocabulary: `aten.mm`."""
    dtype: str
    flops: int
    """Floating-point operations."""
    moved: int
    """Bytes that the call reads and writes."""


class CollectiveCall(NamedTuple):
    """One call of a collective; equal calls are counted together."""

    phase: str
    operator_class: str
    moved: int
    """Bytes of its larger side, inputs or outputs."""
    group_size: int
    """Number of ranks that take part."""


@dataclass
class Work:
    """Operators and collectives, counted."""

    operations: Counter[OperatorCall] = field(default_factory=Counter)
    transfers: Counter[CollectiveCall] = field(default_factory=Counter)

    @property
    def flops(self) -> int:
        """Floating-point operations of all operators."""
        return sum(call.flops * times for call, times in self.operations.items())

    def __add__(self, other: Work) -> Work:
        return Work(self.operations + other.operations, self.transfers + other.transfers)


class _Sum(NamedTuple):
    """A sum of two gradients."""

    key: int
    """Identity of the result's storage."""
    number: int
    """Number of the result's allocation."""
    first: int
    """Number of the allocation that autograd may have reused for the result."""


class AllocationLedger:
    """Records every operator, and each storage until it is freed."""

    def __init__(self, *, on_gpu: bool = False, kernels: bool = True) -> None:
        self._events: array[int] = array("q")
        self._sum: _Sum | None = None
        """The last operator, if autograd may do it in place in a real run."""
        self.work = Work()
        self.uncounted: set[str] = set()
        self.activations: set[int] = set()
        """Allocations of forward passes that a backward pass freed."""
        self.on_gpu: set[int] | None = set() if on_gpu else None
        """Allocations on the GPU: what the script puts there and what is computed from it. None: all of them count."""
        self._on_host: set[int] = set()
        """Allocations that the script has put into the memory of the host."""
        self._kernels = Kernels() if kernels and not on_gpu and are_known() else None
        self.of_kernels: set[int] = set()
        """Allocations that kernels made for themselves."""
        self.allocations = 0
        """Number of allocations so far."""
        self._forward: set[int] = set()
        self._phase: str = FORWARD
        self._numbers: dict[int, int] = {}
        """Storages alive, to the number of their allocation."""
        self._watches: dict[int, Any] = {}

    @property
    def events(self) -> array[int]:
        """As in `pharoah.cost.step.Memory`."""
        self._flush()
        return self._events

    def record(self, operator: Reader, phase: str, func: Any, args: Any, kwargs: Any, result: Any) -> None:
        """Record an operator that has run. Its results may be views of existing memory."""
        self._flush()
        self._phase = phase
        try:
            with DisableTorchFunction():
                self._enter_operator(operator, phase, func, args, kwargs, result)
        except Exception as fault:  # noqa: BLE001 - no storage, or a formula for other shapes: go on
            self.uncounted.add(f"{operator.name}: {fault}".partition("\n")[0][:100])

    def _enter_operator(self, operator: Reader, phase: str, func: Any, args: Any, kwargs: Any, result: Any) -> None:
        outputs = _tensors((result,))
        for output in outputs:
            self._watch(output)
        if operator.is_view:
            return
        inputs = _tensors((*args, *kwargs.values()))
        if phase == BACKWARD and operator.name == "aten.add" and len(inputs) == 2 and autograd_calls():
            self._sum = self._sum_of(inputs[0], outputs[0])
        if self._kernels:
            self._enter_kernel(self._kernels.take(func, tuple(map(local, args)), local(result)))
        outputs = outputs or _tensors(args[at] for at in operator.changes if at < len(args))
        if self.on_gpu and any(self.number_of(tensor) in self.on_gpu for tensor in inputs):
            self.place(output for output in outputs if not self.is_on_host(output))
        if operator.communicates:
            phase = FORWARD if phase == NO_GRAD else phase  # as in the skeleton
            larger = max(bytes_of(inputs), bytes_of(outputs))
            collective = CollectiveCall(
                phase=phase, operator_class=operator.operator_class, moved=larger, group_size=group_size(args)
            )
            self.work.transfers[collective] += 1
        else:
            flops = self._flops(operator, func, args, kwargs, result)
            dtype = str(outputs[0].dtype)[6:] if outputs else "none"
            moved = count_moved_bytes(operator, inputs, outputs)
            call = OperatorCall(phase=phase, name=operator.name, dtype=dtype, flops=flops, moved=moved)
            self.work.operations[call] += 1

    def _enter_kernel(self, taken: Taken) -> None:
        for size in filter(None, taken):
            number = self.allocate(size)
            self._forward.discard(number)
            self.of_kernels.add(number)
        if taken.passing:
            self._events.append(-self.allocations)

    def allocate(self, size: int, *, on_gpu: bool = False) -> int:
        """Record an allocation of `size` bytes. Returns its number."""
        self.events.append(size)
        self.allocations += 1
        if on_gpu and self.on_gpu is not None:
            self.on_gpu.add(self.allocations)
        if self._phase == FORWARD:
            self._forward.add(self.allocations)
        return self.allocations

    def free(self, number: int) -> None:
        """Record that an allocation is freed."""
        self.events.append(-number)

    def place(self, tensors: Iterable[torch.Tensor]) -> None:
        """Record that tensors are on the GPU."""
        if self.on_gpu is not None:
            placed = set(map(self.number_of, tensors)) - {0}
            self.on_gpu |= placed
            self._on_host -= placed

    def place_storage(self, storage: torch.UntypedStorage) -> None:
        """Record a storage on the GPU that no operator has made, such as one of a checkpoint."""
        if self.on_gpu is None:
            return
        if storage_number(storage) not in self._numbers:
            self._enter(storage_number(storage), storage)
        if number := self._numbers.get(storage_number(storage)):
            self.on_gpu.add(number)

    def keep_on_host(self, tensor: torch.Tensor) -> None:
        """Record that the script has a tensor in the memory of the host. What is written to it does not move it."""
        number = self.number_of(tensor)
        if self.on_gpu is not None and number:
            self.on_gpu.discard(number)
            self._on_host.add(number)

    def move(self, tensor: torch.Tensor) -> None:
        """Record that the memory of a tensor is freed where it is, and as much allocated elsewhere."""
        if self.number_of(tensor):
            self.resize(tensor.untyped_storage())

    def is_on_host(self, tensor: torch.Tensor) -> bool:
        """Whether the script has put a tensor into the memory of the host."""
        return self.on_gpu is not None and self.number_of(tensor) in self._on_host

    def is_on_gpu(self, tensor: torch.Tensor) -> bool:
        """Whether a tensor is on the GPU as far as is known; also where everything is."""
        return self.on_gpu is None or self.number_of(tensor) in self.on_gpu

    def everything_on_gpu(self) -> None:
        """Record that the script uses the GPU by default: all allocations count as being there."""
        self.on_gpu = None

    def cut(self) -> Work:
        """The work since the last cut."""
        work, self.work = self.work, Work()
        return work

    def number_of(self, tensor: torch.Tensor) -> int:
        """The number of a tensor's allocation; 0 when none was recorded or the tensor is sparse."""
        return self._numbers.get(storage_of(tensor), 0) if tensor.layout is torch.strided else 0

    def ignore(self, tensor: torch.Tensor) -> None:
        """Do not count the memory of a tensor."""
        self._numbers[storage_of(tensor)] = 0

    def resize(self, storage: torch.UntypedStorage) -> None:
        """Record a new size of a storage: sharded parameters are freed between their uses."""
        key = storage_number(storage)
        self._note_death(key, None)
        self._enter(key, storage)

    def _watch(self, tensor: torch.Tensor) -> None:
        if tensor.layout is not torch.strided:
            return
        key = storage_of(tensor)
        if key not in self._numbers:
            self._enter(key, tensor.untyped_storage())

    def _enter(self, key: int, storage: torch.UntypedStorage) -> None:
        size = storage.nbytes()
        if type(size) is not int or size == 0:
            return
        self._watches[key] = weakref.ref(storage, partial(self._note_death, key))
        self._numbers[key] = self.allocate(size)

    def _note_death(self, key: int, _: object) -> None:
        self._watches.pop(key, None)
        number = self._numbers.pop(key, None)
        if not number:
            return
        self._events.append(-number)
        if number in self._forward:
            self._forward.discard(number)
            if self._phase == BACKWARD:
                self.activations.add(number)

    def _sum_of(self, first: torch.Tensor, output: torch.Tensor) -> _Sum | None:
        """The sum that autograd may make in place: never into a view, whose base holds another reference."""
        whole = base_of(first) is None and size_of(first) == first.untyped_storage().nbytes()
        number = self.number_of(output)
        if not whole or number != self.allocations or self._events[-1] < 0:
            return None
        return _Sum(storage_of(output), number, self.number_of(first))

    def _flush(self) -> None:
        """Undo the allocation of a sum of gradients that autograd makes in place in a real run.

        Autograd adds to the first gradient when it holds the only reference (torch/csrc/autograd/input_buffer.cpp); it
        does not with fake tensors. It held the only reference if that gradient has been freed since.
        """
        if self._sum is None:
            return
        (key, number, first), self._sum = self._sum, None
        at = len(self._events) - 1
        while self._events[at] < 0:
            at -= 1
        died = self._events[at + 1 :]
        if first and -first in died:
            self._events[at:] = array("q", (-first if event == -number else event for event in died if event != -first))
            self.allocations -= 1
            if self.on_gpu is not None:
                self.on_gpu.discard(number)  # the next allocation has this number
                self._on_host.discard(number)
            if key in self._numbers:
                self._numbers[key] = first

    def _flops(self, operator: Reader, func: Any, args: Any, kwargs: Any, result: Any) -> int:
        if formula := formula_of(func):
            return int(formula(*map(local, args), **kwargs, out_val=local(result)))
        if operator.operator_class in vocabulary().compute:
            self.uncounted.add(operator.name)
        return 0


def autograd_calls() -> bool:
    """Whether autograd itself called the operator that is being recorded, and not a Python function."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith(("pharoah.", COMPILER_FRAMES)):
        frame = frame.f_back
    return frame.f_code.co_name == BACKWARD_CALLER


def local(value: Any) -> Any:
    """This rank's part of a distributed tensor; every other value unchanged."""
    return local_part(value)


def _tensors(arguments: Iterable[Any]) -> list[torch.Tensor]:
    """The tensors among arguments and in lists of them; this rank's parts of distributed tensors."""
    found: list[torch.Tensor] = []
    for argument in arguments:
        if isinstance(argument, torch.Tensor):
            found.append(local(argument))
        elif isinstance(argument, (list, tuple)):
            found += _tensors(argument)
    return found
