"""What an update allocates and computes: the optimizer's own code runs on stand-ins for one parameter of each shape.

A model with billions of weights has hundreds of parameters, but only about a dozen different shapes.
"""

from __future__ import annotations

from array import array
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Iterable, Sequence
from enum import Enum, auto
from itertools import zip_longest
from typing import Any, NamedTuple

import torch

from pharoah.capture.hardware import list_simulated_gpus
from pharoah.capture.recorder import implementation
from pharoah.cost.step import EventKind, MemoryEvent, decode
from pharoah.dryrun.dry_recorder import DryRecorder
from pharoah.dryrun.ledger import AllocationLedger, OperatorCall, Work, local


class _UpdateEventKind(Enum):
    ALLOCATE = auto()
    FREE = auto()
    """It frees an allocation that was made for the same parameter."""
    FREE_PREVIOUS = auto()
    """It frees an allocation that was made for the parameter before."""


class _UpdateEvent(NamedTuple):
    """What the update of one parameter does to memory."""

    kind: _UpdateEventKind
    number: int
    """Bytes of an allocation; the number of the allocation that is freed, counted from 1 for each parameter."""


class _Template(NamedTuple):
    """One parameter's part of an update."""

    state: tuple[int, ...] = ()
    """Sizes in bytes of what the first update allocates and keeps."""
    events: tuple[_UpdateEvent, ...] = ()
    work: Work = Work()


