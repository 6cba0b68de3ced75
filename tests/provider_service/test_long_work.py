"""What takes long is done in a thread: while the event loop computes, no tenant gets an answer."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from pharoah_benchmarks.campaign.cell import Cell, CellResult, Degradation
from pharoah_learning.evidence import BenchmarkResult
from pharoah_protocol.v1 import ListRequest
from pharoah_protocol.vocabulary import Outcome
from pharoah_provider import audit_bundle, learning
from pharoah_provider.listings import cells, wrong_answers
from pharoah_provider.services import operator
from pharoah_provider.storage.base import Storage
from pharoah_provider.storage.duckdb import DuckStorage, evidence, hazards, published
from pharoah_serving.errors import NotReady
from pharoah_serving.keys import Keys
from tests.harness.clock import SimulatedClock
from tests.harness.exchange import on_loopback
from tests.harness.listings import listed
from tests.harness.loopback import Loopback, node
from tests.harness.publisher import publisher_site

Noted = Callable[[Any, str], None]
PROBE = BenchmarkResult("o", "n1", "gemm", False, 0.0, 1.0, (1.0,), correct=True, digest="a" * 64)


@pytest.fixture
def noted(monkeypatch: pytest.MonkeyPatch) -> tuple[Noted, set[str], set[str]]:
    """A function that has calls of a function noted; which ones were called, and which of them on the event loop."""
    called, on_loop = set[str](), set[str]()

    def note(owner: Any, name: str) -> None:
        honest = getattr(owner, name)

        def wrapped(*arguments: Any) -> Any:
            called.add(name)
            if threading.current_thread() is threading.main_thread():
                on_loop.add(name)
            return honest(*arguments)

        monkeypatch.setattr(owner, name, wrapped)

    return note, called, on_loop


def with_evidence(folder: Path, work: Callable[[Storage], Awaitable[None]]) -> None:
    """Do `work` with a storage that holds a piece of evidence of each kind."""

    async def inside() -> None:
        cell = Cell("c", "gpt", {}, degradation=Degradation())
        await storage.nodes.put_node(node("n1"))
        await storage.evidence.append_cell("x", node("n1"), cell, CellResult(cell="c", outcome=Outcome.OK))
        await storage.evidence.append_probes([PROBE], "baseline")
        await work(storage)

    storage = DuckStorage(folder / "p.duckdb")
    try:
        asyncio.run(inside())
    finally:
        storage.close()


def test_learning_reads_and_checks_evidence_in_threads(tmp_path: Path, noted: tuple[Noted, set[str], set[str]]) -> None:
    note, called, on_loop = noted
    names = ["usable_degraded_runs", "usable_results", "usable_outcome_reports", "learn_baselines", "import_rows"]
    for name in names:
        note(learning, name)
    readers = ["_read_degraded_run", "benchmark_result", "_outcome_reports", "_trials"]
    for name in readers:
        note(evidence, name)

    async def work(storage: Storage) -> None:
        with pytest.raises(NotReady, match="nothing to learn from"):
            [step async for step in learning.learn(storage)]

    with_evidence(tmp_path, work)
    assert called == {*names, *readers} and not on_loop


def test_hours_of_trouble_and_rows_of_listings_are_made_in_threads(
    tmp_path: Path, noted: tuple[Noted, set[str], set[str]]
) -> None:
    note, called, on_loop = noted
    note(hazards, "_trouble_hours")
    note(cells, "_in_contexts")
    note(wrong_answers, "_differing")

    async def work(storage: Storage) -> None:
        await storage.hazards.trouble_hours(0.0, ("hot",))
        assert len(await listed(storage, "cells")) == 1
        assert await listed(storage, "wrong-answers") == []

    with_evidence(tmp_path, work)
    assert called == {"_trouble_hours", "_in_contexts", "_differing"} and not on_loop


def test_a_listing_is_encoded_in_a_thread(tmp_path: Path, noted: tuple[Noted, set[str], set[str]]) -> None:
    note, called, on_loop = noted
    note(operator, "_list")

    async def work(site: Loopback) -> None:
        assert len((await site.call("Operator", "List", ListRequest(listing="nodes"), "ops")).rows) == 2

    on_loopback(tmp_path, work)
    assert called == {"_list"} and not on_loop


def test_an_audit_bundle_is_encoded_and_its_seed_read_in_a_thread(
    tmp_path: Path, noted: tuple[Noted, set[str], set[str]]
) -> None:
    """A key service may take seconds for a seed."""
    note, called, on_loop = noted
    note(Keys, "epoch_seed")
    note(audit_bundle, "_encode")
    note(published, "_release")

    async def inside() -> None:
        async with publisher_site(tmp_path, SimulatedClock()) as site:
            await site.publisher.open()
            called.clear()
            bundle = json.loads(await audit_bundle.audit_bundle(site.store, site.keys, 1))
            assert bundle["format"] == audit_bundle.FORMAT

    asyncio.run(inside())
    assert called == {"epoch_seed", "_encode", "_release"} and not on_loop
