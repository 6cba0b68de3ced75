"""Nodes whose micro-benchmarks computed something wrong, or other numbers than the nodes of their class."""

from __future__ import annotations

from pharoah_learning.deviating_answers import NodeDigest, deviations
from pharoah_provider.listings._listing import Listing, ListingSources, Row

_WRONG = "SELECT node, benchmark, ended_at FROM probes WHERE correct = FALSE ORDER BY ended_at"
_DIGESTS = "SELECT node, benchmark, digest FROM probes WHERE correct AND digest != '' ORDER BY ended_at"


async def rows(sources: ListingSources) -> list[Row]:
    """One row for each wrong answer, and one for each node and micro-benchmark that differs from its class."""
    wrong = [
        {**row, "what": "the answer was wrong", "agreeing": None, "nodes": None}
        for row in await sources.storage.select(_WRONG)
    ]
    context_of = {node.node: node.facts_id for node in await sources.storage.nodes.nodes()}
    digests = [
        NodeDigest(row["node"], context_of[row["node"]], row["benchmark"], row["digest"])
        for row in await sources.storage.select(_DIGESTS)
        if row["node"] in context_of
    ]
    differing = [
        {
            "node": one.node,
            "benchmark": one.benchmark,
            "ended_at": None,
            "what": "its numbers differ from those of its class",
            "agreeing": one.agreeing,
            "nodes": one.nodes,
        }
        for one in deviations(digests)
    ]
    return wrong + differing


LISTING = Listing(
    name="wrong-answers",
    help="nodes whose micro-benchmarks computed something wrong, or other numbers than their class",
    columns=("node", "benchmark", "what", "ended_at"),
    wide_columns=("agreeing", "nodes"),
    rows=rows,
)
