"""Who waits for whom: the last collectives of all ranks of a node, compared when no step comes any more.

After the method of torch's own flight recorder analysis (`torch.distributed.flight_recorder`): in a group every rank
must call the same collectives in the same order, so the one whose number is behind is the one the others wait for.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from pharoah._verdict import Finding
from pharoah.sidecar.rank_comparison import named


class Call(NamedTuple):
    number: int
    name: str
    sizes: str
    place: str

    def __str__(self) -> str:
        return f"{self.name} number {self.number}" + (f" ({self.place})" if self.place else "")


class HangDetector:
    """Rounds of answers. A job hangs when two rounds are the same and ranks stand in different places."""

    def __init__(self) -> None:
        self._before: dict[int, Any] = {}
        self._now: dict[int, Any] = {}

    def begin(self) -> None:
        """A round of questions begins."""
        self._before, self._now = self._now, {}

    def forget(self) -> None:
        """The job goes on."""
        self._before, self._now = {}, {}

    def add(self, rank: int, calls: Sequence[Mapping[str, Any]]) -> None:
        """What a rank has called last, as `pharoah.capture.flight_recorder.last_calls` tells it."""
        if calls:  # a rank's helpers have none
            self._now[rank] = [dict(call) for call in calls]

    def findings(self) -> tuple[Finding, ...]:
        """What the round that ends now shows."""
        if self._now != self._before or len(self._now) < 2:
            return ()
        groups: dict[tuple[str, str], dict[int, Call]] = defaultdict(dict)
        for rank, calls in sorted(self._now.items()):
            for call in calls:
                key = call["group"], call["ranks"]
                groups[key][rank] = Call(call["number"], call["name"], call["sizes"], call["place"])
        return tuple(finding for last in groups.values() for finding in _compared(last))


def _compared(last: Mapping[int, Call]) -> Iterator[Finding]:
    """One group's ranks of this node."""
    most = max(call.number for call in last.values())
    waiting = {rank: call for rank, call in last.items() if call.number == most}
    behind = {rank: call for rank, call in last.items() if call.number < most}
    one, called = next(iter(waiting.items()))
    if behind:
        late, before = next(iter(behind.items()))
        yield _finding(
            f"{named(list(waiting), 'waits', 'wait')} in {called} for {named(list(behind), 'whose', 'whose')} last was"
            f" {before}",
            f"look at what rank {late} does after {before}: code or data that differs, or a machine that is stuck",
        )
    for rank, call in waiting.items():
        if (call.name, call.sizes) != (called.name, called.sizes):
            yield _finding(
                f"rank {rank} calls {call} of {call.sizes} where rank {one} calls {called} of {called.sizes}",
                "ranks must call the same collectives with the same sizes in the same order",
            )


def _finding(what: str, remedy: str) -> Finding:
    return Finding("warn", what, "flight recorder of each rank, twice the same", remedy)
