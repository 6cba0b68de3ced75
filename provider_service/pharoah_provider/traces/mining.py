"""Candidates for the catalogue: which skeletons occur again and again in traces of production jobs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from pharoah_archetypes.canonical import Skeleton
from pharoah_archetypes.catalogue import Archetype
from pharoah_archetypes.similarity import nearest, similarity
from pharoah_provider.traces import Trace

SAME_FAMILY = 0.8
"""Similarity from which two skeletons are listed as one family."""


@dataclass(frozen=True)
class Candidate:
    """One archetype among some traces."""

    skeleton: Skeleton
    traces: tuple[Trace, ...]
    closest: Archetype
    """The named archetype it is nearest to, collectives apart."""
    likeness: float
    family: int
    """Equal for candidates that are variants of each other; 1 is the family of the most traces."""

    @property
    def is_known(self) -> bool:
        return self.likeness == 1.0


def mine(traces: Iterable[Trace]) -> list[Candidate]:
    """Candidates by family, the most frequent first. Traces without structure are left out."""
    groups: dict[str, list[Trace]] = defaultdict(list)
    skeletons: dict[str, Skeleton] = {}
    for trace in traces:
        if skeleton := trace.skeleton:
            groups[skeleton.archetype].append(trace)
            skeletons.setdefault(skeleton.archetype, skeleton)
    frequent = sorted(groups, key=lambda name: -len(groups[name]))
    families: list[list[str]] = []
    for name in frequent:
        alone = skeletons[name].alone
        for family in families:
            if any(similarity(alone, skeletons[other].alone) >= SAME_FAMILY for other in family):
                family.append(name)
                break
        else:
            families.append([name])
    families.sort(key=lambda family: -sum(len(groups[name]) for name in family))
    return [
        Candidate(skeletons[name], tuple(groups[name]), *nearest(skeletons[name])[0], family=number)
        for number, family in enumerate(families, 1)
        for name in family
    ]
