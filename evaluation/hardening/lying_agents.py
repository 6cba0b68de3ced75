"""One malicious agent, and a few malicious organisations: which rows they make, and whether learning survives them.

A real provider (gRPC, DuckDB, its own dry runs) serves scripted agents over the real stream. Honest agents replay cells
that were really trained on this machine, under the limits of the nodes that they stand for. The malicious agent answers
in one of several ways, in a context of its own and in those of the honest nodes.
"""

from __future__ import annotations

import asyncio
import json
import random
import secrets
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import duckdb

from evaluation.figures import Figures, timed
from evaluation.hardening import bad_evidence
from pharoah_archetypes import Fingerprint
from pharoah_benchmarks.campaign.cell import Cell, CellResult
from pharoah_benchmarks.campaign.plan import parse_plan
from pharoah_learning.release import LearnedRow, Release
from pharoah_learning.shared_outcomes import learn_shared_outcomes
from pharoah_protocol.channels import MIN_TOKEN_CHARACTERS
from pharoah_protocol.node_profile import NodeProfile, command_under
from pharoah_protocol.pseudonyms import period_at
from pharoah_protocol.v1 import (
    Consent,
    EndRunRequest,
    EndState,
    EvaluatePseudonymRequest,
    JoinRunRequest,
    ReportRequest,
)
from pharoah_protocol.vocabulary import MEASURED_OUTCOMES, Outcome, Severity
from pharoah_protocol.voprf import protocol
from pharoah_provider.first_start import move_away
from pharoah_provider.learning import learn
from pharoah_provider.shared_votes import MIN_SECONDS
from pharoah_provider.storage.duckdb import DuckStorage
from pharoah_serving.clock import Clock
from pharoah_serving.quotas import Limits
from tests.harness.loopback import server_settings
from tests.harness.scripted_agents import ScriptedAgent, ScriptedSite, content_of, replayed, scripted_site, ticket_of

PLAN = """
name = "hardening"
repeats = 5

[[workload]]
name = "gpt"
steps = 3
settings = { batch = 2 }
vary = { attention = ["flash", "math"], length = [128, 1024] }
"""
SMALL_MEMORY_BYTES = 440_000_000
"""Between what the GPT needs at 1,024 tokens with flash attention and with math attention (`tests/harness/site`)."""
LARGE: tuple[str, ...] = ("device=a CPU", "memory_limit=0")
SMALL: tuple[str, ...] = ("device=a CPU", f"memory_limit={SMALL_MEMORY_BYTES}")
DEVICE = ("device=a CPU",)
VICTIM = Fingerprint(
    "cd" * 16, "34" * 16, "fwd: gemm", {"dtype": "bfloat16"}, {"parameters": 2**30, "activations": 2**28},
    {"torch": "2.13.0"},
)  # fmt: skip
"""The production model of somebody else, whose fingerprint the malicious agent has guessed."""
MALICIOUS = "n9"


@dataclass(frozen=True)
class FalseAnswers:
    """One way to answer falsely."""

    name: str
    answer: Callable[[CellResult, random.Random], dict[str, Any]]
    """Fields of the result that replace those of an honest one."""


WAYS = (
    FalseAnswers("the fingerprint of somebody else's model", lambda _, __: _failing(fingerprint=VICTIM.to_json())),
    FalseAnswers("always an error", lambda _, __: _failing()),
    FalseAnswers("always out of memory", lambda _, __: _failing(outcome=Outcome.MEMORY)),
    FalseAnswers("always ok", lambda _, __: {"outcome": Outcome.OK, "step_seconds": [0.1] * 3, "detail": ""}),
    FalseAnswers("tiny seconds", lambda _, __: {"outcome": Outcome.OK, "step_seconds": [1e-9] * 3}),
    FalseAnswers("huge seconds", lambda _, __: {"outcome": Outcome.OK, "step_seconds": [1e5] * 3}),
    FalseAnswers("seconds beyond every bound", lambda _, __: {"outcome": Outcome.OK, "step_seconds": [1e308] * 3}),
    FalseAnswers("70 features of 1,000 characters", lambda _, __: _failing(fingerprint=_too_long())),
    FalseAnswers("mixed outcomes", lambda _, chance: _failing(outcome=chance.choice(MEASURED_OUTCOMES))),
)
PLACES = {"its own context": (*LARGE, "cooling_zone=9"), "the large context": LARGE, "the small context": SMALL}
"""Where the malicious agent says that it stands; the device facts are always those of the fleet."""


