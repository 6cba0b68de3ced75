"""Who waits for whom: the last collectives of all ranks of a node, compared when no step comes any more.

After the method of torch's own flight recorder analysis (`torch.distributed.flight_recorder`): in a group every rank
must call the same collectives in the same order, so the one whose number is behind is the one the others wait for.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from pharoah._verdict import Finding
from pharoah.findings.collectives_differ import COLLECTIVES_DIFFER
from pharoah.findings.rank_waits import RANK_WAITS
from pharoah.sidecar.rank_comparison import render_ranks
from pharoah_protocol.rank_messages import CollectiveCall

_OF_ANY_SIZE = ("all_to_all", "alltoall", "scatter")
"""Collectives whose inputs need not have one size: parts of an all-to-all differ, and only the root of a scatter has
any (torch/distributed/flight_recorder/components/types.py)."""
_EVIDENCE = "flight recorder of each rank, the same twice"


class HangDetector:
    """Rounds of answers. A job hangs when two rounds are the same and its ranks wait in different places."""

    def __init__(self) -> None:
        self._before: dict[int, tuple[CollectiveCall, ...]] = {}
        self._now: dict[int, tuple[CollectiveCall, ...]] = {}

    def begin(self) -> None:
        """A round of questions begins."""
        self._before, self._now = self._now, {}

    def forget(self) -> None:
        """The job goes on."""
        self._before, self._now = {}, {}

    def add(self, rank: int, calls: Sequence[CollectiveCall]) -> None:
        """The last collectives of a rank, from `pharoah.capture.flight_recorder.last_calls`."""
        if calls:  # helper processes of a rank call no collectives
            self._now[rank] = tuple(calls)

    def findings(self) -> tuple[Finding, ...]:
        """What the round that ends now shows."""
        if self._now != self._before or len(self._now) < 2:
            return ()
        groups: dict[tuple[str, str], dict[int, CollectiveCall]] = defaultdict(dict)
        for rank, calls in sorted(self._now.items()):
            for call in calls:
                groups[call.group, call.ranks][rank] = call
        return tuple(finding for last in groups.values() for finding in _compare(last))


def _compare(last: Mapping[int, CollectiveCall]) -> Iterator[Finding]:
    """One group's ranks of this node."""
    most = max(call.number for call in last.values())
    waiting = {rank: call for rank, call in last.items() if call.number == most}
    behind = {rank: call for rank, call in last.items() if call.number < most}
    one, called = next(iter(waiting.items()))
    if behind:
        late, before = next(iter(behind.items()))
        waiters, late_ranks = render_ranks(list(waiting), "waits", "wait"), render_ranks(list(behind), "whose", "whose")
        yield RANK_WAITS.create(
            waiting=f"{waiters} in {_render(called)} for {late_ranks} last was {_render(before)}",
            evidence=_EVIDENCE,
            remedy=f"look at what rank {late} does after {_render(before)}: code or data that differs, or a machine"
            " that is stuck",
        )
    for rank, call in waiting.items():
        if call.name != called.name or (call.sizes != called.sizes and not _sizes_may_differ(call)):
            yield COLLECTIVES_DIFFER.create(
                difference=f"rank {rank} calls {_render(call)} of {call.sizes}"
                f" where rank {one} calls {_render(called)} of {called.sizes}",
                evidence=_EVIDENCE,
                remedy="ranks must call the same collectives with the same sizes in the same order",
            )


def _sizes_may_differ(call: CollectiveCall) -> bool:
    """Whether each rank may give tensors of its own size. The name has the backend first, as `nccl:all_to_all`."""
    return call.name.rpartition(":")[2].startswith(_OF_ANY_SIZE)


def _render(call: CollectiveCall) -> str:
    return f"{call.name} number {call.number}" + (f" ({call.place})" if call.place else "")
