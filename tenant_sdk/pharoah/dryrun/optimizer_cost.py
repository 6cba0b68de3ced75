"""What an update allocates and computes: the optimizer's own code on stand-ins for one parameter of each shape.

A model of billions of parameters has hundreds of them, in a dozen shapes.
"""

from __future__ import annotations

from array import array
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Iterable, Sequence
from itertools import zip_longest
from typing import Any, NamedTuple

import torch

from pharoah.capture.hardware import simulated_gpus
from pharoah.capture.recorder import implementation
from pharoah.dryrun.dry_recorder import DryRecorder
from pharoah.dryrun.ledger import AllocationLedger, Work, local

_BEFORE = 1 << 32
"""Added to the number of an allocation that was made for the parameter before."""


class _Template(NamedTuple):
    """One parameter's part of an update."""

    state: tuple[int, ...] = ()
    """Sizes of what the first update makes and keeps."""
    events: tuple[int, ...] = ()
    """As in `pharoah.cost.step.Memory`, with numbers of its own."""
    work: Work = Work()


class OptimizerCost:
    """Enters updates that do not happen into the ledger of a recorder."""

    def __init__(self, recorder: DryRecorder) -> None:
        self._recorder = recorder
        self._stepped: set[int] = set()
        self._templates: dict[Any, _Template] = {}

    def enter(self, optimizer: torch.optim.Optimizer) -> None:
        """What this step of an optimizer would do to the parameters that have gradients."""
        for at, group in enumerate(optimizer.param_groups):
            parameters = [p for p in group["params"] if p.grad is not None]
            if not parameters:
                continue
            ledger = self._recorder.ledger
            on_gpu = ledger.on_gpu is not None and ledger.number_of(local(parameters[0])) in ledger.on_gpu
            together = implementation(group, on_gpu=bool(simulated_gpus())) != "forloop"
            templates = [self._template(optimizer, at, parameter, together) for parameter in parameters]
            if id(optimizer) not in self._stepped:
                for template in templates:
                    for size in template.state:
                        ledger.allocate(size, on_gpu=on_gpu)
            works = [template.work for template in templates]
            self._allocate([template.events for template in templates], together, on_gpu)
            ledger.work += _together(works) if together else sum(works, Work())
        self._stepped.add(id(optimizer))

    def _allocate(self, parts: Sequence[Sequence[int]], together: bool, on_gpu: bool) -> None:
        """Enter the events of all parameters: one after the other, or side by side."""
        ordered: Iterable[tuple[int, int]]
        if together:
            rows = zip_longest(*parts, fillvalue=0)
            ordered = ((at, event) for row in rows for at, event in enumerate(row))
        else:
            ordered = ((at, event) for at, part in enumerate(parts) for event in part)
        ledger, made, numbers = self._recorder.ledger, Counter[int](), dict[tuple[int, int], int]()
        for at, event in ordered:
            if event > 0:
                made[at] += 1
                numbers[at, made[at]] = ledger.allocate(event, on_gpu=on_gpu)
            elif event < 0:
                owner = (at - 1, -event - _BEFORE) if -event > _BEFORE else (at, -event)
                if owner in numbers:
                    ledger.events.append(-numbers.pop(owner))
        ledger.events.extend(-number for number in numbers.values())

    def _template(
        self, optimizer: torch.optim.Optimizer, group: int, parameter: torch.Tensor, together: bool
    ) -> _Template:
        key = id(optimizer), group, local(parameter).shape, parameter.dtype
        if key not in self._templates:
            ledger, self._recorder.pretending = self._recorder.ledger, True
            try:
                self._templates[key] = self._tried(optimizer, group, parameter, together)
            except Exception as fault:  # noqa: BLE001 - code of any optimizer; the job's step has been seen
                ledger.uncounted.add(f"update of {type(optimizer).__name__}: {fault}")
                self._templates[key] = _Template()
            finally:
                self._recorder.ledger, self._recorder.pretending = ledger, False
        return self._templates[key]

    def _tried(
        self, optimizer: torch.optim.Optimizer, group: int, parameter: torch.Tensor, together: bool
    ) -> _Template:
        self._recorder.ledger = AllocationLedger(kernels=False)  # the stand-ins are there before
        clone = _clone(optimizer, group, parameter, 1 if together else 2)
        ledger = self._recorder.ledger = AllocationLedger(kernels=False)
        for stand_in in clone.param_groups[0]["params"]:
            for tensor in (stand_in, stand_in.grad, *clone.state[stand_in].values()):
                if isinstance(tensor, torch.Tensor):
                    ledger.overlook(tensor)
        # Past the hooks that all optimizers have.
        step: Any = getattr(type(optimizer).step, "__wrapped__", type(optimizer).step)
        step(clone)
        state = _kept(ledger.events)
        end, made, _ = len(ledger.events), ledger.allocations, ledger.cut()
        step(clone)
        events = [event if event > 0 else event + made for event in ledger.events[end:] if event > 0 or -event > made]
        work = ledger.cut()
        if together:
            return _Template(state, tuple(events), work)
        halved = Counter({row: times // 2 for row, times in work.operations.items()})
        return _Template(state[: len(state) // 2], _second_half(events), Work(halved))


def _clone(optimizer: torch.optim.Optimizer, group: int, parameter: torch.Tensor, count: int) -> Any:
    """The same optimizer before its first step, of so many parameters like this one; one means all at once."""
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


def _kept(events: array[int]) -> tuple[int, ...]:
    """Sizes of the allocations that are not freed."""
    sizes = dict(enumerate((event for event in events if event > 0), 1))
    for event in events:
        if event < 0:
            sizes.pop(-event)
    return tuple(sizes.values())


def _second_half(events: Sequence[int]) -> tuple[int, ...]:
    """Of the events of two parameters in a row, those of the second.

    Variables of a loop keep what they hold until the next turn: an allocation for one parameter may be freed when the
    next one's replaces it, and is then written as one from before.
    """
    half = sum(event > 0 for event in events) // 2
    made = [at for at, event in enumerate(events) if event > 0]
    start = made[half] if made else 0
    in_time = {-event for event in events[:start] if event < 0}
    part: list[int] = []
    for event in events[start:]:
        if event > 0:
            part.append(event)
        elif -event <= half:
            part.append(event - _BEFORE)
        elif -event - half in in_time:
            part.append(event + half)
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
    return Work(Counter({(*kind, 0, size // calls[kind]): calls[kind] for kind, size in moved.items()}))
