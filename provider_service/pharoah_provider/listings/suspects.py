"""Suspects of the newest release: failures that one node alone reports, and what would confirm them."""

from __future__ import annotations

from pharoah_provider.listings._listing import Listing, ListingSources, Row


async def rows(sources: ListingSources) -> list[Row]:
    """One row for each node and job, with the nodes that could run the job as well."""
    release = await sources.storage.published.newest_release()
    if release is None:
        return []
    nodes = await sources.storage.nodes.nodes()
    found = []
    for suspect in release.suspects:
        others = [node for node in nodes if node.node != suspect.node]
        context_of = release.context_rule.context_of
        peers = [node.node for node in others if context_of(node.server_facts) == suspect.context_id]
        same_device = [node.node for node in others if node.device_id == suspect.device_id]
        found.append(
            {
                "id": suspect.suspect_id,
                "release": release.release,
                "node": suspect.node,
                "outcome": suspect.outcome,
                "failed": f"{suspect.failures}/{suspect.runs}",
                "title": suspect.title,
                "refuted_by": suspect.refuting,
                "confirmed_by": _confirming(peers, same_device),
                "context": suspect.context_id,
                "device": suspect.device_id,
            }
        )
    return found


def _confirming(peers: list[str], same_device: list[str]) -> str:
    """What would make a row of a suspect: the same failure on another node."""
    if peers:
        return f"the same failure on {' or '.join(peers)}"
    if same_device:
        return f"for the device model: the same failure on {' or '.join(same_device)}; here: a second node"
    return "a second node of this context"


LISTING = Listing(
    name="suspects",
    help="failures that one node alone reports, which make no row, and what would confirm them",
    columns=("id", "node", "outcome", "failed", "title", "refuted_by", "confirmed_by"),
    wide_columns=("context", "device"),
    rows=rows,
)
