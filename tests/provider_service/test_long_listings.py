"""Listings of tables that grow with time have an end: the newest rows, so that they can be held and can arrive."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import duckdb
import pytest

from pharoah_provider import cli
from pharoah_provider.listings import LISTINGS, MAX_ROWS, newest
from pharoah_provider.storage.duckdb import DuckStorage
from tests.harness.database import new_database
from tests.harness.listings import listed
from tests.harness.loopback import TOKENS, loopback
from tests.harness.tokens import write_token

_INCIDENT = """
    (incident_id, resource_kind, resource, kind, state, fault_domain, raised_by, what, evidence, since, changed_at,
     step_ratio)
    SELECT {n}::TEXT, 'node', 'n1', 'slow', 'confirmed', 'node', 'r'::BLOB, 'w', 'e', {n}, {n}, 1.0
"""
_RUNS = """
    runs (run_id, attempt, job_id, tenant, node, ranks, beside_job, limit_seconds, joined_at)
    SELECT {n}::TEXT::BLOB, {n}, 'j'::BLOB, 'acme', 'n1', 1, false, 0.0, {n}
"""
ROWS = {
    "alerts": f"incidents {_INCIDENT}",
    "campaign-works": "campaign_works (campaign_id, number, kind, context_id, block, node, cell, state) "
    "SELECT 'c', {n}, 'cell', 'x', 0, 'n1', '', 'done'",
    "cells": "cells (ran_at, result_id, step_seconds) SELECT {n}, {n}::TEXT, [1.0]",
    "idle-checks": "idle_checks (node, checked_at) SELECT 'n1', {n}",
    "incidents": f"incident_transitions {_INCIDENT}",
    "outcomes": "outcome_reports (run_id, name, period, context_id, organisation, failed) SELECT {n}::TEXT::BLOB, "
    "lpad({n}::TEXT, 16, '0'), {n}, 'c', 'acme', true",
    "probes": "probes (node, started_at, seconds) SELECT 'n1', {n}, [1.0]",
    "reports": "report_spans (run_id, rank, first_second, last_second, ended_at) SELECT 'r'::BLOB, 0, {n}, {n}, {n}",
    "revealed": "revealed_jobs SELECT {n}::TEXT::BLOB, 'acme', 'c', '{{}}', {n}",
    "runs": _RUNS,
    "works-not-run": "campaign_works (campaign_id, number, kind, context_id, block, node, cell, state, cause) "
    "SELECT 'c', {n}, 'cell', 'x', 0, 'n1', '', 'not run', 'nodes left'",
    "wrong-answers": "probes (node, ended_at, correct) SELECT 'n1', {n}, FALSE",
}
"""Listing to the statement that makes one row of its table for each number `{n}`, the newest last."""
NUMBERED = {"alerts": "since", "campaign-works": "number", "cells": "id", "idle-checks": "checked_at",
            "incidents": "since", "outcomes": "period", "probes": "started_at", "reports": "ended_at",
            "revealed": "revealed_at", "runs": "attempt", "works-not-run": "number",
            "wrong-answers": "ended_at"}  # fmt: skip
"""The column that holds the number."""


def fill(path: Path, name: str, count: int) -> None:
    with duckdb.connect(str(path)) as connection:
        connection.execute(
            "INSERT INTO campaigns (campaign_id, name, text, seed, state, reason, created_at) "
            "VALUES ('c', '', '', 0, 'done', '', 1.0)"
        )
        if name == "revealed":
            connection.execute(f"INSERT INTO {_RUNS.format(n='n')} FROM range({count}) t(n)")
        connection.execute(f"INSERT INTO {ROWS[name].format(n='n')} FROM range({count}) t(n)")


def test_every_listing_with_an_end_is_tried() -> None:
    assert {listing.name for listing in LISTINGS if listing.most_rows} == ROWS.keys() == NUMBERED.keys()


@pytest.mark.parametrize("name", list(ROWS))
def test_a_listing_has_the_newest_rows(tmp_path: Path, name: str) -> None:
    new_database(tmp_path / "p.duckdb")
    most = LISTINGS[name].most_rows
    fill(tmp_path / "p.duckdb", name, most + 5)
    storage = DuckStorage(tmp_path / "p.duckdb")
    rows = asyncio.run(listed(storage, name))
    storage.close()
    numbers = sorted(int(row[NUMBERED[name]]) for row in rows)
    assert numbers == list(range(5, most + 5))
    assert int(rows[0][NUMBERED[name]]) == (most + 4 if name == "outcomes" else 5), "newest last, but for outcomes"


def test_the_newest_rows_of_a_query_come_oldest_first(tmp_path: Path) -> None:
    new_database(tmp_path / "p.duckdb")
    storage = DuckStorage(tmp_path / "p.duckdb")
    query = newest("SELECT n // 2 AS a, -n AS b FROM range(6) t(n)", ("a", "b"), 3)
    rows = asyncio.run(storage.select(query))
    storage.close()
    assert rows == [{"a": 1, "b": -2}, {"a": 2, "b": -5}, {"a": 2, "b": -4}]


def test_the_command_says_when_older_rows_are_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_token(tmp_path / "ops.token", TOKENS["ops"])

    async def printed() -> tuple[str, str]:
        async with loopback(tmp_path) as site:
            access = ["--endpoint", site.endpoint, "--token-file", str(tmp_path / "ops.token")]
            assert await asyncio.to_thread(cli.main, ["idle-checks", "-o", "json", *access]) == 0
        captured = capsys.readouterr()
        return captured.out, captured.err

    assert asyncio.run(printed()) == ("[]\n", "")
    fill(tmp_path / "p.duckdb", "idle-checks", MAX_ROWS + 1)
    out, err = asyncio.run(printed())
    assert len(json.loads(out)) == MAX_ROWS and json.loads(out)[-1]["checked_at"] == MAX_ROWS
    assert err == "only the newest 100,000 rows are listed; older ones are left out\n"
