"""Listings where a context has many nodes: rows name a few of them, and the server goes on meanwhile."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from pharoah_learning.context_rule import ALL_FACTS, ContextRule
from pharoah_learning.incompatibility import learn_incompatibilities
from pharoah_learning.release import Release, Suspect
from pharoah_protocol.vocabulary import Outcome
from pharoah_provider.domain import Node
from pharoah_provider.listings import Row
from pharoah_provider.listings._node_names import MAX_NAMED
from pharoah_provider.storage.duckdb import DuckStorage
from tests.harness.database import new_database
from tests.harness.listings import listed
from tests.learning.test_row_evidence import campaign

FACTS, DEVICE = ("gpu=large",), ("device=large",)
CONTEXT = ALL_FACTS.context_of(FACTS)
NODES = [f"n{number:03}" for number in range(3 * MAX_NAMED)]
REST = 2 * MAX_NAMED


def node(name: str) -> Node:
    return Node(name, bytes(32), "boot", FACTS, DEVICE, (0,))


def suspect(name: str, context_id: str = CONTEXT) -> Suspect:
    return Suspect(
        node=name,
        context_id=context_id,
        device_id=node(name).device_id,
        outcome=Outcome.CRASH,
        failures=4,
        runs=4,
        title=f"gpt on {name}",
        refuting=0,
    )


def listing(folder: Path, name: str, release: Release, nodes: Sequence[Node]) -> list[Row]:
    folder.mkdir(exist_ok=True)
    new_database(folder / "p.duckdb")
    storage = DuckStorage(folder / "p.duckdb")

    async def work() -> list[Row]:
        for one in nodes:
            await storage.nodes.put_node(one)
        await storage.published.put_release(release)
        return await listed(storage, name)

    try:
        return asyncio.run(work())
    finally:
        storage.close()


def test_a_row_names_few_nodes_of_a_large_context_and_the_listing_of_contexts_names_all(tmp_path: Path) -> None:
    trials = [replace(one, context_id=CONTEXT) for one in campaign() if one.context_id == "small"]
    release = Release(1, tuple(learn_incompatibilities(trials)))
    nodes = [node(name) for name in NODES]
    rows = [row for row in listing(tmp_path / "table", "table", release, nodes) if row["scope"] == "server"]
    named = "+".join(NODES[:MAX_NAMED])
    assert rows and {row["nodes"] for row in rows} == {f"{named} and {REST} more"}
    (context,) = listing(tmp_path / "contexts", "contexts", release, nodes)
    assert context["nodes"] == "+".join(NODES)


def test_a_context_of_few_nodes_has_all_of_them_in_its_rows(tmp_path: Path) -> None:
    trials = [replace(one, context_id=CONTEXT) for one in campaign() if one.context_id == "small"]
    release = Release(1, tuple(learn_incompatibilities(trials)))
    rows = listing(tmp_path, "table", release, [node(name) for name in NODES[:MAX_NAMED]])
    assert {row["nodes"] for row in rows if row["scope"] == "server"} == {"+".join(NODES[:MAX_NAMED])}


def test_a_suspect_names_few_of_the_nodes_that_would_confirm_it(tmp_path: Path) -> None:
    release = Release(1, suspects=(suspect("n000"), suspect("n000", "no node has this context")))
    in_context, with_device = listing(tmp_path, "suspects", release, [node(name) for name in NODES])
    peers = f"{' or '.join(NODES[1 : MAX_NAMED + 1])} or one of {REST - 1} more"
    assert in_context["confirmed_by"] == f"the same failure on {peers}"
    assert with_device["confirmed_by"] == f"for the device model: the same failure on {peers}; here: a second node"


@pytest.mark.parametrize("name", ["suspects", "contexts"])
def test_the_context_of_each_node_is_found_once_and_not_by_the_thread_that_serves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    found: list[tuple[str, ...]] = []
    threads: set[threading.Thread] = set()
    context_of = ContextRule.context_of

    def noted(rule: ContextRule, facts: Sequence[str]) -> str:
        found.append(tuple(facts))
        threads.add(threading.current_thread())
        return context_of(rule, facts)

    monkeypatch.setattr(ContextRule, "context_of", noted)
    release = Release(1, suspects=tuple(suspect(one) for one in NODES))
    assert listing(tmp_path, name, release, [node(one) for one in NODES])
    assert found == [FACTS] * len(NODES)
    assert threading.current_thread() not in threads
