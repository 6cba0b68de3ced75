"""Why steps take longer: where the time of the main thread went, before and after.

A step is the time in which the main thread computed, was queued for a core, or waited for something else. The part that
grew most shows what is short. Of several ranks that wait for each other, the late one is the rank whose own part grew,
while the others only wait longer.
"""

from __future__ import annotations

from collections.abc import Mapping
from statistics import median
from typing import NamedTuple

from pharoah.local_alerts._step_windows import Window
from pharoah_protocol.vocabulary import Attribution, Resource

MIN_SHARE = 0.5
"""The share of the additional time that a part must have to be the cause."""
MIN_QUEUED_RATIO = 0.03
"""From this share of a step on, a process that takes turns with the job may soon take more."""
MIN_CORES, MIN_CORES_RATIO = 0.3, 0.02
"""From so many cores on, and from such a share of all cores on, another process counts as one that began to compute:
less does not fill the memory bandwidth of a large machine, and its daemons use as much."""
MIN_THROTTLED_RATIO = 0.05
"""From this share of a step on, a limit of the control group is the reason why a rank is late."""
MIN_WORKER_RATIO, MIN_WORKER_BYTES = 0.005, 64
"""Workers that load data use such a share of a core, or move so many bytes in each step: they write where each batch is
into a pipe. What only waits for work does neither."""
MIN_BLOCKED_RATIO = 0.2
MORE_BYTES_RATIO, MIN_BYTES = 1.5, 65_536
"""A job that moves so many times the bytes of before, and so many more in each step, does other work."""


class Change(NamedTuple):
    """One rank: its typical window before the steps became slower, and now."""

    before: Window
    after: Window

    @property
    def extra(self) -> float:
        """Additional seconds of a step."""
        return self.after.took - self.before.took

    @property
    def own(self) -> float:
        """Additional seconds in which the rank computed or was ready to."""
        return self.after.computed + self.after.queued - self.before.computed - self.before.queued

    @property
    def waited(self) -> float:
        return self.after.waited - self.before.waited

    @property
    def queued_for_others(self) -> float:
        """Additional seconds in the queue, less those that come with more computing: who had half a core before needs
        twice the time for twice the work, and waits for the core in half of it."""
        return self.after.queued - self.before.queued * self._more_work

    @property
    def throttled(self) -> float:
        """Additional seconds in which the job had used up its processor time, less those that come with more
        computing."""
        return self.after.throttled - self.before.throttled * self._more_work

    @property
    def _more_work(self) -> float:
        """How many times as long the rank computes in a step as before."""
        return max(1.0, self.after.computed / self.before.computed) if self.before.computed > 0 else 1.0


class Cause(NamedTuple):
    """What makes the steps slower."""

    resource: Resource
    fault_domain: Attribution
    likely: str
    action: str


BENCHMARKED = (Attribution.NODE, Attribution.NEIGHBOUR, Attribution.FABRIC)
"""Micro-benchmarks feel what these do to a job as the job does."""


class Explanation(NamedTuple):
    """Why a job is slower."""

    cause: Cause | None
    """None when the job itself does other work, or nothing shows why."""
    late_rank: int | None
    """The one that the other ranks wait for."""
    undecided: bool = False
    """Whether a cause may show yet: the job does not only compute longer, or is queued more than before."""


TOO_SMALL = Explanation(None, None, undecided=True)
"""What is known of a change that may grow."""


def explain(changes: Mapping[int, Change], lateness: Mapping[int, float], distributed: bool) -> Explanation:
    """Why the steps of a job are slower. `lateness` is that of `View`."""
    rank = _late_rank(changes, lateness)
    if rank is not None:
        return Explanation(_explain_late_rank(changes[rank], rank), rank)
    one = max(changes, key=lambda number: changes[number].own)
    found = _explain_rank(changes[one], distributed)
    computes = changes[one].own - changes[one].queued_for_others >= MIN_SHARE * changes[one].extra
    queued = changes[one].queued_for_others >= MIN_QUEUED_RATIO * changes[one].after.took
    return Explanation(found, None, undecided=found is None and (queued or not computes))


def _late_rank(changes: Mapping[int, Change], lateness: Mapping[int, float]) -> int | None:
    if len(changes) < 2:
        return None
    extra = median(change.extra for change in changes.values())
    first = max(changes, key=lambda rank: changes[rank].own)
    others = [change.waited for rank, change in changes.items() if rank != first]
    if changes[first].own >= MIN_SHARE * extra and median(others) >= MIN_SHARE * extra:
        return first
    if all(change.waited >= MIN_SHARE * extra for change in changes.values()) and len(lateness) > 1:
        last = max(lateness, key=lambda rank: lateness[rank])
        before = median(seconds for rank, seconds in lateness.items() if rank != last)
        if last in changes and lateness[last] - before >= MIN_SHARE * extra:
            return last
    return None


