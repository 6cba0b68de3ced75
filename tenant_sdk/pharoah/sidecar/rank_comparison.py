"""Compares the steps of the ranks of a node. A rank with another step computes something else, or makes all wait."""

from __future__ import annotations

from collections import defaultdict
from typing import NamedTuple

from pharoah._verdict import Finding
from pharoah.findings.rank_differs import RANK_DIFFERS
from pharoah_archetypes import Fingerprint, Skeleton, differences, parse

_STAGED = "P2P"
"""Stages of a pipeline send to each other, and differ as they should."""


class _Seen(NamedTuple):
    """What must be the same on all ranks."""

    skeleton: Skeleton
    features: frozenset[tuple[str, str]]
    operators: frozenset[str]


class RankComparison:
    """What the ranks of this node were seen to run."""

    def __init__(self) -> None:
        self.expected = 1
        self._seen: dict[int, _Seen] = {}

    def expect(self, count: int) -> None:
        """A launcher has given the number of ranks on this node."""
        self.expected = max(self.expected, count)

    def add(self, rank: int, seen: Fingerprint, operators: frozenset[str] = frozenset()) -> tuple[Finding, ...]:
        """Note what a rank runs. Findings once all ranks are known, about those that differ from most.

        A rank that is seen again runs another step, or another program: what the others ran before is not compared.
        """
        if rank in self._seen:
            self._seen.clear()
        self._seen[rank] = _Seen(parse(seen.grammar), frozenset(seen.features.items()), operators)
        if len(self._seen) < self.expected or "compiled" in seen.features:
            return ()
        groups: dict[_Seen, list[int]] = defaultdict(list)
        for number, one in sorted(self._seen.items()):
            groups[one].append(number)
        if len(groups) == 1 or any(is_staged(one.skeleton) for one in groups):
            return ()
        usual = max(groups, key=lambda one: len(groups[one]))
        return tuple(
            RANK_DIFFERS.create(difference=_difference(usual, groups[usual], odd, groups[odd]))
            for odd in groups
            if odd is not usual
        )


def is_staged(skeleton: Skeleton) -> bool:
    """Whether a step is that of one stage of a pipeline."""
    return any(_STAGED in sequence for sequence in skeleton.phases.values())


def _difference(usual: _Seen, most: list[int], odd: _Seen, numbers: list[int]) -> str:
    parts = differences(usual.skeleton, odd.skeleton)[:3]
    parts += [f"{name} is {value}" for name, value in sorted(odd.features - usual.features)]
    parts += [f"{name} is not {value}" for name, value in sorted(usual.features - odd.features)]
    parts += [f"calls {name}" for name in sorted(odd.operators - usual.operators)[:3]]
    parts += [f"does not call {name}" for name in sorted(usual.operators - odd.operators)[:3]]
    what = "; ".join(parts) or "the number of nested repeats"
    return f"{render_ranks(numbers, 'does', 'do')} not run what {render_ranks(most, 'runs', 'run')}: {what}"


def render_ranks(numbers: list[int], one: str, several: str) -> str:
    """`rank 2 does`, `ranks 0, 1, 3, 4 and 5 more do`: a verb for one and for several."""
    shown = ", ".join(map(str, numbers[:4])) + (f" and {len(numbers) - 4} more" if len(numbers) > 4 else "")
    return f"rank {shown} {one}" if len(numbers) == 1 else f"ranks {shown} {several}"
