"""Campaigns over environments: what is not built, and what executes the same code. Real gRPC, real DuckDB."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from pharoah_archetypes import Fingerprint
from pharoah_benchmarks.campaign.cell import Cell, CellResult, DryCell, NotBuilt
from pharoah_benchmarks.campaign.plan import parse_plan
from pharoah_protocol.vocabulary import Outcome
from pharoah_provider.campaigns.same_code import same_code
from pharoah_provider.own_fingerprints import OwnFingerprints
from pharoah_provider.storage.duckdb import DuckStorage
from tests.harness.scripted_agents import ScriptedAgent, scripted_site

LOCK = """
[[lock]]
environment = "peft=={version}"
python = "3.11"
platform = "linux_x86_64"
packages = ["peft=={version} peft-{version}-py3-none-any.whl sha256:{hash}"]
"""
LOCKS = "".join(LOCK.format(version=version, hash="0" * 64) for version in ("0.1", "0.2", "0.3"))
PLAN = (
    """
name = "versions"
repeats = 2
skip_same_code = {skip}
[[environment]]
name = "tiny"
packages = ["peft=={{version}}"]
versions = ["0.1", "0.2", "0.3"]
[[workload]]
name = "mlp"
vary = {{ environment = ["tiny"], width = [8, 16] }}
"""
    + LOCKS
)
SAME = {("peft==0.1", 8), ("peft==0.2", 8)}
"""Environments and widths that execute the same code."""
FACTS = ("device=cpu small",)


def fingerprint_of(environment: str, width: int) -> Fingerprint:
    code = "same" if (environment, width) in SAME else f"of {environment} {width}"
    versions = {"torch": "2.13.0", "python": "3.11.7", "peft": environment.partition("==")[2]}
    sizes = {"parameters": width, "activations": width}
    return Fingerprint("ab" * 16, "12" * 16, "fwd: gemm", {}, sizes, versions, code={"peft": code})


def of_cell(cell: Cell) -> Fingerprint:
    return fingerprint_of(cell.environment, int(str(cell.settings["width"])))


def result_of(cell: Cell) -> str:
    if not cell.environment:  # the companion of a baseline
        return CellResult(cell=cell.id, outcome=Outcome.OK).to_json()
    fingerprint = replace(of_cell(cell), code={}).to_json()
    return CellResult(cell=cell.id, outcome=Outcome.OK, step_seconds=[0.1] * 3, fingerprint=fingerprint).to_json()


def not_built_third(cell: Cell) -> str:
    """An agent that cannot build one of the environments."""
    if cell.environment == "peft==0.3":
        return NotBuilt(cell=cell.id, not_built="pip: no such version").to_json()
    return result_of(cell)


def prepared(folder: Path) -> None:
    """A database with the provider's own dry runs of the cells, so that none is made here."""

    async def inside() -> None:
        store = DuckStorage(folder / "p.duckdb")
        software = OwnFingerprints(store.dry_runs).software
        for cell in {cell.content: cell for cell in parse_plan(PLAN.format(skip="true")).cells}.values():
            await store.dry_runs.put(cell, software, DryCell(of_cell(cell).to_json()))
        store.close()

    asyncio.run(inside())


def test_a_work_whose_environment_is_not_built_is_set_aside_and_makes_no_trial(tmp_path: Path) -> None:
    prepared(tmp_path)
    agents = [
        ScriptedAgent(name, FACTS, ("device=cpu",), cpu, not_built_third) for cpu, name in enumerate(("n1", "n2"))
    ]

    async def inside() -> None:
        async with scripted_site(tmp_path, agents) as site:
            lines = await site.campaign(PLAN.format(skip="false"))
            assert not any("leaves the campaign" in line for line in lines)
            works = await site.listing("campaign-works")
            dropped = [work for work in works if work["cause"] == "environment not built"]
            assert {work["cell"].partition("peft==")[2][:3] for work in dropped} == {"0.3"} and len(dropped) == 4
            assert all(f"{work['node']}: peft==0.3: pip: no such version" in work["reason"] for work in dropped)
            assert sum(work["state"] == "done" for work in works) == len(works) - len(dropped)
            assert len(await site.listing("cells")) == 8
            (campaign,) = await site.listing("campaigns")
            assert (campaign["state"], campaign["failed"], campaign["not_run"]) == ("done", 0, 4)

    asyncio.run(inside())


def no_room(cell: Cell) -> str:
    """An agent on a node whose disk is full."""
    return NotBuilt(cell=cell.id, not_built="no process could be started", may_be_tried_again=True).to_json()


