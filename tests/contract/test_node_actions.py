"""What becomes of a node on which work fails: actions for its agent, its offers, its scheduler, and the way back."""

from __future__ import annotations

import asyncio
import json
import subprocess
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pharoah.sidecar.exchange_client import ExchangeClient
from pharoah.sidecar.provider_connection import ProviderConnection
from pharoah.sidecar.verdict_rules import verdict_from_rows
from pharoah_archetypes import Fingerprint
from pharoah_auditor.replay import replay
from pharoah_benchmarks.campaign.cell import Cell, CellResult, DryCell
from pharoah_learning.context_rule import ALL_FACTS
from pharoah_protocol.incident_states import CONFIRMED, QUIET
from pharoah_protocol.rpc import Stub
from pharoah_protocol.v1 import ExportAuditBundleRequest, GetOfferRequest, LearnRequest, ListRequest, ReturnNodeRequest
from pharoah_protocol.v1 import NodeAction as ActionCode
from pharoah_protocol.vocabulary import NodeAction, NodeClass, Outcome
from pharoah_provider.node_actions import ActionMode, classify_stored
from pharoah_provider.schedulers import SCHEDULERS, NodeOrder, commands
from pharoah_provider.storage.duckdb import DuckStorage
from tests.contract.test_incidents import first_state
from tests.harness.exchange import KNOWN, OTHER
from tests.harness.loopback import Loopback, bearer, loopback, node, ticket

WORKLOADS = ("gpt", "convnet", "mlp", "lstm")


async def with_cells(folder: Path, failing: Callable[[str, str], bool], rounds: int = 8) -> None:
    """Store cells of all workloads on both nodes, of which some fail."""
    async with loopback(folder):
        pass
    store = DuckStorage(folder / "p.duckdb")
    await append_cells(store, failing, rounds)
    store.close()


async def append_cells(
    store: DuckStorage,
    failing: Callable[[str, str], bool],
    rounds: int,
    jobs: Mapping[str, Fingerprint] = dict.fromkeys(WORKLOADS, OTHER),
) -> None:
    """`jobs`: workload to the fingerprint of its cells."""
    for number in range(rounds):
        for workload, fingerprint in jobs.items():
            cell = Cell(f"c{number}", workload, {"batch": 8})
            await store.dry_runs.put(cell, "software", DryCell(fingerprint=fingerprint.to_json()))
            for name in ("n1", "n2"):
                outcome = Outcome.ERROR if failing(name, workload) else Outcome.OK
                seconds = [] if outcome is Outcome.ERROR else [0.1] * 4
                result = CellResult(
                    cell=cell.id, outcome=outcome, step_seconds=seconds, fingerprint=fingerprint.to_json()
                )
                await store.evidence.append_cell("c", node(name), cell, result)


async def learned(site: Loopback) -> str:
    """Learn, and return the line about nodes."""
    call = Stub(site.channel, "Operator").Learn(LearnRequest(), metadata=bearer("ops"), timeout=30)
    lines = [step.message async for step in call]
    return next(line for line in lines if line.startswith("nodes"))


async def actions(site: Loopback) -> dict[str, dict[str, Any]]:
    listed = await site.call("Operator", "List", ListRequest(listing="node-actions"), "ops")
    return {row["node"]: row for row in map(json.loads, listed.rows)}


async def offered(site: Loopback, name: str) -> int:
    return int((await site.call("Exchange", "GetOffer", GetOfferRequest(ticket=ticket(name)))).node_state)


def on_site(
    folder: Path, mode: ActionMode, failing: Callable[[str, str], bool], work: Callable[[Loopback], Awaitable[None]]
) -> None:
    """Do `work` on a provider that has the cells."""

    async def inside() -> None:
        await with_cells(folder, failing)
        async with loopback(folder, node_actions=mode) as site:
            await work(site)

    asyncio.run(inside())


def test_a_node_on_which_everything_fails_is_drained_where_that_is_enforced(tmp_path: Path) -> None:
    async def inside() -> None:
        await with_cells(tmp_path, lambda name, _: name == "n1")
        async with loopback(tmp_path, node_actions=ActionMode.ENFORCE) as site:
            assert "drain n1" in await learned(site)
            sent = await first_state(site, "n1")
            assert (sent.action, sent.enforced) == (ActionCode.NODE_ACTION_DRAIN, True)
            assert sent.advice.startswith("drain this node; persistent")
            assert await offered(site, "n1") == CONFIRMED.code
            assert await offered(site, "n2") == QUIET.code
        async with loopback(tmp_path, node_actions=ActionMode.ENFORCE) as again:
            assert (await first_state(again, "n1")).action == ActionCode.NODE_ACTION_DRAIN, "it is kept over a restart"

    asyncio.run(inside())