def measure(figures: Figures, quick: bool, seed: int) -> None:
    """All figures of this part."""
    chance = random.Random(seed)
    with tempfile.TemporaryDirectory() as folder:
        fleet = _Fleet(Path(folder))
        timed("false answers", lambda: asyncio.run(_one_agent(figures, fleet, chance, quick)))
        timed("evidence that cannot be used", lambda: asyncio.run(_bad_inputs(figures, fleet, quick)))
        timed("organisations", lambda: asyncio.run(_organisations(figures, Path(folder) / "votes", quick)))


class _Fleet:
    """Honest agents on two contexts of two nodes, with results that were measured here, and their database."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        cells = {content_of(cell): replace(cell, repeat=0) for cell in parse_plan(PLAN).cells}
        large, small = (_measured(cells.values(), limit) for limit in (0, SMALL_MEMORY_BYTES))
        outcomes = {CellResult.from_json(text).outcome for text in small.values()}
        assert Outcome.MEMORY in outcomes, "no cell runs out of memory here: the figures would show nothing"
        self.honest = [
            ScriptedAgent(name, facts, DEVICE, cpu, replayed(results))
            for name, facts, cpu, results in (
                ("n1", LARGE, 1, large), ("n2", LARGE, 2, large), ("n3", SMALL, 3, small), ("n4", SMALL, 4, small)
            )
        ]  # fmt: skip
        self.results = {LARGE: large, SMALL: small}

    def malicious(self, way: FalseAnswers, facts: tuple[str, ...], chance: random.Random) -> ScriptedAgent:
        """An agent that answers in one false way."""
        honest = replayed(self.results.get(facts, self.results[LARGE]))

        def answer(cell: Cell) -> str:
            true = json.loads(honest(cell))
            return json.dumps({**true, **way.answer(CellResult.from_json(honest(cell)), chance)})

        return ScriptedAgent(MALICIOUS, facts, DEVICE, 9, answer)


async def _one_agent(figures: Figures, fleet: _Fleet, chance: random.Random, quick: bool) -> None:
    """Each false way in each place, beside four honest agents: rows that are not there, or milder, without it."""
    before = fleet.folder / "honest"
    async with scripted_site(before, fleet.honest) as site:
        await site.campaign(PLAN)
        without = await _rows(site)
    assert any(row["severity"] == Severity.BLOCK for row in without.values()), "the honest agents find no block"
    settings = server_settings(before)
    move_away(settings.keys, settings.db)  # else no copy of its files would start
    made: dict[str, list[str]] = {}
    pairs = [(way, place) for way in WAYS for place in PLACES]
    for way, place in chance.sample(pairs, 9 if quick else len(pairs)):
        folder = fleet.folder / secrets.token_hex(4)
        shutil.copytree(before, folder)
        agent = fleet.malicious(way, PLACES[place], chance)
        async with scripted_site(folder, [*fleet.honest, agent]) as site:
            await site.campaign(PLAN)
            made[f"{way.name}, in {place}"] = _made(await _rows(site), without)
        shutil.rmtree(folder)
    made["two contexts"] = await _in_two_contexts(fleet, chance, before, without)
    rows = sum(map(len, made.values()))
    figures.details["rows_made_by_one_liar"] = {name: found for name, found in made.items() if found}
    figures.add("rows_made_by_one_liar", rows, "0", rows == 0, f"{len(made)} ways and places, 4 honest agents")


async def _in_two_contexts(
    fleet: _Fleet, chance: random.Random, before: Path, without: dict[str, dict[str, Any]]
) -> list[str]:
    """The same agent, first in one context and then in another one of its own."""
    folder = fleet.folder / "two"
    shutil.copytree(before, folder)
    for zone in ("cooling_zone=8", "cooling_zone=9"):
        agent = fleet.malicious(WAYS[1], (*LARGE, zone), chance)
        async with scripted_site(folder, [*fleet.honest, agent]) as site:
            await site.campaign(PLAN)
            rows = await _rows(site)
    return _made(rows, without)


async def _rows(site: ScriptedSite) -> dict[str, dict[str, Any]]:
    """The rows of a new release, by id."""
    await site.learn()
    return {row["id"]: row for name in ("table", "near-duplicates") for row in await site.listing(name)}


def _made(rows: dict[str, dict[str, Any]], without: dict[str, dict[str, Any]]) -> list[str]:
    """Rows that warn or block and do not without the malicious agent; and rows that hold for honest nodes, but only
    with it."""
    found = []
    for name, row in rows.items():
        severity, honest = Severity(row["severity"]), without.get(name)
        worse = severity is not Severity.OK and (honest is None or Severity(honest["severity"]).code < severity.code)
        new = honest is None and row["nodes"] != MALICIOUS
        if worse or new:
            found.append(f"{row['scope']} {row['rung']} {severity} {row['title']}")
    return found


async def _bad_inputs(figures: Figures, fleet: _Fleet, quick: bool) -> None:
    """Each kind of evidence that cannot be used, in the database of the honest agents: alone, or five at once in the
    short form, and alone where five did not pass."""
    database = fleet.folder / "honest" / "p.duckdb"
    expected, _ = await _learned(database)
    kinds, good = bad_evidence.kinds(), _good_rows(database)
    together = 5 if quick else 1
    lost: list[str] = []
    for at in range(0, len(kinds), together):
        group = kinds[at : at + together]
        if not await _survives(database, group, good, expected):
            lost += [
                f"{kind.table}: {kind.name}"
                for kind in group
                if together == 1 or not await _survives(database, [kind], good, expected)
            ]
    figures.details["learning_did_not_survive"] = lost
    figures.ratio("learn_survives_bad_inputs_ratio", len(kinds) - len(lost), len(kinds), 1.0)
    figures.add("bad_input_kinds", len(kinds), ">= 100", len(kinds) >= 100)


async def _survives(
    database: Path,
    kinds: Sequence[bad_evidence.BadEvidence],
    good: dict[str, dict[str, Any]],
    expected: frozenset[LearnedRow],
) -> bool:
    """Whether a release with this evidence has the same rows, and names what was left out.

    What an own fingerprint would have been used for is not left out: other ones of the same cell are there.
    """
    with duckdb.connect(str(database)) as connection:
        for kind in kinds:
            bad_evidence.plant(connection, kind, good)
    rows, named = await _learned(database)
    with duckdb.connect(str(database)) as connection:
        bad_evidence.remove(connection)
    return rows == expected and (named or all(kind.table == "own_fingerprints" for kind in kinds))


async def _learned(database: Path) -> tuple[frozenset[LearnedRow], bool]:
    """The rows of a release from this database, which is empty when there is none; and whether anything was named."""
    store = DuckStorage(database)
    named, rows = False, frozenset[LearnedRow]()
    try:
        async for step in learn(store):
            if isinstance(step, Release):
                rows = frozenset(step.rows)
            else:
                named |= step.startswith("left out")
    except Exception as error:  # noqa: BLE001 - what ends learning is the result
        print(f"  learning ended: {type(error).__name__}: {error}"[:160], flush=True)
    finally:
        store.close()
    return rows, named


def _good_rows(database: Path) -> dict[str, dict[str, Any]]:
    """A good row of each table, marked as bad, to which the kinds add what is wrong."""
    with duckdb.connect(str(database)) as connection:
        found = {}
        for table in ("cells", "own_fingerprints", "probes"):
            row = connection.execute(f"SELECT * FROM {table} LIMIT 1")
            names = [column[0] for column in row.description]
            found[table] = dict(zip(names, row.fetchone() or (), strict=True))
    found["cells"]["campaign"] = found["own_fingerprints"]["software"] = bad_evidence.BAD
    found["cells"]["node"], found["probes"]["order_id"] = MALICIOUS, bad_evidence.BAD
    found["cells"]["fingerprint"] = bad_evidence.OTHER_JOB.to_json()
    found["outcome_reports"] = {
        "run_id": bytes(16),
        "period": period_at(time.time()),
        "name": "ab" * 32,
        "organisation": bad_evidence.BAD,
        "context_id": "c",
        "failed": True,
        "reported_at": time.time(),
    }
    return found


@dataclass
class _Time:
    """The provider's clock, which a minute may pass on at once."""

    passed_seconds: float = 0.0
    clock: Clock = field(init=False)

    def __post_init__(self) -> None:
        self.clock = Clock(lambda: time.time() + self.passed_seconds, lambda: time.monotonic() + self.passed_seconds)