def _explain_late_rank(change: Change, rank: int) -> Cause | None:
    """A rank is late also where it only computes longer: the others show that the work is not more for all."""
    found = _explain_rank(change, distributed=False)
    if found is not None or _moves_more(change):
        return found
    if change.own >= MIN_SHARE * change.extra:
        return Cause(
            Resource.COMPUTE,
            Attribution.NODE,
            f"rank {rank} computes longer than before and the other ranks do not: its processor or device is slower, "
            "or its batches are larger",
            "compare the clocks of its device with those of the others; run the job without it",
        )
    return Cause(
        Resource.COMPUTE,
        Attribution.UNKNOWN,
        f"rank {rank} calls its collectives later than the others, and does not compute meanwhile",
        "look at what this rank waits for before its collectives: data, a lock, or a file",
    )


def _explain_rank(change: Change, distributed: bool) -> Cause | None:
    before, after = change
    least = MIN_SHARE * change.extra
    if change.throttled >= least and after.computed - before.computed < least:
        return Cause(
            Resource.COMPUTE,
            Attribution.PLATFORM,
            "the job's control group has used up its processor time",
            "raise the job's processor limit, or use fewer threads and workers",
        )
    if after.stolen - before.stolen >= least:
        return Cause(
            Resource.COMPUTE,
            Attribution.NEIGHBOUR,
            "other virtual machines take time of this machine's cores",
            "ask the provider to move the job to another machine",
        )
    if change.queued_for_others >= least:
        return Cause(
            Resource.COMPUTE,
            Attribution.NEIGHBOUR,
            "another process takes turns with the job on its cores",
            "end the other process, or ask the provider to move the job",
        )
    if change.own - change.queued_for_others >= least:
        return _explain_computing(change)
    return _explain_waiting(change, distributed) if change.waited >= least else None


def _explain_computing(change: Change) -> Cause | None:
    """The job computes longer: it has more to do, unless others began to compute beside it."""
    if change.after.others - change.before.others < max(MIN_CORES, MIN_CORES_RATIO * change.after.cores):
        return None
    return Cause(
        Resource.MEMORY_BANDWIDTH,
        Attribution.NEIGHBOUR,
        "another process began to compute on this machine, and shares its memory and caches",
        "end the other process, or ask the provider to move the job",
    )


def _explain_waiting(change: Change, distributed: bool) -> Cause | None:
    if _moves_more(change):
        return None
    if _waits_for_disk(change):
        return Cause(
            Resource.STORAGE,
            Attribution.NODE,
            "the job waits for a disk that answers late",
            "look at what else uses the disk; write checkpoints elsewhere or less often",
        )
    worked = change.before.worker_computed >= MIN_WORKER_RATIO * change.before.took
    if worked or change.before.worker_moved >= MIN_WORKER_BYTES:
        return _explain_late_data(distributed)
    if distributed:
        return Cause(
            Resource.NETWORK,
            Attribution.FABRIC,
            "all ranks of this machine wait longer in their collectives and none of them is late",
            "look at the network between the nodes, and at the ranks on other nodes",
        )
    return None


def _explain_late_data(distributed: bool) -> Cause:
    """Workers load the data of the job. From outside, a wait for them looks like one for other ranks."""
    if distributed:
        return Cause(
            Resource.STORAGE,
            Attribution.UNKNOWN,
            "the job waits for its data, which workers load, or all ranks wait longer in their collectives",
            "look at the storage of the data set first, then at the network between the nodes",
        )
    return Cause(
        Resource.STORAGE,
        Attribution.UNKNOWN,
        "the job waits for its data: the workers that load it are late",
        "look at the storage of the data set; more workers or a local copy help when it is slow",
    )


def _waits_for_disk(change: Change) -> bool:
    """The looks are few, so it is enough to have seen it more often where the kernel counted the time as well."""
    blocked = change.after.blocked - change.before.blocked
    counted = change.after.disk_waited - change.before.disk_waited
    return blocked >= MIN_BLOCKED_RATIO or (blocked > 0 and counted >= MIN_SHARE * change.extra)


def _moves_more(change: Change) -> bool:
    before, after = change.before.moved_bytes, change.after.moved_bytes
    return after > MORE_BYTES_RATIO * before and after - before > MIN_BYTES
