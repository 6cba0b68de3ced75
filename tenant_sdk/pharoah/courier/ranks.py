"""Do the ranks of a node run the same step? One that does not computes something else, and sooner or later all wait."""

from __future__ import annotations

from collections import defaultdict

from pharoah._verdict import Finding
from pharoah_archetypes import Fingerprint, Skeleton, differences, parse

_STAGED = "P2P"
"""Stages of a pipeline send to each other, and differ as they should."""


class Ranks:
    """What the ranks of this node were seen to run."""

    def __init__(self) -> None:
        self.expected = 1
        self._skeletons: dict[int, Skeleton] = {}

    def expect(self, count: int) -> None:
        """A launcher said how many ranks this node has."""
        self.expected = max(self.expected, count)

    def add(self, rank: int, seen: Fingerprint) -> tuple[Finding, ...]:
        """Note what a rank runs. Findings once all ranks are known, about those that differ from most."""
        self._skeletons[rank] = parse(seen.grammar)
        if len(self._skeletons) < self.expected or "compiled" in seen.features:
            return ()
        groups: dict[Skeleton, list[int]] = defaultdict(list)
        for number, skeleton in sorted(self._skeletons.items()):
            groups[skeleton].append(number)
        if len(groups) == 1 or any(_STAGED in word for one in groups for word in one.words.values()):
            return ()
        usual = max(groups, key=lambda skeleton: len(groups[skeleton]))
        return tuple(
            Finding("warn", _told(usual, groups[usual], skeleton, numbers))
            for skeleton, numbers in groups.items()
            if skeleton is not usual
        )


def _told(usual: Skeleton, most: list[int], odd: Skeleton, numbers: list[int]) -> str:
    what = "; ".join(differences(usual, odd)[:3]) or "the number of nested repeats"
    return f"{_named(numbers)} not run what {_named(most, subject=False)}: {what}"


def _named(numbers: list[int], subject: bool = True) -> str:
    """`rank 2 does`, `ranks 0, 1 and 5 more do`."""
    shown = ", ".join(map(str, numbers[:4])) + (f" and {len(numbers) - 4} more" if len(numbers) > 4 else "")
    if len(numbers) == 1:
        return f"rank {shown} does" if subject else f"rank {shown} runs"
    return f"ranks {shown} {'do' if subject else 'run'}"
