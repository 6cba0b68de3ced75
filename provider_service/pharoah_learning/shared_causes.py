"""What nodes that became slow at once have in common: a switch, a rack, a job.

A failing switch makes every node behind it slow, and 64 incidents hide what one line would say. Each thing that nodes
have in common is tested: are more of its nodes affected than of the others? Under chance the number follows the
hypergeometric distribution (Fisher's exact test, one-sided). What explains best is taken first, and its nodes are then
explained, as in a greedy set cover.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping
from typing import NamedTuple

import scipy

LEVEL = 0.01
"""How often chance alone may look like a common cause, over all things that nodes have in common (Bonferroni)."""
MIN_NODES = 3
"""Two nodes that are slow at once are not yet a pattern."""
MIN_SHARE = 0.5
"""The share of the nodes of a thing that must be affected: a switch that fails is felt by more than a few of them."""


class SharedCause(NamedTuple):
    """What explains why several nodes are affected at once."""

    name: str
    """Such as `switch=s3`."""
    nodes: tuple[str, ...]
    """The affected nodes that have it in common."""
    size: int
    """How many nodes have it in common, affected or not."""
    p_value: float
    """How probable so many affected nodes are by chance; beside several equal causes, that of each."""
    equal: tuple[str, ...] = ()
    """Other things that the same nodes have in common, so that nothing shows which of them it is."""


def find_shared_causes(affected: Collection[str], shared: Mapping[str, Collection[str]]) -> list[SharedCause]:
    """The common causes of affected nodes, the clearest one first.

    `shared`: for every node under watch the names of what it may share with others, such as `rack=r1`. Nodes that are
    affected and not under watch are left out.
    """
    members: dict[str, set[str]] = defaultdict(set)
    for node, names in shared.items():
        for name in names:
            members[name].add(node)
    left = set(affected) & shared.keys()
    found: list[SharedCause] = []
    while candidates := _candidates(left, members, len(shared)):
        best = min(candidates, key=lambda one: (one.p_value, -len(one.nodes), one.name))
        equal = tuple(
            sorted(one.name for one in candidates if one.nodes == best.nodes and one.size == best.size and one != best)
        )
        found.append(best._replace(equal=equal))
        left -= set(best.nodes)
    return found


def _candidates(left: set[str], members: Mapping[str, set[str]], total: int) -> list[SharedCause]:
    found = []
    for name, nodes in members.items():
        hit = left & nodes
        if len(hit) < max(MIN_NODES, MIN_SHARE * len(nodes)) or len(nodes) == total:
            continue
        p = float(scipy.stats.hypergeom.sf(len(hit) - 1, total, len(left), len(nodes)))
        if p <= LEVEL / len(members):
            found.append(SharedCause(name, tuple(sorted(hit)), len(nodes), p))
    return found