@pytest.mark.parametrize(
    ("mode", "action"),
    [(ActionMode.OBSERVE, ActionCode.NODE_ACTION_KEEP), (ActionMode.RECOMMEND, ActionCode.NODE_ACTION_DRAIN)],
)
def test_without_enforcement_no_tenant_hears_of_it(tmp_path: Path, mode: ActionMode, action: int) -> None:
    async def work(site: Loopback) -> None:
        await learned(site)
        assert (await actions(site))["n1"]["action"] == NodeAction.DRAIN
        sent = await first_state(site, "n1")
        assert (sent.action, sent.enforced) == (action, False)
        assert await offered(site, "n1") == QUIET.code

    on_site(tmp_path, mode, lambda name, _: name == "n1", work)


def test_a_gray_node_is_to_be_avoided_for_the_work_that_fails_on_it(tmp_path: Path) -> None:
    async def work(site: Loopback) -> None:
        await learned(site)
        sent = await first_state(site, "n1")
        assert sent.action == ActionCode.NODE_ACTION_AVOID
        assert sent.advice.startswith("avoid gpt (batch=8); gray")
        assert await offered(site, "n1") == QUIET.code

    on_site(tmp_path, ActionMode.ENFORCE, lambda name, workload: (name, workload) == ("n1", "gpt"), work)


def test_a_node_that_an_operator_returns_is_judged_by_what_it_does_from_then_on(tmp_path: Path) -> None:
    async def inside() -> None:
        await with_cells(tmp_path, lambda name, _: name == "n1")
        async with loopback(tmp_path, node_actions=ActionMode.ENFORCE) as site:
            await learned(site)
            await site.call("Operator", "ReturnNode", ReturnNodeRequest(node="n1"), "ops")
            assert (await first_state(site, "n1")).action == ActionCode.NODE_ACTION_KEEP
            assert "nothing to do" in await learned(site), "what it did before counts no more"
            assert (await actions(site))["n1"]["by"] == "operator"
            with pytest.raises(Exception, match="'n9' is not known"):
                await site.call("Operator", "ReturnNode", ReturnNodeRequest(node="n9"), "ops")
        store = DuckStorage(tmp_path / "p.duckdb")
        await append_cells(store, lambda name, _: name == "n1", 8)
        store.close()
        async with loopback(tmp_path, node_actions=ActionMode.ENFORCE) as site:
            assert "drain n1" in await learned(site)

    asyncio.run(inside())


def test_a_job_learns_that_this_node_is_wrong_for_it_and_an_auditor_follows(tmp_path: Path) -> None:
    """The gray node fails for one job. On the other node it has run, but one node is too few to say that it works."""

    async def statuses(site: Loopback) -> dict[tuple[str, str], str]:
        provider = ProviderConnection(site.settings())
        try:
            client = ExchangeClient(provider, site.settings(), remember=False)
            return {
                (name, job): verdict_from_rows(await client.ask(fingerprint, ticket(name)), "").status
                for name in ("n1", "n2")
                for job, fingerprint in (("gpt", KNOWN), ("mlp", OTHER))
            }
        finally:
            await provider.channel.close(None)

    async def inside() -> None:
        async with loopback(tmp_path):
            pass
        store = DuckStorage(tmp_path / "p.duckdb")
        jobs = {"gpt": KNOWN, "mlp": OTHER}
        await append_cells(store, lambda *place: place == ("n1", "gpt"), rounds=20, jobs=jobs)
        store.close()
        async with loopback(tmp_path) as site:
            await learned(site)
            assert await statuses(site) == {
                ("n1", "gpt"): "incompatible", ("n1", "mlp"): "compatible",
                ("n2", "gpt"): "unknown", ("n2", "mlp"): "compatible",
            }  # fmt: skip
            listed = await site.call("Operator", "List", ListRequest(listing="table"), "ops")
            assert any(row["title"].endswith(", on n1") for row in map(json.loads, listed.rows))
            bundle = await site.call("Operator", "ExportAuditBundle", ExportAuditBundleRequest(epoch=1), "ops")
            (tmp_path / "bundle").write_text(bundle.content)
            public = bytes.fromhex((tmp_path / "provider.pub").read_text())
            assert [one.what for one in replay(tmp_path / "bundle", public) if one.holds is False] == []

    asyncio.run(inside())


def test_a_node_on_which_cells_crash_before_they_have_a_fingerprint_has_a_class(tmp_path: Path) -> None:
    """Learning does not know which jobs they were."""

    async def inside() -> None:
        async with loopback(tmp_path):
            pass
        store = DuckStorage(tmp_path / "p.duckdb")
        await append_cells(store, lambda *_: False, rounds=8)
        for number in range(8):
            for workload in WORKLOADS:
                cell = Cell(f"d{number}", workload, {"batch": 8})
                crashed = CellResult(cell=cell.id, outcome=Outcome.CRASH, detail="exit status 139")
                await store.evidence.append_cell("c", replace(node("n1"), node="n3"), cell, crashed)
        (found,) = await classify_stored(store, ALL_FACTS, time.time() + 1)
        assert (found.node, found.estimate.node_class) == ("n3", NodeClass.PERSISTENT)
        store.close()

    asyncio.run(inside())


