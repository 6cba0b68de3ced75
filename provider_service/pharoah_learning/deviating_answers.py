"""Nodes that compute other numbers than the nodes of their class: silent corruption that no repeat on the node shows.

A core that is always wrong in the same way reproduces its own result. Its digest then differs from that of its peers.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from pharoah_protocol.answer_digests import software_of

MIN_NODES = 3
"""Nodes to compare at least: nobody knows which one of two that differ is wrong."""


class NodeDigest(NamedTuple):
    """What one node has computed."""

    node: str
    context_id: str
    """The class of the node: only nodes of one class are compared."""
    benchmark: str
    digest: str


class Deviation(NamedTuple):
    """A node whose numbers differ from those of most nodes of its class."""

    node: str
    benchmark: str
    digest: str
    expected: str
    """The digest of most nodes."""
    agreeing: int
    """How many nodes have that digest."""
    nodes: int
    """How many were compared."""


def deviations(digests: Iterable[NodeDigest]) -> list[Deviation]:
    """Nodes that differ from more than half of at least MIN_NODES nodes, in the order of benchmark and node.

    The newest digest of a node must come last; it replaces earlier ones of the same software.
    """
    found = [
        Deviation(node, group.benchmark, digest, group.expected, group.agreeing, len(group.by_node))
        for group in _groups(digests)
        for node, digest in group.by_node.items()
        if digest != group.expected
    ]
    return sorted(found, key=lambda deviation: (deviation.benchmark, deviation.node))


def agreeing_nodes(digests: Iterable[NodeDigest]) -> set[str]:
    """Nodes whose newest digests are those of more than half of at least MIN_NODES nodes."""
    return {node for group in _groups(digests) for node, digest in group.by_node.items() if digest == group.expected}


class _Group(NamedTuple):
    """Nodes of which most have the same digest."""

    benchmark: str
    by_node: Mapping[str, str]
    """The newest digest of each."""
    expected: str
    agreeing: int


def _groups(digests: Iterable[NodeDigest]) -> Iterator[_Group]:
    groups: dict[tuple[str, str, str], dict[str, str]] = defaultdict(dict)
    for one in digests:
        groups[one.benchmark, one.context_id, software_of(one.digest)][one.node] = one.digest
    for (benchmark, _, _), by_node in groups.items():
        expected, agreeing = Counter(by_node.values()).most_common(1)[0]
        if len(by_node) >= MIN_NODES and 2 * agreeing > len(by_node):
            yield _Group(benchmark, by_node, expected, agreeing)
