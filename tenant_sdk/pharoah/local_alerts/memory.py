"""Memory of the machine or of a device fills up, and will be full before long."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import NamedTuple

from pharoah.local_alerts._book import CALM_SECONDS
from pharoah.local_alerts._detector import Condition, Detector, View
from pharoah.local_alerts._exhaustion import Forecast, Supply
from pharoah.local_alerts._words import clock_span, size
from pharoah_protocol.vocabulary import Attribution, Resource

OWN_SHARE = 0.5
"""From this share on, of what is used up, the job itself is what grows."""
_CHECKPOINT = "save a checkpoint now, and restart from it before the memory is full"


class _Coming(NamedTuple):
    """A limit that will be reached."""

    seconds: float
    limit: _Limit
    left: float
    forecast: Forecast


@dataclass(frozen=True, order=True)
class _Limit:
    """Something that can be full."""

    name: str
    device: bool = False
    """Whether it is the memory of a device, of which the share is known and not the bytes."""

    @property
    def title(self) -> str:
        if self.device:
            return f"the memory of {self.name}"
        return _NAMES.get(self.name, f"the memory limit of {self.name}")

    @property
    def where(self) -> str:
        return self.name if self.device or self.name.startswith("rank") else "this node"

    def amount(self, of_supply: float) -> str:
        """What is left of it, or was used up, in words."""
        return f"{100 * of_supply:.0f} %" if self.device else size(of_supply)


@dataclass
class _Memory:
    """What is left of each limit, and what the job has."""

    wants_lateness = False
    _supplies: dict[_Limit, Supply] = field(default_factory=dict)
    _job: Supply = field(default_factory=Supply)
    """Less what the job has: its own growth, as a supply that falls."""
    _announced: dict[_Limit, float] = field(default_factory=dict)
    """The limits that people have been warned of, or would be by the next looks, and when each was seen to fill up
    last, in seconds of the monotonic clock."""
    _stepped: bool = False
    """Before the first step a job loads what it needs."""

    def look(self, view: View) -> Iterator[Condition]:
        self._stepped |= any(view.steps.values())
        if not self._stepped or not view.processes:
            return
        self._job.add(view.at, -float(sum(one.resident_bytes + one.worker_bytes for one in view.processes.values())))
        coming: list[_Coming] = []
        for limit, left in _compute_remaining(view).items():
            supply = self._supplies.setdefault(limit, Supply())
            supply.add(view.at, left)
            if (found := supply.forecast()) is not None:
                coming.append(_Coming(found.seconds, limit, left, found))
        for one in self._choose(coming, view.at):
            yield self._condition(one.limit, one.left, one.forecast, view)

    def _choose(self, coming: Sequence[_Coming], at: float) -> Sequence[_Coming]:
        """The same growth may reach several limits: the first one matters, and it stays the one that people hear of
        until it does not fill up any more. Another one is added where it is clearly earlier."""
        self._announced = {limit: seen for limit, seen in self._announced.items() if at - seen < CALM_SECONDS}
        chosen = [one for one in coming if one.limit in self._announced]
        earliest = min((one.forecast.earliest_seconds for one in chosen), default=0.0 if self._announced else inf)
        first = min(coming, default=None)
        if first is not None and first.forecast.latest_seconds < earliest:
            chosen.append(first)
        self._announced |= {one.limit: at for one in chosen}
        return chosen

    def _condition(self, limit: _Limit, left: float, found: Forecast, view: View) -> Condition:
        growth = self._job.rate(found.span_seconds)
        own = limit != _MACHINE or growth >= OWN_SHARE * found.rate  # only the machine is shared with others
        workers = sum(one.worker_bytes for one in view.processes.values())
        return Condition(
            key=f"memory:{limit.name}",
            resource=Resource.MEMORY_CAPACITY,
            fault_domain=Attribution.USER if own else Attribution.NEIGHBOUR,
            what=f"{limit.title} will be full in {clock_span(found.seconds)}"
            f" ({clock_span(found.earliest_seconds)} to {clock_span(found.latest_seconds)})",
            where=limit.where,
            likely=_ON_DEVICE
            if limit.device
            else _likely(own, limit == _GROUP and growth < OWN_SHARE * found.rate, workers),
            action=_CHECKPOINT if own else f"{_CHECKPOINT}; ask the provider who else uses this machine",
            evidence=f"{limit.amount(found.rate * 60)} more in a minute, over {clock_span(found.span_seconds)};"
            f" {limit.amount(left)} left",
            since=view.unix - found.span_seconds,
            failure_from=view.unix + found.earliest_seconds,
            failure_until=view.unix + found.latest_seconds,
            checkpoint=True,
        )


_MACHINE, _GROUP = _Limit("machine"), _Limit("group")
_NAMES = {"machine": "the memory of this machine", "group": "the memory limit of this job"}
_ON_DEVICE = (
    "the job keeps more tensors on the device in each step, such as a loss that is added up with its graph, or its "
    "sizes change all the time, so that the memory of its allocator is fragmented"
)


def _compute_remaining(view: View) -> dict[_Limit, float]:
    """What is left of each limit: bytes, or the share of the memory of a device that the job computes on."""
    limits = {f"rank {rank}": one.data_free_bytes for rank, one in view.processes.items()}
    limits |= {"group": view.machine.group_free_bytes, "machine": view.machine.available_bytes}
    found = {_Limit(name): float(left) for name, left in limits.items() if left is not None}
    return found | {_Limit(one.device, device=True): 1 - one.value for one in view.signals if one.used_share}


def _likely(own: bool, unseen: bool, workers: int) -> str:
    if not own:
        return "other processes of this machine use more and more memory"
    if unseen:
        return "files in memory (/dev/shm, tmpfs), or other processes in the job's container, grow"
    if workers:
        return "the job keeps more in each step: tensors with their graph, a list, or what workers of a DataLoader copy"
    return "the job keeps more in each step: tensors with their graph, such as a loss that is added up, or a list"


DETECTOR = Detector(
    "memory",
    "memory that fills up steadily: when the limit of a process, of the control group, of the machine or of a device "
    "of the job is reached",
    _Memory,
)
