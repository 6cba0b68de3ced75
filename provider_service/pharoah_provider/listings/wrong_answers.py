"""Nodes whose micro-benchmarks computed something wrong, or other numbers than the nodes of their class."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from pharoah_protocol.answer_digests import SOFTWARE_DIGITS
from pharoah_provider.listings._listing import MAX_ROWS, Listing, ListingSources, Row, newest
from pharoah_serving.costs import in_thread

_WRONG = "SELECT node, benchmark, ended_at FROM probes WHERE correct = FALSE"
_DIGESTS = f"""
    SELECT node, benchmark, digest FROM probes WHERE correct AND digest != ''
    QUALIFY row_number() OVER (
        PARTITION BY node, benchmark, digest[:{SOFTWARE_DIGITS}] ORDER BY ended_at DESC
    ) = 1
"""
"""The newest digest of each node of the same software: earlier ones are not compared."""


async def rows(sources: ListingSources) -> list[Row]:
    """One row for each wrong answer, and one for each node and micro-benchmark that differs from its class."""
    wrong = [
        {**row, "what": "the answer was wrong", "agreeing": None, "nodes": None}
        for row in await sources.storage.select(newest(_WRONG, ("ended_at",)))
    ]
    context_of = {node.node: node.facts_id for node in await sources.storage.nodes.nodes()}
    return wrong + await in_thread(_differing, await sources.storage.select(_DIGESTS), context_of)


def _differing(digests: Iterable[Row], context_of: Mapping[str, str]) -> list[Row]:
    """A row for each node and micro-benchmark that differs from its class."""
    from pharoah_learning.deviating_answers import NodeDigest, deviations

    known = [
        NodeDigest(row["node"], context_of[row["node"]], row["benchmark"], row["digest"])
        for row in digests
        if row["node"] in context_of
    ]
    return [
        {
            "node": one.node,
            "benchmark": one.benchmark,
            "ended_at": None,
            "what": "its numbers differ from those of its class",
            "agreeing": one.agreeing,
            "nodes": one.nodes,
        }
        for one in deviations(known)
    ]


LISTING = Listing(
    name="wrong-answers",
    help="nodes whose micro-benchmarks computed something wrong, or other numbers than their class",
    columns=("node", "benchmark", "what", "ended_at"),
    wide_columns=("agreeing", "nodes"),
    rows=rows,
    most_rows=MAX_ROWS,
)
