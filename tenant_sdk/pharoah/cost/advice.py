"""The smallest changes after which a job fits. Each of them is tried in a dry run."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from pharoah._errors import UnknownReason
from pharoah.cost.memory_fit import Fit, FitStatus, MemoryBudget, fit
from pharoah.cost.mitigation import Mitigation
from pharoah.cost.step import ACTIVATION, GRADIENT, OTHER, PARAMETER, StepCost
from pharoah_archetypes.devices import devices

_BATCH = re.compile(r"--?(per[-_]device[-_])?(train[-_])?(micro[-_]?)?(batch[-_]?size|batch|bs|mbs)")
"""Options of scripts for the number of samples in a micro-batch."""
_MAX_PARTS = 1024
"""Largest number of parts that a batch is split into; more is not a micro-batch of a real job."""
_MAX_TRIALS = 4
"""How many numbers of parts are tried. The first one follows from the activations, and each next one is its double."""

Trial = Callable[[Sequence[str], Mitigation], StepCost]
"""Dry-runs a command line with a mitigation. Raises UnknownReason."""


@dataclass(frozen=True)
class Advice:
    """A change that was tried and after which the job fits."""

    what: str
    command: tuple[str, ...]
    """The command line with it."""
    change: Mitigation
    """What the script has to change as well."""
    fit: Fit
    work: float
    """Floating-point operations per sample, relative to the job without the change."""


def advise(command: Sequence[str], cost: StepCost, budget: MemoryBudget, trial: Trial) -> Iterator[Advice]:
    """Yield changes after which a job fits, the smallest changes first.

    A fused optimizer and a smaller micro-batch with accumulated gradients compute the same; checkpointing computes the
    same twice; shards instead of replicas send more; more nodes help where parameters are sharded; autocast computes
    something else.
    """
    search = _Search(tuple(command), cost, budget, trial)
    yield from search.as_it_is(Mitigation(fused=True))
    yield from search.smaller_batch(Mitigation())
    for change in (
        Mitigation(checkpointing=True),
        Mitigation(sharded=True),
        Mitigation(nodes=2),
        Mitigation(nodes=4),
        Mitigation(autocast=True),
    ):
        yield from search.as_it_is(change)
    if not search.found:
        yield from search.smaller_batch(Mitigation(checkpointing=True))
    if not search.found:
        yield from search.smaller_batch(Mitigation(checkpointing=True, autocast=True))
    if budget.on_gpu:
        yield from search.larger_device()


class _Search:
    def __init__(self, command: tuple[str, ...], cost: StepCost, budget: MemoryBudget, trial: Trial) -> None:
        self._command, self._cost, self._budget, self._trial = command, cost, budget, trial
        self._before = fit(cost, budget)
        self.found = False

    def as_it_is(self, change: Mitigation) -> Iterator[Advice]:
        """The job with this mitigation and no other change."""
        collectives = {row.operator_class for row in self._cost.transfers}
        if change.nodes > 1 and (self.found or "AG" not in collectives):
            return
        if change.sharded and ("AG" in collectives or "AR" not in collectives):
            return
        if (
            tried := self._try_change(self._command, change, 1, _description(change))
        ) and tried.fit.status is FitStatus.FITS:
            self.found = True
            yield tried

    def smaller_batch(self, change: Mitigation) -> Iterator[Advice]:
        """The largest part of the batch that fits, in powers of two."""
        roles = self._before.peak.roles
        growing = roles.get(ACTIVATION, 0) + roles.get(OTHER, 0)
        least = 2
        while growing / least > max(1, self._budget.bytes - (self._before.needed - growing)) and least < _MAX_PARTS:
            least *= 2
        needed = self._before.needed
        for parts in [least << times for times in range(_MAX_TRIALS)]:
            command, what = _with_smaller_batch(self._command, parts)
            divided = replace(change, batches=parts) if command == self._command else change
            tried = self._try_change(command, divided, parts, ", ".join(filter(None, [what, _description(change)])))
            if tried is None or tried.fit.needed > 0.99 * needed:
                return  # the batch cannot be divided further, or it does not take the memory
            if tried.fit.status is FitStatus.FITS:
                self.found = True
                yield tried
                return
            needed = tried.fit.needed

    def larger_device(self) -> Iterator[Advice]:
        """The smallest known device that is large enough."""
        larger = sorted({device.memory_bytes: device for device in reversed(devices())}.items())
        for memory, device in larger:
            fitting = fit(self._cost, MemoryBudget(device.part, memory, on_gpu=True))
            if memory > self._budget.bytes and fitting.status is FitStatus.FITS:
                yield Advice(f"{device.part} with {memory >> 30} GiB", self._command, Mitigation(), fitting, 1.0)
                return

    def _try_change(self, command: tuple[str, ...], change: Mitigation, parts: int, what: str) -> Advice | None:
        """The result of a change; None when the script does not support it, and where the dry run saw less of it than
        of the job: memory that is not counted then would be advised."""
        if not command:
            return None
        try:
            cost = self._trial(command, change)
        except UnknownReason:
            return None
        if not set(cost.uncounted) <= set(self._cost.uncounted):
            return None
        tried = fit(cost, self._budget)
        if parts > 1:  # the gradients of earlier parts exist in every forward pass
            kept = tried.peak.roles.get(PARAMETER, 0) - tried.peak.roles.get(GRADIENT, 0)
            tried = replace(tried, needed=tried.needed + max(0, kept))
        return Advice(what, command, change, tried, parts * cost.flops / max(1, self._cost.flops))


def _with_smaller_batch(command: tuple[str, ...], parts: int) -> tuple[tuple[str, ...], str]:
    """The command line with a part of its batch, and a description; nothing when the batch cannot be divided further.

    A command line without a batch option stays unchanged: then the batch of the loader is divided.
    """
    words = list(command)
    for at, word in enumerate(words):
        option, equals, value = word.partition("=")
        if not _BATCH.fullmatch(option):
            continue
        value = value if equals else "".join(words[at + 1 : at + 2])
        if not value.isdecimal():
            continue
        if int(value) < parts:
            return (), ""
        smaller = str(int(value) // parts)
        words[at : at + 1 + (not equals)] = [f"{option}={smaller}"] if equals else [option, smaller]
        return tuple(words), f"{option} {smaller} instead of {value}, gradients of {parts} accumulated"
    return command, f"1/{parts} of the loader's batch, gradients of {parts} accumulated"


def _description(change: Mitigation) -> str:
    parts = [
        "activation checkpointing" if change.checkpointing else "",
        "autocast to bfloat16" if change.autocast else "",
        "the fused optimizer (fused=True)" if change.fused else "",
        "FSDP (fully_shard) instead of DDP" if change.sharded else "",
        f"{change.nodes} times as many nodes" if change.nodes > 1 else "",
    ]
    return ", ".join(filter(None, parts))
