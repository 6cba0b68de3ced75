"""`pharoah-provider table ACTION` against a real provider that has learned from a campaign of scripted agents."""

from __future__ import annotations

import asyncio
import csv
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from pyarrow import parquet

from pharoah_provider import cli
from tests.harness.scripted_agents import OPERATOR, ScriptedSite, scripted_site
from tests.harness.tokens import write_token
from tests.security.test_lying_agents import PLAN, honest_agents, prepared


def beside_a_learned_table(folder: Path, work: Callable[[ScriptedSite], Awaitable[None]]) -> None:
    """Do `work` beside a provider that has learned from one campaign."""
    prepared(folder)

    async def inside() -> None:
        async with learned_site(folder) as site:
            await work(site)

    asyncio.run(inside())


@asynccontextmanager
async def learned_site(folder: Path) -> AsyncIterator[ScriptedSite]:
    """A provider after one campaign and `learn`. Its own dry runs must be there (`prepared`)."""
    async with scripted_site(folder, honest_agents()) as site:
        await site.campaign(PLAN)
        await site.learn()
        yield site


async def command(site: ScriptedSite, folder: Path, *arguments: str) -> int:
    """The exit code of a command of the operator."""
    token = write_token(folder / "ops.token", f"operator ops {OPERATOR}")
    return await asyncio.to_thread(cli.main, [*arguments, "--endpoint", site.endpoint, "--token-file", str(token)])


def test_a_row_is_shown_with_its_numbers_and_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async def work(site: ScriptedSite) -> None:
        row = next(row for row in await site.listing("table") if row["severity"] == "block")
        cells = {cell["id"]: cell for cell in await site.listing("cells")}
        assert await command(site, tmp_path, "table", "show", row["id"]) == 0
        text = capsys.readouterr().out
        assert max(map(len, text.splitlines())) <= 80
        assert f"row {row['id']} of release 1" in text and "block: memory" in text
        assert f"{row['failures']} of {row['runs']}, rate 1.00" in text and "e-value" in text and "Gamma" in text
        assert await command(site, tmp_path, "table", "show", row["id"], "-o", "json") == 0
        shown = json.loads(capsys.readouterr().out)
        assert len(shown["trials"]) == row["runs"] and len(shown["controls"]) == row["base_runs"]
        for trial in shown["trials"]:
            cell = cells[trial["trial_id"]]
            assert (trial["node"], trial["block"], trial["outcome"]) == (cell["node"], cell["block"], "memory")
        assert shown["blocks"]["against"] == shown["blocks"]["pairs"] >= 5
        assert await command(site, tmp_path, "table", "show", "nothing") == 1
        assert "row 'nothing' is not in release 1" in capsys.readouterr().err
        band = (await site.listing("near-duplicates"))[:1]
        for one in band:
            assert await command(site, tmp_path, "table", "show", one["id"]) == 0
            assert "none that are stored" in capsys.readouterr().out

    beside_a_learned_table(tmp_path, work)


def test_without_a_release_show_says_what_to_do(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async def work() -> None:
        async with scripted_site(tmp_path, []) as site:
            assert await command(site, tmp_path, "table", "show", "x") == 1
            assert "run a campaign" in capsys.readouterr().err
            assert await command(site, tmp_path, "table", "export", str(tmp_path / "t.csv")) == 1
            assert "nothing was learned yet" in capsys.readouterr().err

    asyncio.run(work())


def test_a_table_is_exported_in_three_formats_with_the_same_rows(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async def work(site: ScriptedSite) -> None:
        listed = await site.listing("table")
        for name, options in (("t.csv", []), ("t.json", []), ("t.parquet", []), ("data", ["--format", "json"])):
            assert await command(site, tmp_path, "table", "export", str(tmp_path / name), *options) == 0
            assert f"{len(listed)} rows of release 1" in capsys.readouterr().out
        assert json.loads((tmp_path / "t.json").read_text()) == listed
        assert json.loads((tmp_path / "data").read_text()) == listed
        assert parquet.read_table(tmp_path / "t.parquet").to_pylist() == listed
        with (tmp_path / "t.csv").open(newline="") as file:
            assert [row["id"] for row in csv.DictReader(file)] == [row["id"] for row in listed]
        assert await command(site, tmp_path, "table", "export", str(tmp_path / "no" / "t.csv")) == 1
        assert "t.csv" in capsys.readouterr().err

    beside_a_learned_table(tmp_path, work)


def test_the_listing_is_as_it_was(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async def work(site: ScriptedSite) -> None:
        assert await command(site, tmp_path, "table") == 0
        assert "SEVERITY" in capsys.readouterr().out
        assert await command(site, tmp_path, "table", "-o", "json") == 0
        assert json.loads(capsys.readouterr().out) == await site.listing("table")

    beside_a_learned_table(tmp_path, work)