class OptimizerCost:
    """Records updates that are not computed in the ledger of a recorder."""

    def __init__(self, recorder: DryRecorder) -> None:
        self._recorder = recorder
        self._stepped: set[int] = set()
        self._templates: dict[Any, _Template] = {}

    def enter(self, optimizer: torch.optim.Optimizer) -> None:
        """Record what this step of an optimizer would do to the parameters that have gradients."""
        for at, group in enumerate(optimizer.param_groups):
            parameters = [p for p in group["params"] if p.grad is not None]
            if not parameters:
                continue
            ledger = self._recorder.ledger
            on_gpu = ledger.on_gpu is not None and ledger.number_of(local(parameters[0])) in ledger.on_gpu
            together = implementation(group, on_gpu=bool(list_simulated_gpus())) != "forloop"
            templates = [self._template(optimizer, at, parameter, together) for parameter in parameters]
            if id(optimizer) not in self._stepped:
                for template in templates:
                    for size in template.state:
                        ledger.allocate(size, on_gpu=on_gpu)
            works = [template.work for template in templates]
            self._allocate([template.events for template in templates], together, on_gpu)
            ledger.work += _together(works) if together else sum(works, Work())
        self._stepped.add(id(optimizer))

    def _allocate(self, parts: Sequence[Sequence[_UpdateEvent]], together: bool, on_gpu: bool) -> None:
        """Enter the events of all parameters, interleaved or one parameter after the other."""
        ordered: Iterable[tuple[int, _UpdateEvent]]
        if together:
            rows = zip_longest(*parts)
            ordered = ((at, event) for row in rows for at, event in enumerate(row) if event)
        else:
            ordered = ((at, event) for at, part in enumerate(parts) for event in part)
        ledger, made, numbers = self._recorder.ledger, Counter[int](), dict[tuple[int, int], int]()
        """`numbers`: parameter and number of its allocation to the allocation in the ledger."""
        for at, event in ordered:
            if event.kind is _UpdateEventKind.ALLOCATE:
                made[at] += 1
                numbers[at, made[at]] = ledger.allocate(event.number, on_gpu=on_gpu)
                continue
            owner = at - 1 if event.kind is _UpdateEventKind.FREE_PREVIOUS else at
            if (owner, event.number) in numbers:
                ledger.free(numbers.pop((owner, event.number)))
        for number in numbers.values():
            ledger.free(number)

    def _template(
        self, optimizer: torch.optim.Optimizer, group: int, parameter: torch.Tensor, together: bool
    ) -> _Template:
        key = id(optimizer), group, local(parameter).shape, parameter.dtype
        if key not in self._templates:
            ledger, self._recorder.on_stand_ins = self._recorder.ledger, True
            try:
                self._templates[key] = self._measure(optimizer, group, parameter, together)
            except Exception as fault:  # noqa: BLE001 - code of any optimizer; the step itself is recorded
                ledger.uncounted.add(f"update of {type(optimizer).__name__}: {fault}")
                self._templates[key] = _Template()
            finally:
                self._recorder.ledger, self._recorder.on_stand_ins = ledger, False
        return self._templates[key]

    def _measure(
        self, optimizer: torch.optim.Optimizer, group: int, parameter: torch.Tensor, together: bool
    ) -> _Template:
        self._recorder.ledger = AllocationLedger(kernels=False)  # it does not count how the stand-ins are made
        clone = _clone(optimizer, group, parameter, 1 if together else 2)
        ledger = self._recorder.ledger = AllocationLedger(kernels=False)
        for stand_in in clone.param_groups[0]["params"]:
            for tensor in (stand_in, stand_in.grad, *clone.state[stand_in].values()):
                if isinstance(tensor, torch.Tensor):
                    ledger.ignore(tensor)
        # The wrapped function has no hooks: they would take this for a step of the job.
        step: Any = getattr(type(optimizer).step, "__wrapped__", type(optimizer).step)
        step(clone)
        state = _find_kept(ledger.events)
        end, made, _ = len(ledger.events), ledger.allocations, ledger.cut()
        step(clone)
        events = [
            event if event.kind is EventKind.ALLOCATE else event._replace(number=event.number - made)
            for event in decode(ledger.events[end:])
            if event.kind is EventKind.ALLOCATE or event.number > made
        ]
        work = ledger.cut()
        if together:
            return _Template(state, _select_one_parameter(events), work)
        halved = Counter({row: times // 2 for row, times in work.operations.items()})
        return _Template(state[: len(state) // 2], _second_half(events), Work(halved))


def _clone(optimizer: torch.optim.Optimizer, group: int, parameter: torch.Tensor, count: int) -> Any:
    """The same optimizer before its first step, with `count` copies of a parameter; 1 selects the foreach version."""
    clone: Any = object.__new__(type(optimizer))
    clone.__dict__.update(optimizer.__dict__)
    clone._optimizer_step_pre_hooks, clone._optimizer_step_post_hooks = OrderedDict(), OrderedDict()
    settings = dict(optimizer.param_groups[group])
    if not settings.get("fused"):
        settings["foreach"] = count == 1
    stand_ins = []
    clone.state = defaultdict(dict)
    for _ in range(count):
        stand_in = torch.nn.Parameter(_like(parameter))
        stand_in.grad = _like(parameter)
        stand_ins.append(stand_in)
        clone.state[stand_in] = {name: _like(value) for name, value in optimizer.state.get(parameter, {}).items()}
    clone.param_groups = [{**settings, "params": stand_ins}]
    return clone


def _like(value: Any) -> Any:
    value = local(value)
    return torch.empty(value.shape, dtype=value.dtype) if isinstance(value, torch.Tensor) else value


def _find_kept(events: array[int]) -> tuple[int, ...]:
    """Sizes of the allocations that are not freed."""
    sizes = dict(enumerate((event for event in events if event > 0), 1))
    for event in events:
        if event < 0:
            sizes.pop(-event)
    return tuple(sizes.values())


def _select_one_parameter(events: Sequence[MemoryEvent]) -> tuple[_UpdateEvent, ...]:
    kinds = {EventKind.ALLOCATE: _UpdateEventKind.ALLOCATE, EventKind.FREE: _UpdateEventKind.FREE}
    return tuple(_UpdateEvent(kinds[event.kind], event.number) for event in events)


def _second_half(events: Sequence[MemoryEvent]) -> tuple[_UpdateEvent, ...]:
    """The events of the second parameter, from those of two parameters in a row.

    The variables of a loop keep their values until the next iteration. So the update of one parameter may free an
    allocation that was made for the parameter before.
    """
    made = [at for at, event in enumerate(events) if event.kind is EventKind.ALLOCATE]
    half = len(made) // 2
    start = made[half] if made else 0
    freed_in_time = {event.number for event in events[:start] if event.kind is EventKind.FREE}
    part: list[_UpdateEvent] = []
    for event in events[start:]:
        if event.kind is EventKind.ALLOCATE:
            part.append(_UpdateEvent(_UpdateEventKind.ALLOCATE, event.number))
        elif event.number <= half:
            part.append(_UpdateEvent(_UpdateEventKind.FREE_PREVIOUS, event.number))
        elif event.number - half in freed_in_time:
            part.append(_UpdateEvent(_UpdateEventKind.FREE, event.number - half))
    return tuple(part)


def _together(works: Sequence[Work]) -> Work:
    """The work of one call for all parameters instead of one call for each."""
    moved, calls = Counter[tuple[str, str, str]](), Counter[tuple[str, str, str]]()
    for work in works:
        own = Counter[tuple[str, str, str]]()
        for (phase, name, dtype, _, size), count in work.operations.items():
            moved[phase, name, dtype] += size * count
            own[phase, name, dtype] += count
        calls |= own
    together = Counter[OperatorCall]()
    for (phase, name, dtype), size in moved.items():
        times = calls[phase, name, dtype]
        together[OperatorCall(phase=phase, name=name, dtype=dtype, flops=0, moved=size // times)] = times
    return Work(together)