def test_of_what_learning_does_not_use_successes_count_like_failures(tmp_path: Path) -> None:
    """Its cells have no fingerprint; of a hundred that it has run, five crashed."""

    async def inside() -> None:
        async with loopback(tmp_path):
            pass
        store = DuckStorage(tmp_path / "p.duckdb")
        await append_cells(store, lambda *_: False, rounds=8)
        for number in range(100):
            cell = Cell(f"d{number}", WORKLOADS[number % len(WORKLOADS)], {"batch": 8})
            outcome = Outcome.CRASH if number % 21 == 0 else Outcome.OK
            result = CellResult(cell=cell.id, outcome=outcome, step_seconds=[0.1])
            await store.evidence.append_cell("c", replace(node("n1"), node="n3"), cell, result)
        found = {one.node: one.estimate.node_class for one in await classify_stored(store, ALL_FACTS, time.time() + 1)}
        assert found.get("n3") not in (NodeClass.PERSISTENT, NodeClass.GRAY)
        store.close()

    asyncio.run(inside())


@pytest.mark.parametrize("name", list(SCHEDULERS.entries))
def test_the_commands_of_a_scheduler_name_the_node_and_hold_no_trap(name: str) -> None:
    orders = [
        NodeOrder("n1", True, 'persistent, "$(reboot)" `x` 9/9'),
        NodeOrder("n2", False),
        NodeOrder("n[1-9]; reboot", True),
        NodeOrder("ALL", True),
        NodeOrder("localhost", True),
    ]
    drain, back, *left_out = commands(SCHEDULERS[name], orders)
    assert "n1" in drain and "pharoah: persistent" in drain
    assert "$(reboot)" not in drain and "`x`" not in drain
    assert "n2" in back and "n1" not in back
    assert all(line.startswith("#") and "left out" in line for line in left_out)


@pytest.mark.parametrize(
    ("reason", "drained", "resumed"),
    [("pharoah: persistent", True, True), ("disk replaced by ops", False, False), ("none", True, False)],
)
def test_slurm_drains_and_resumes_nothing_that_people_have_drained(
    tmp_path: Path, reason: str, drained: bool, resumed: bool
) -> None:
    """The line runs in a real shell, with a `sinfo` that knows why each node is drained."""
    (tmp_path / "scontrol").write_text('#!/bin/sh\necho "$@"\n')
    (tmp_path / "sinfo").write_text(f"#!/bin/sh\necho '{reason}'\necho '{reason}'\n")
    for program in ("sinfo", "scontrol"):
        (tmp_path / program).chmod(0o755)
    orders = [NodeOrder("n1", True, "persistent (0.99)"), NodeOrder("n1", False)]
    drain, back = (shell(line, tmp_path) for line in commands(SCHEDULERS["slurm"], orders))
    assert drain == ("update NodeName=n1 State=DRAIN Reason=pharoah: persistent (0.99)\n" if drained else "")
    assert back == ("update NodeName=n1 State=RESUME\n" if resumed else "")


def test_a_node_whose_cells_end_well_with_wrong_losses_has_a_class(tmp_path: Path) -> None:
    """Learning knows from the other nodes that its losses are wrong, and so do actions."""

    async def inside() -> None:
        async with loopback(tmp_path):
            pass
        store = DuckStorage(tmp_path / "p.duckdb")
        for number in range(8):
            for workload in WORKLOADS:
                cell = Cell(f"c{number}", workload, {"batch": 8})
                await store.dry_runs.put(cell, "software", DryCell(fingerprint=OTHER.to_json()))
                for name in ("n1", "n2", "n3"):
                    losses = [2.0, 1.0] if name != "n1" else [2.5, 7.0]
                    result = CellResult(
                        cell=cell.id, outcome=Outcome.OK, step_seconds=[0.1] * 2, fingerprint=OTHER.to_json(),
                        losses=losses,
                    )  # fmt: skip
                    await store.evidence.append_cell("c", replace(node("n1"), node=name), cell, result)
        (found,) = await classify_stored(store, ALL_FACTS, time.time() + 1)
        assert (found.node, found.estimate.node_class) == ("n1", NodeClass.PERSISTENT)
        store.close()

    asyncio.run(inside())


def shell(line: str, programs: Path) -> str:
    """What a line prints."""
    return subprocess.run(["/bin/sh", "-c", line], env={"PATH": str(programs)}, capture_output=True, text=True).stdout
