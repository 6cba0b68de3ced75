"""One malicious agent, and a few malicious organisations: what they say makes no row and ends nothing."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import pytest

from evaluation.hardening import bad_evidence
from pharoah_archetypes import Fingerprint
from pharoah_auditor.replay import replay
from pharoah_benchmarks.campaign.cell import Cell, CellResult, DryCell
from pharoah_benchmarks.campaign.plan import parse_plan
from pharoah_learning.degradation import fit_degradation
from pharoah_learning.evidence import DegradedRun, LeftOut, OutcomeReport, Trial
from pharoah_learning.incompatibility import learn_incompatibilities
from pharoah_learning.shared_outcomes import holds, learn_shared_outcomes
from pharoah_learning.slow_trials import mark_slow
from pharoah_learning.suspects import find_suspects
from pharoah_learning.usable_trials import NOT_AGREED, OTHER_JOB, OTHER_SOFTWARE, usable_trials
from pharoah_protocol.v1 import ExportAuditBundleRequest, ForgetRequest
from pharoah_protocol.vocabulary import NO_FAULT, Outcome, Scope, Severity
from pharoah_provider.domain import Run
from pharoah_provider.own_fingerprints import OwnFingerprints
from pharoah_provider.services.readers.cells import read_cell
from pharoah_provider.shared_votes import MIN_SECONDS, has_lasted
from pharoah_provider.storage.duckdb import DuckStorage
from pharoah_serving.keys import open_keys
from tests.harness.scripted_agents import ScriptedAgent, content_of, replayed, scripted_site
from tests.provider_service.test_learning import memory_incompatibility
from tests.provider_service.test_signals import RUNS

PLAN = """
name = "security"
repeats = 5
[[workload]]
name = "gpt"
vary = { attention = ["flash", "math"], length = [128, 1024] }
"""
CELLS = {content_of(cell): cell for cell in parse_plan(PLAN).cells}
LARGE, SMALL, DEVICE = ("device=a CPU",), ("device=a CPU", "memory_limit=440"), ("device=a CPU",)
VICTIM = replace(bad_evidence.OTHER_JOB, archetype="cd" * 16)


def fingerprint_of(cell: Cell) -> Fingerprint:
    """What the dry run of a cell stands for in these tests."""
    features = {"attention": str(cell.settings["attention"])}
    sizes = {"parameters": 1000, "activations": 1000 * int(cell.settings["length"])}
    return Fingerprint("ab" * 16, "12" * 16, "fwd: gemm", features, sizes, {"torch": "2.13.0"})


def result_of(cell: Cell, **changes: Any) -> str:
    """The result of a cell that worked."""
    result = CellResult(
        cell=cell.id, outcome=Outcome.OK, step_seconds=[0.1] * 4, fingerprint=fingerprint_of(cell).to_json()
    )
    return json.dumps({**json.loads(result.to_json()), **changes})


def out_of_memory(cell: Cell) -> bool:
    return cell.settings == {"attention": "math", "length": 1024}


def small_result(cell: Cell) -> str:
    failed = {"outcome": "memory", "step_seconds": []}
    return result_of(cell, **(failed if out_of_memory(cell) else {}))


def honest_agents() -> list[ScriptedAgent]:
    """Two contexts of two nodes; one job runs out of memory on the small one."""
    large, small = (
        replayed({content: result(cell) for content, cell in CELLS.items()}) for result in (result_of, small_result)
    )
    places = (("n1", LARGE, large), ("n2", LARGE, large), ("n3", SMALL, small), ("n4", SMALL, small))
    return [ScriptedAgent(name, facts, DEVICE, cpu, answer) for cpu, (name, facts, answer) in enumerate(places)]


def prepared(folder: Path) -> None:
    """A database with the provider's own dry runs of the cells, so that none is made here."""

    async def inside() -> None:
        folder.mkdir(parents=True, exist_ok=True)
        store = DuckStorage(folder / "p.duckdb")
        software = OwnFingerprints(store.dry_runs).software
        for cell in CELLS.values():
            await store.dry_runs.put(cell, software, DryCell(fingerprint_of(cell).to_json()))
        store.close()

    asyncio.run(inside())


def released(folder: Path, agents: list[ScriptedAgent]) -> tuple[dict[str, dict[str, Any]], list[str]]:
    """The rows of a release after a campaign with these agents, by id, and what `learn` printed."""
    prepared(folder)

    async def inside() -> tuple[dict[str, dict[str, Any]], list[str]]:
        async with scripted_site(folder, agents) as site:
            await site.campaign(PLAN)
            lines = await site.learn()
            rows = [row for name in ("table", "near-duplicates") for row in await site.listing(name)]
            return {row["id"]: row for row in rows}, lines

    return asyncio.run(inside())