async def _organisations(figures: Figures, folder: Path, quick: bool) -> None:
    """Seven of two hundred organisations report a failure of one working job; the others share what they run."""
    number, malicious = (100, 7) if quick else (200, 7)
    tokens = {f"org{at}": f"org{at}-".ljust(MIN_TOKEN_CHARACTERS, "t") for at in range(number)}
    agent = ScriptedAgent("n1", LARGE, DEVICE, 1, lambda _: "")
    lines = [f"tenant {name} {token}" for name, token in tokens.items()]
    now = _Time()
    names = [secrets.token_bytes(32) for _ in range(8)]
    async with scripted_site(folder, [agent], lines, limits=Limits(), clock=now.clock) as site:
        runs = {name: await _joined(site, token) for name, token in tokens.items()}
        now.passed_seconds += MIN_SECONDS + 1
        for at, (name, token) in enumerate(tokens.items()):
            # The first ones report the same job, which works, and nobody else has reported it.
            shared, state = (names[0], "FAILED") if at < malicious else (names[1 + at % 7], "OK")
            await _ended(site, token, runs[name], shared, state)
        votes = await site.listing("outcomes")
    reports = sum(vote["runs"] for vote in votes)
    failing = next((vote["failed"] for vote in votes if vote["name"] == names[0].hex()[:16]), 0)
    rows = await _name_rows(folder / "p.duckdb")
    held = rows == 0 and reports == number and failing == malicious
    interval = f"{malicious} of {number} organisations, {reports} votes"
    figures.add("rows_made_by_few_organisations", rows, "0", held, interval)


