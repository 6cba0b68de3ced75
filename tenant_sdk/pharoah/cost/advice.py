"""The smallest changes after which a job fits, each of them tried in a dry run."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from pharoah._errors import UnknownReason
from pharoah.cost.memory_fit import Fit, MemoryBudget, fit
from pharoah.cost.mitigation import Mitigation
from pharoah.cost.step import ACTIVATION, GRADIENT, OTHER, PARAMETER, StepCost
from pharoah_archetypes.devices import devices

_BATCH = re.compile(r"--?(per[-_]device[-_])?(train[-_])?(micro[-_]?)?(batch[-_]?size|batch|bs|mbs)")
"""How scripts call the number of samples in a micro-batch."""
_MOST_PARTS = 1024

Trial = Callable[[Sequence[str], Mitigation], StepCost]
"""Dry-runs a command line with a change. Raises UnknownReason."""


@dataclass(frozen=True)
class Advice:
    """A change that was tried, and after which the job fits."""

    what: str
    command: tuple[str, ...]
    """The command line with it."""
    change: Mitigation
    """What the script has to do besides."""
    fit: Fit
    work: float
    """Floating-point operations of a sample, compared with those before."""


def advise(command: Sequence[str], cost: StepCost, room: MemoryBudget, trial: Trial) -> Iterator[Advice]:
    """Changes after which a job fits that does not, those first that change least.

    A fused optimizer and a smaller micro-batch with accumulated gradients compute the same; checkpointing computes the
    same twice; shards instead of replicas send more; more nodes help where parameters are sharded; autocast computes
    something else.
    """
    search = _Search(tuple(command), cost, room, trial)
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
    if room.on_gpu:
        yield from search.larger_device()


class _Search:
    def __init__(self, command: tuple[str, ...], cost: StepCost, room: MemoryBudget, trial: Trial) -> None:
        self._command, self._cost, self._room, self._trial = command, cost, room, trial
        self._before = fit(cost, room)
        self.found = False

    def as_it_is(self, change: Mitigation) -> Iterator[Advice]:
        """The job with nothing else changed."""
        collectives = {row.letter for row in self._cost.transfers}
        if change.nodes > 1 and (self.found or "AG" not in collectives):
            return
        if change.sharded and ("AG" in collectives or "AR" not in collectives):
            return
        if (tried := self._tried(self._command, change, 1, _told(change))) and tried.fit.status == "fits":
            self.found = True
            yield tried

    def smaller_batch(self, change: Mitigation) -> Iterator[Advice]:
        """The largest part of the batch that fits, by powers of two."""
        roles = self._before.peak.roles
        growing = roles.get(ACTIVATION, 0) + roles.get(OTHER, 0)
        parts = 2
        while growing / parts > max(1, self._room.bytes - (self._before.needed - growing)) and parts < _MOST_PARTS:
            parts *= 2
        needed = self._before.needed
        for parts in (parts << times for times in range(4)):
            command, what = _with_smaller_batch(self._command, parts)
            divided = replace(change, batches=parts) if command == self._command else change
            tried = self._tried(command, divided, parts, ", ".join(filter(None, [what, _told(change)])))
            if tried is None or tried.fit.needed > 0.99 * needed:
                return  # nothing left to divide, or nothing that has to do with it
            if tried.fit.status == "fits":
                self.found = True
                yield tried
                return
            needed = tried.fit.needed

    def larger_device(self) -> Iterator[Advice]:
        """The smallest known device that is large enough."""
        larger = sorted({device.memory_bytes: device for device in reversed(devices())}.items())
        for memory, device in larger:
            fitting = fit(self._cost, MemoryBudget(device.part, memory, on_gpu=True))
            if memory > self._room.bytes and fitting.status == "fits":
                yield Advice(f"{device.part} with {memory >> 30} GiB", self._command, Mitigation(), fitting, 1.0)
                return

    def _tried(self, command: tuple[str, ...], change: Mitigation, parts: int, what: str) -> Advice | None:
        """What a change comes to; None when the script cannot do that."""
        if not command:
            return None
        try:
            cost = self._trial(command, change)
        except UnknownReason:
            return None
        tried = fit(cost, self._room)
        if parts > 1:  # gradients of the parts before are there in every forward pass
            kept = tried.peak.roles.get(PARAMETER, 0) - tried.peak.roles.get(GRADIENT, 0)
            tried = replace(tried, needed=tried.needed + max(0, kept))
        return Advice(what, command, change, tried, parts * cost.flops / max(1, self._cost.flops))


def _with_smaller_batch(command: tuple[str, ...], parts: int) -> tuple[tuple[str, ...], str]:
    """The command line with a part of its batch, and what to say; nothing when there is nothing left to divide.

    A command line that does not name its batch stays as it is: then the loader's is divided.
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


def _told(change: Mitigation) -> str:
    parts = [
        "activation checkpointing" if change.checkpointing else "",
        "autocast to bfloat16" if change.autocast else "",
        "the fused optimizer (fused=True)" if change.fused else "",
        "FSDP (fully_shard) instead of DDP" if change.sharded else "",
        f"{change.nodes} times as many nodes" if change.nodes > 1 else "",
    ]
    return ", ".join(filter(None, parts))