def test_a_node_without_room_for_a_process_leaves_and_others_do_its_works(tmp_path: Path) -> None:
    prepared(tmp_path)
    agents = [
        ScriptedAgent(name, FACTS, ("device=cpu",), cpu, answer)
        for cpu, (name, answer) in enumerate((("n1", no_room), ("n2", result_of)))
    ]

    async def inside() -> None:
        async with scripted_site(tmp_path, agents) as site:
            lines = await site.campaign(PLAN.format(skip="false"))
            (left,) = [line for line in lines if "leaves the campaign" in line]
            assert "n1" in left and "no process could be started" in left
            works = await site.listing("campaign-works")
            lost = [work for work in works if work["state"] == "not run" and work["node"] == "n1"]
            assert len(lost) <= 2 and all(
                "attempts have failed" in work["reason"] or "left the campaign" in work["reason"] for work in lost
            )
            assert sum(work["state"] in ("done", "moved") for work in works) >= len(works) - 2

    asyncio.run(inside())


def test_of_environments_with_the_same_code_one_runs(tmp_path: Path) -> None:
    prepared(tmp_path)
    agents = [ScriptedAgent(name, FACTS, ("device=cpu",), cpu, result_of) for cpu, name in enumerate(("n1", "n2"))]

    async def inside() -> None:
        async with scripted_site(tmp_path, agents) as site:
            await site.campaign(PLAN.format(skip="true"))
            works = await site.listing("campaign-works")
            (campaign,) = await site.listing("campaigns")
            skipped = [work for work in works if work["cause"] == "same code"]
            ran = {cell["cell"] for cell in await site.listing("cells")}
        assert campaign["state"] == "done" and campaign["not_run"] == len(skipped) == 2
        assert not ran & {work["cell"] for work in skipped} and len(ran) == 10
        (other,) = {work["cell"].partition("environment=")[2].partition(",")[0] for work in skipped}
        (runs,) = {environment for environment, _ in SAME} - {other}
        assert {work["reason"] for work in skipped} == {f"it executes the same code as in {runs}"}
        assert all("width=8" in work["cell"] for work in skipped)

    asyncio.run(inside())


def cell(environment: str, **settings: object) -> Cell:
    return Cell("c", "mlp", {"environment": environment, **settings})


FINGERPRINT = fingerprint_of("peft==0.1", 8)


def test_cells_are_the_same_only_where_nothing_but_the_environment_differs() -> None:
    one, two = cell("a==1"), cell("a==2")
    differing = [
        replace(FINGERPRINT, code={}),
        replace(FINGERPRINT, code={**FINGERPRINT.code, "torch": "x"}),
        replace(FINGERPRINT, archetype="cd" * 16),
        replace(FINGERPRINT, features={"attention": "math"}),
        replace(FINGERPRINT, versions={**FINGERPRINT.versions, "python": "3.12.1"}),
    ]
    assert same_code([one, two], {one.content: FINGERPRINT, two.content: FINGERPRINT}) == {two.content: "a==1"}
    newer = replace(FINGERPRINT, versions={**FINGERPRINT.versions, "peft": "9", "python": "3.11.9"})
    assert same_code([one, two], {one.content: FINGERPRINT, two.content: newer}) == {two.content: "a==1"}
    for other in differing:
        assert same_code([one, two], {one.content: FINGERPRINT, two.content: other}) == {}
    assert same_code([one, two], {one.content: FINGERPRINT}) == {}, "it could not be dry-run"
    wide = cell("a==2", width=16)
    assert same_code([one, wide], {one.content: FINGERPRINT, wide.content: FINGERPRINT}) == {}
    plain = Cell("c", "mlp", {})
    assert same_code([plain, one], {plain.content: FINGERPRINT, one.content: FINGERPRINT}) == {}


@given(st.lists(st.tuples(st.integers(0, 5), st.sampled_from("xyz")), max_size=12))
def test_one_environment_of_each_code_runs(drawn: list[tuple[int, str]]) -> None:
    cells = {cell(f"a=={version}").content: cell(f"a=={version}") for version, _ in drawn}
    code = {cell(f"a=={version}").content: letter for version, letter in drawn}
    fingerprints = {content: replace(FINGERPRINT, code={"a": code[content]}) for content in cells}
    same = same_code([*cells.values()] * 2, fingerprints)
    running = [code[content] for content in cells if content not in same]
    assert sorted(running) == sorted({code[content] for content in cells})
    for content, environment in same.items():
        assert code[cell(environment).content] == code[content] and cell(environment).content not in same
