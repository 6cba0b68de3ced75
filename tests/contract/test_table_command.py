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

from pharoah_auditor.replay import replay
from pharoah_provider import cli
from pharoah_serving.keys import open_keys
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
        works = next(row for row in await site.listing("table") if row["severity"] == "ok")
        assert await command(site, tmp_path, "table", "show", works["id"]) == 0
        text = capsys.readouterr().out
        assert "ok: it ran" in text and "odds ratio" not in text, "nothing failed that could be compared"
        assert "remedy" in text and "code 0" not in text
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


def test_the_table_is_drawn(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async def work(site: ScriptedSite) -> None:
        picture = tmp_path / "table.png"
        assert await command(site, tmp_path, "draw", "table", "--out", str(picture)) == 0
        assert "4 jobs by 2 contexts of release 1" in capsys.readouterr().out
        assert picture.read_bytes().startswith(b"\x89PNG")
        assert await command(site, tmp_path, "draw", "table", "--out", str(tmp_path / "no" / "t.png")) == 1
        assert "t.png" in capsys.readouterr().err
        assert await command(site, tmp_path, "draw", "table", "--out", str(picture), "--rung", "collectives") == 1
        assert "no row of scope server and rung collectives" in capsys.readouterr().err

    beside_a_learned_table(tmp_path, work)


def test_the_listing_is_as_it_was(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async def work(site: ScriptedSite) -> None:
        assert await command(site, tmp_path, "table") == 0
        assert "SEVERITY" in capsys.readouterr().out
        assert await command(site, tmp_path, "table", "-o", "json") == 0
        assert json.loads(capsys.readouterr().out) == await site.listing("table")

    beside_a_learned_table(tmp_path, work)


def test_a_new_provider_learns_from_the_table_of_another_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Export, import, learn, replay by the auditor, and own trials that replace what was imported."""
    theirs, ours, file = tmp_path / "theirs", tmp_path / "ours", tmp_path / "table.json"
    for folder in (theirs, ours):
        prepared(folder)
    arguments = ["table", "import", str(file), "--from", "neighbour"]

    async def export() -> None:
        async with learned_site(theirs) as site:
            assert await command(site, theirs, "table", "export", "--portable", str(file)) == 0
            exported = [row for row in await site.listing("table") if row["scope"] == "device"]
            assert f"{len(exported)} rows about device models, signed" in capsys.readouterr().out
        (tmp_path / "theirs.pub").write_text(open_keys(theirs / "keys").public.hex())

    async def use() -> None:
        async with scripted_site(ours, honest_agents()) as site:
            (tmp_path / "ours.pub").write_text(open_keys(ours / "keys").public.hex())
            for key, expected in (("ours.pub", "this is our own key"), ("no.pub", "no.pub")):
                assert await command(site, ours, *arguments, "--key", str(tmp_path / key)) == 1
                assert expected in capsys.readouterr().err
            (tmp_path / "empty.json").write_text("")
            signed = ["--key", str(tmp_path / "theirs.pub")]
            empty = ["table", "import", str(tmp_path / "empty.json"), "--from", "neighbour", *signed]
            assert await command(site, ours, *arguments, *signed) == 0
            assert await command(site, ours, *empty) == 1
            assert "not a portable table" in capsys.readouterr().err, "an empty file removes nothing"
            assert await command(site, ours, *arguments, *signed) == 0
            assert "are about device models of nodes here" in capsys.readouterr().out
            lines = await site.learn()
            rows = await site.listing("table")
            assert f"tables of other providers: {len(rows)} rows about what no own trial has shown" in lines
            assert {(row["provenance"], row["grade"]) for row in rows} == {("imported", "association")}
            assert {row["severity"] for row in rows} == {"ok"}, "what met a memory limit says nothing of a device model"
            assert await command(site, ours, "table", "show", rows[0]["id"]) == 0
            assert "another provider has counted it" in " ".join(capsys.readouterr().out.split())
            assert await command(site, ours, "table", "export", "--portable", str(tmp_path / "on.json")) == 1
            assert "no row about a device model" in capsys.readouterr().err, "nobody passes on what others have said"
            await replays(site, 1)
            await site.campaign(PLAN)
            await site.learn()
            by_id = {row["id"]: row for row in await site.listing("table")}
            assert {by_id[row["id"]]["provenance"] for row in rows} == {"campaign"}
            await replays(site, 2)
            assert await command(site, ours, "table", "import", "--from", "neighbour", "--remove") == 0
            assert await command(site, ours, "table", "import", "--from", "neighbour", "--remove") == 1
            assert "there is no imported table of 'neighbour'" in capsys.readouterr().err
            await site.learn()
            await replays(site, 3)

    async def replays(site: ScriptedSite, epoch: int) -> None:
        bundle = ours / f"bundle-{epoch}.json"
        assert await command(site, ours, "audit-bundle", str(epoch), "--out", str(bundle)) == 0
        found = replay(bundle, open_keys(ours / "keys").public)
        assert [one.what for one in found if one.holds is False] == []
        assert any("the word of other providers (neighbour)" in one.what for one in found) is (epoch < 3)
        if epoch == 1:
            data = json.loads(bundle.read_text())
            bundle.write_text(json.dumps({**data, "imported": []}))
            failed = [one.what for one in replay(bundle, open_keys(ours / "keys").public) if one.holds is False]
            assert any("rows do not follow" in what for what in failed)

    asyncio.run(export())
    asyncio.run(use())


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["table", "import", "--from", "x"], "give a FILE and the --key"),
        (["table", "import", "no.json", "--from", "x"], "give a FILE and the --key"),
        (["table", "import", "no.json", "--from", "x", "--remove"], "takes no FILE"),
        (["table", "import", "no.json", "--from", "x", "--key", __file__], "no.json: No such file"),
        (["table", "import", __file__, "--from", "x", "--key", __file__], "expected a public key"),
        (["table", "export", "t", "--portable", "--format", "csv"], "a format of its own"),
    ],
)
def test_wrong_use_is_named_before_anything_is_asked(
    arguments: list[str], expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main([*arguments, "--endpoint", "unix:/nowhere/p.sock"]) == 1
    assert expected in capsys.readouterr().err