async def _joined(site: ScriptedSite, token: str) -> bytes:
    """A run that has joined, has had a pseudonym evaluated and has reported for a minute."""
    run_id = secrets.token_bytes(16)
    join = JoinRunRequest(run_id=run_id, ticket=ticket_of("n1"), ranks=1, consent=Consent())
    await site.call("Runs", "JoinRun", join, token)
    period = period_at(time.time())
    evaluate = EvaluatePseudonymRequest(period=period, blinded=protocol.blind(secrets.token_bytes(16)).element)
    await site.call("Pseudonyms", "EvaluatePseudonym", evaluate, token)
    seconds = int(MIN_SECONDS)
    report = ReportRequest(
        run_id=run_id,
        attempt=1,
        first_second=0,
        first_ended_at=time.time(),
        step_levels=[0] * seconds,
        memory_levels=[0] * seconds,
    )
    await site.call("Runs", "Report", report, token)
    return run_id


async def _ended(site: ScriptedSite, token: str, run_id: bytes, name: bytes, state: str) -> None:
    end = EndRunRequest(
        run_id=run_id, state=EndState.Value(f"END_STATE_{state}"), period=period_at(time.time()), pseudonym=name
    )
    await site.call("Runs", "EndRun", end, token)


async def _name_rows(database: Path) -> int:
    """Rows about pseudonyms in a release from this database; learning from shared outcomes alone."""
    store = DuckStorage(database)
    try:
        period = period_at(time.time())
        reports, earlier = [await store.evidence.outcome_reports(period - before) for before in (0, 1)]
    finally:
        store.close()
    return len(learn_shared_outcomes(reports, earlier))


def _failing(**values: Any) -> dict[str, Any]:
    """A result that failed at once."""
    return {"outcome": Outcome.ERROR, "step_seconds": [], "detail": "it failed", **values}


def _too_long() -> str:
    """A fingerprint whose rows cannot be sealed."""
    features = {f"f{number}": "x" * 1000 for number in range(70)}
    return replace(VICTIM, features=features).to_json()


def _measured(cells: Iterable[Cell], memory_limit_bytes: int) -> dict[str, str]:
    """By content: the result of one real cell each, trained on this machine under a limit of memory."""
    profile = NodeProfile(threads=1)
    command = [sys.executable, "-m", "pharoah_benchmarks.campaign.fork_server", str(memory_limit_bytes)]
    cells = list(cells)
    done = subprocess.run(
        command_under(profile, command),
        input="".join(f"{cell.to_json()}\n" for cell in cells),
        capture_output=True,
        text=True,
        check=True,
    )
    return dict(zip(map(content_of, cells), done.stdout.splitlines(), strict=True))
