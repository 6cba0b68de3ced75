"""Suspects of the newest release: failures that one node alone reports, and what would confirm them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING

from pharoah_provider.listings._listing import Listing, ListingSources, Row
from pharoah_provider.listings._node_names import few_names
from pharoah_serving.costs import in_thread

if TYPE_CHECKING:
    from pharoah_learning.release import Release
    from pharoah_provider.domain import Node


async def rows(sources: ListingSources) -> list[Row]:
    """One row for each node and job, with the nodes that could run the job as well."""
    release = await sources.storage.published.newest_release()
    if release is None:
        return []
    return await in_thread(_rows, release, await sources.storage.nodes.nodes())


def _rows(release: Release, nodes: Sequence[Node]) -> list[Row]:
    in_context: dict[str, list[str]] = defaultdict(list)
    with_device: dict[str, list[str]] = defaultdict(list)
    for node in nodes:
        in_context[release.context_rule.context_of(node.server_facts)].append(node.node)
        with_device[node.device_id].append(node.node)
    return [
        {
            "id": suspect.suspect_id,
            "release": release.release,
            "node": suspect.node,
            "outcome": suspect.outcome,
            "failed": f"{suspect.failures}/{suspect.runs}",
            "title": suspect.title,
            "refuted_by": suspect.refuting,
            "confirmed_by": _confirming(
                [node for node in in_context[suspect.context_id] if node != suspect.node],
                [node for node in with_device[suspect.device_id] if node != suspect.node],
            ),
            "context": suspect.context_id,
            "device": suspect.device_id,
        }
        for suspect in release.suspects
    ]


def _confirming(peers: Sequence[str], same_device: Sequence[str]) -> str:
    """What would make a row of a suspect: the same failure on another node."""
    if peers:
        return f"the same failure on {_any_of(peers)}"
    if same_device:
        return f"for the device model: the same failure on {_any_of(same_device)}; here: a second node"
    return "a second node of this context"


def _any_of(names: Sequence[str]) -> str:
    return few_names(names, " or ", " or one of ")


LISTING = Listing(
    name="suspects",
    help="failures that one node alone reports, which make no row, and what would confirm them",
    columns=("id", "node", "outcome", "failed", "title", "refuted_by", "confirmed_by"),
    wide_columns=("context", "device"),
    rows=rows,
)