def stated(rows: dict[str, dict[str, Any]]) -> dict[str, tuple[str, str]]:
    return {name: (row["severity"], row["outcome"]) for name, row in rows.items()}


@pytest.fixture(scope="module")
def honest(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    rows, _ = released(tmp_path_factory.mktemp("honest"), honest_agents())
    blocks = [row for row in rows.values() if row["severity"] == "block"]
    assert {(row["scope"], row["nodes"], row["rung"]) for row in blocks} == {("server", "n3+n4", "exact")}
    return rows


FALSE = {
    "somebody else's model": {"outcome": "error", "step_seconds": [], "fingerprint": VICTIM.to_json()},
    "always an error": {"outcome": "error", "step_seconds": []},
    "always an early error": {
        "outcome": "error",
        "step_seconds": [],
        "fingerprint": "",
        "context": {"versions": {"torch": "2.13.0"}},
    },
    "tiny seconds": {"step_seconds": [1e-9] * 4},
    "huge seconds": {"step_seconds": [1e5] * 4},
    "seconds beyond every bound": {"step_seconds": [1e308] * 4},
    "no JSON of a result": {"windows": 7},
    "70 features of 1,000 characters": {
        "fingerprint": replace(VICTIM, features={f"f{number}": "x" * 1000 for number in range(70)}).to_json()
    },
}


def malicious_agent(way: str, facts: tuple[str, ...]) -> ScriptedAgent:
    """An agent that answers every cell in one false way."""
    answers = {content: result_of(cell, **FALSE[way]) for content, cell in CELLS.items()}
    return ScriptedAgent("n9", facts, DEVICE, 9, replayed(answers))


@pytest.mark.parametrize(
    ("way", "facts"), [*((way, (*LARGE, "cooling_zone=9")) for way in FALSE), ("always an error", LARGE)]
)
def test_one_malicious_agent_makes_no_row(
    tmp_path: Path, honest: dict[str, dict[str, Any]], way: str, facts: tuple[str, ...]
) -> None:
    malicious = malicious_agent(way, facts)
    rows, lines = released(tmp_path, [*honest_agents(), malicious])
    others = {name: row for name, row in rows.items() if row["nodes"] != "n9"}
    assert stated(others) == stated(honest), "the rows of all others are the same"
    own = {row["severity"] for row in rows.values() if row["nodes"] == "n9"}
    assert own <= {"ok"}, "in a context of its own, it may only say that a job works there"
    if way == "somebody else's model":
        assert f"left out: 20 trials of n9: {OTHER_JOB}" in lines
    if way == "always an error":
        assert any(line.startswith("suspects: 4 failures that one node alone reports (n9)") for line in lines)


def test_suspects_are_listed_with_what_would_confirm_them(tmp_path: Path) -> None:
    prepared(tmp_path)
    malicious = malicious_agent("always an error", LARGE)

    async def inside() -> None:
        async with scripted_site(tmp_path, [*honest_agents(), malicious]) as site:
            await site.campaign(PLAN)
            await site.learn()
            suspects = await site.listing("suspects")
        assert {(s["node"], s["outcome"], s["refuted_by"]) for s in suspects} == {("n9", "error", 2)}
        assert {s["confirmed_by"] for s in suspects} == {"the same failure on n1 or n2"}

    asyncio.run(inside())


# which job a cell was


def trial(cell: Cell, node: str, fingerprint: Fingerprint, own: Fingerprint | None = None) -> Trial:
    return Trial(
        workload=cell.workload,
        settings=cell.settings,
        context_id="c",
        device_id="d",
        outcome=Outcome.OK,
        step_seconds=(0.1, 0.1),
        fingerprint=fingerprint.to_json(),
        own_fingerprints=(own.to_json(),) if own else (),
        node=node,
    )


def test_the_fingerprint_of_a_cell_is_the_providers_own() -> None:
    cell = next(iter(CELLS.values()))
    own, older = fingerprint_of(cell), replace(fingerprint_of(cell), versions={"torch": "2.12.0"})
    grammar = replace(own, grammar="fwd: conv", code={"x": "y"})

    def used(*trials: Trial) -> tuple[set[str], set[str]]:
        left_out = LeftOut()
        found = {(Fingerprint.from_json(one.fingerprint).versions["torch"]) for one in usable_trials(trials, left_out)}
        return found, {group.reason for group in left_out.counts}

    assert used(trial(cell, "a", grammar, own)) == ({"2.13.0"}, set())
    (kept,) = usable_trials([trial(cell, "a", grammar, own)], LeftOut())
    assert kept.fingerprint == own.to_json(), "what rows do not hold is the provider's own as well"
    assert used(trial(cell, "a", VICTIM, own), trial(cell, "b", VICTIM, own)) == (set(), {OTHER_JOB})
    assert used(trial(cell, "a", older, own), trial(cell, "a", older, own)) == (set(), {OTHER_SOFTWARE})
    assert used(trial(cell, "a", older, own), trial(cell, "b", older, own)) == ({"2.12.0"}, set())
    assert used(trial(cell, "a", own), trial(cell, "a", own)) == (set(), {NOT_AGREED})
    assert used(trial(cell, "a", own), trial(cell, "b", own), trial(cell, "c", VICTIM)) == ({"2.13.0"}, {NOT_AGREED})


def test_a_result_that_no_cell_can_have_measured_is_not_read() -> None:
    cell = next(iter(CELLS.values()))
    for changes in ({"step_seconds": [1e308]}, {"step_seconds": [1e-300]}, FALSE["70 features of 1,000 characters"]):
        with pytest.raises(ValueError, match=r"step_seconds|fingerprint"):
            read_cell(cell.to_json().encode(), result_of(cell, **changes).encode())


# evidence weighs by node


def test_a_hundred_trials_of_one_node_neither_warn_nor_block() -> None:
    trials = memory_incompatibility(5, 25)
    alone = [replace(one, node="odd") if one.outcome is Outcome.MEMORY else one for one in trials] * 20
    rows = learn_incompatibilities(alone)
    assert {row.severity for row in rows} == {Severity.OK} and {row.group_id for row in rows} == {"large", "cpu"}
    (suspect,) = find_suspects(alone)
    assert (suspect.node, suspect.outcome, suspect.failures, suspect.runs) == ("odd", "memory", 100, 100)


def test_a_node_that_fails_among_the_controls_hides_no_block() -> None:
    trials = memory_incompatibility(5, 25)
    false = [replace(trials[-1], node="odd", outcome=Outcome.MEMORY, step_seconds=())] * 50
    (block,) = [row for row in learn_incompatibilities([*trials, *false]) if row.severity is Severity.BLOCK]
    assert (block.scope, block.group_id, block.base_failures, block.base_runs) == (Scope.SERVER, "small", 0, 25)


def test_tiny_seconds_of_one_node_make_no_other_node_slow() -> None:
    base = memory_incompatibility(0, 4)[0]
    points = [replace(base, settings={"length": n}, context_id=c, node=f"{c}{i}", step_seconds=(0.1,) * 3)
              for n in range(4) for c in ("a", "b") for i in range(2)]  # fmt: skip
    tiny = [replace(one, context_id="z", node="odd", step_seconds=(1e-9,) * 3) for one in points[:1] * 50]
    assert {one.outcome for one in mark_slow([*points, *tiny])} == {Outcome.OK}


def test_one_node_lifts_the_threshold_of_risk_for_nobody() -> None:
    runs = [replace(run, node=f"n{number % 3}") for number, run in enumerate(RUNS)]
    wild = next(run for run in RUNS if run.fault == "cpu_share")
    false = [DegradedRun(NO_FAULT, wild.windows, died=False, node="odd")] * 30
    before, after = fit_degradation(runs).model, fit_degradation([*runs, *false]).model
    assert before.fitted and after.fitted
    assert after.score({"slowdown": 0.41}) > after.threshold, (
        "steps that take 1.5 times as long are risky, whatever one node reports"
    )


# evidence that cannot be used


def test_learning_skips_and_names_what_it_cannot_use(tmp_path: Path) -> None:
    """A few kinds of `evaluation hardening`, which has all of them, at once."""
    prepared(tmp_path)
    kinds = bad_evidence.kinds()
    assert len(kinds) >= 100

    async def inside() -> None:
        async with scripted_site(tmp_path, honest_agents()) as site:
            await site.campaign(PLAN)
            await site.learn()
            before = stated({row["id"]: row for row in await site.listing("table")})
        with duckdb.connect(str(tmp_path / "p.duckdb")) as connection:
            names = [column[0] for column in connection.execute("DESCRIBE cells").fetchall()]
            good = dict(zip(names, connection.execute("SELECT * FROM cells LIMIT 1").fetchone() or (), strict=True))
            good |= {"campaign": bad_evidence.BAD, "node": "n9", "fingerprint": VICTIM.to_json()}
            for kind in [kind for kind in kinds if kind.table == "cells"][::4]:
                bad_evidence.plant(connection, kind, {"cells": good})
            connection.execute(
                "INSERT INTO probes (order_id, node, benchmark, purpose, beside_job, seconds, error, ended_at) "
                "VALUES ('bad', 'n9', 'gemm', 'baseline', FALSE, ?, '', 1.0)",
                [[1e308] * 10],
            )
        async with scripted_site(tmp_path, []) as site:
            lines = await site.learn()
            assert stated({row["id"]: row for row in await site.listing("table")}) == before
        left_out = [line for line in lines if line.startswith("left out")]
        assert "left out: 1 benchmark result of n9: it cannot have been measured" in left_out
        assert any("n9: its step times cannot have been measured" in line for line in left_out)
        assert lines[-1].startswith("release 2 sealed")

    asyncio.run(inside())


# what an operator can do


def test_forgotten_evidence_teaches_nothing_and_the_log_shows_it(tmp_path: Path) -> None:
    prepared(tmp_path)

    async def inside() -> None:
        async with scripted_site(tmp_path, honest_agents()) as site:
            await site.campaign(PLAN)
            await site.learn()
            with pytest.raises(Exception, match="no evidence of node 'nobody'"):
                await site.call("Operator", "Forget", ForgetRequest(kind="node", name="nobody"))
            await site.call("Operator", "Forget", ForgetRequest(kind="node", name="n4"))
            lines = await site.learn()
            assert not [row for row in await site.listing("table") if row["severity"] == "block"]
            assert any(line.endswith("of n4: an operator has had it forgotten") for line in lines)
            assert any("(n3)" in line for line in lines if line.startswith("suspects"))
            await check(site, 2, forgotten=1)
            await site.call("Operator", "Forget", ForgetRequest(kind="node", name="n4", undo=True))
            with pytest.raises(Exception, match="is not forgotten"):
                await site.call("Operator", "Forget", ForgetRequest(kind="node", name="n4", undo=True))
            await site.learn()
            assert [row["nodes"] for row in await site.listing("table") if row["severity"] == "block"] == ["n3+n4"]
            cell = next(row for row in await site.listing("cells") if row["outcome"] == "memory")
            assert (await site.call("Operator", "Forget", ForgetRequest(kind="cell", name=cell["id"]))).changed == 1
            assert any("left out: 1 trial of " in line for line in await site.learn())
            assert not [row for row in await site.listing("table") if row["severity"] == "block"]

    async def check(site: Any, epoch: int, forgotten: int) -> None:
        content = (await site.call("Operator", "ExportAuditBundle", ExportAuditBundleRequest(epoch=epoch))).content
        file = tmp_path / "bundle.json"
        file.write_text(content)
        public = open_keys(tmp_path / "keys").public
        assert [finding.what for finding in replay(file, public) if finding.holds is False] == []
        data = json.loads(content)
        assert len(data["forgotten"]) == forgotten
        file.write_text(json.dumps({**data, "forgotten": []}))
        failed = {finding.what for finding in replay(file, public) if finding.holds is False}
        assert failed == {"0 changes of forgotten evidence are NOT the 1 of the log"}
        changed = [{**change, "name": "n1"} for change in data["forgotten"]]
        file.write_text(json.dumps({**data, "forgotten": changed}))
        failed = {finding.what for finding in replay(file, public) if finding.holds is False}
        assert failed == {"1 changes of forgotten evidence are NOT the 1 of the log"}

    asyncio.run(inside())


# votes


def test_a_vote_takes_a_run_of_a_minute_with_reports() -> None:
    run = Run(b"r" * 16, "acme", "n1", 1, 1, False, 0.0, joined_at=1000.0)
    assert has_lasted(run, MIN_SECONDS, 1000.0 + MIN_SECONDS)
    assert not has_lasted(run, MIN_SECONDS - 1, 5000.0), "silent"
    assert not has_lasted(run, 7200, 1000.0 + MIN_SECONDS - 1), "just begun"


def test_seven_of_two_hundred_organisations_make_no_row() -> None:
    def reports(period: int, count: int, name: str, failed: bool, start: int = 0) -> list[OutcomeReport]:
        return [
            OutcomeReport(bytes([n // 256, n % 256, period]), period, name, f"o{n}", "ctx", failed)
            for n in range(start, start + count)
        ]

    others = reports(7, 193, "cd" * 32, False, start=7)
    assert learn_shared_outcomes([*reports(7, 7, "ab" * 32, True), *others]) == []
    first_day = reports(8, 7, "ab" * 32, True)
    assert learn_shared_outcomes(first_day, earlier=others) == [], "also before the others have shared in this period"
    assert not holds(14, 14, 200) and holds(15, 15, 200)
