"""Listings: one file each, and everything else is made from the registry - also for a listing of somebody else."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import grpc
import pytest

from pharoah_protocol.v1 import ListRequest
from pharoah_provider.listings import GROUP, LISTINGS, Listing, ListingSources, Row, markdown_table
from tests.harness.exchange import on_loopback, refused
from tests.harness.loopback import TOKENS, Loopback
from tests.harness.plugins import write_plugin
from tests.harness.tokens import write_token

ROOT = Path(__file__).parents[2]
PLUGIN = """
from pharoah_provider.listings import Listing, select

ENTRY = Listing(
    name="node-names",
    help="the names of all nodes, from a plug-in",
    columns=("node",),
    rows=select("SELECT node FROM nodes ORDER BY node"),
)
"""
SERVE = """
import asyncio, sys
from pathlib import Path
from pharoah_provider.services.server import provider
from tests.harness.loopback import loopback

async def work():
    async with loopback(Path(sys.argv[1])) as site:
        print(site.endpoint, flush=True)
        await asyncio.to_thread(sys.stdin.read)

asyncio.run(work())
"""


def test_docs_hold_the_table_of_all_listings() -> None:
    text = (ROOT / "docs" / "provider" / "listings.md").read_text()
    assert markdown_table() in text, "run `pharoah-provider listings --markdown` and paste its output"


@pytest.mark.parametrize("name", list(LISTINGS.entries))
def test_every_listing_answers_on_an_empty_database_with_the_columns_it_names(tmp_path: Path, name: str) -> None:
    async def work(site: Loopback) -> None:
        rows = (await site.call("Operator", "List", ListRequest(listing=name), "ops")).rows
        listing = LISTINGS[name]
        for row in map(json.loads, rows):
            assert {*listing.columns, *listing.wide_columns} <= row.keys()
        if name == "nodes":
            assert {row["connected"] for row in map(json.loads, rows)} == {"no"}

    on_loopback(tmp_path, work)


def test_an_unknown_listing_is_refused_with_the_names_there_are(tmp_path: Path) -> None:
    async def work(site: Loopback) -> None:
        for name in ("", "no-such", "near_duplicates"):
            code, message = await refused(site.call("Operator", "List", ListRequest(listing=name), "ops"))
            assert code is grpc.StatusCode.INVALID_ARGUMENT and "nodes" in message and repr(name) in message

    on_loopback(tmp_path, work)


@pytest.mark.parametrize(("name", "columns"), [("Nodes", ("a",)), ("a b", ("a",)), ("", ("a",)), ("fine", ())])
def test_a_listing_that_cannot_be_a_command_is_refused(name: str, columns: tuple[str, ...]) -> None:
    async def none(_: ListingSources) -> list[Row]:
        return []

    with pytest.raises(ValueError, match=f"listing {name!r}"):
        Listing(name=name, help="h", columns=columns, rows=none)


def installed(folder: Path, module: str) -> dict[str, str]:
    """The environment in which a plug-in with this module is installed."""
    write_plugin(folder, GROUP, module)
    return {**os.environ, "PYTHONPATH": f"{folder}{os.pathsep}{ROOT}", "COLUMNS": "80"}


def provider_cli(environ: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pharoah_provider.cli", *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=environ, cwd=ROOT)


def test_a_listing_of_a_plugin_is_a_command_an_answer_and_a_line_of_the_docs(tmp_path: Path) -> None:
    """Nothing but the plug-in's own files is written."""
    plugins, site = tmp_path / "plugins", tmp_path / "site"
    plugins.mkdir()
    site.mkdir()
    environ = installed(plugins, PLUGIN)
    assert "node-names" in provider_cli(environ, "--help").stdout
    assert "| `pharoah-provider node-names` | the names of all nodes, from a plug-in | `node` |" in (
        provider_cli(environ, "listings", "--markdown").stdout
    )
    write_token(tmp_path / "ops.token", TOKENS["ops"])
    server = subprocess.Popen(
        [sys.executable, "-c", SERVE, str(site)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environ, cwd=ROOT,
    )  # fmt: skip
    try:
        assert server.stdout is not None
        endpoint = server.stdout.readline().strip()
        access = ["--endpoint", endpoint, "--token-file", str(tmp_path / "ops.token")]
        answer = provider_cli(environ, "node-names", "-o", "json", *access)
        assert json.loads(answer.stdout) == [{"node": "n1"}, {"node": "n2"}], answer.stderr
    finally:
        server.communicate()


def test_a_broken_plugin_is_named(tmp_path: Path) -> None:
    done = provider_cli(installed(tmp_path, "ENTRY = 3\n"), "listings")
    assert done.returncode == 1 and "plugin_of_a_test:ENTRY" in done.stderr and "Traceback" not in done.stderr


def test_a_plugin_with_the_name_of_a_command_is_refused(tmp_path: Path) -> None:
    done = provider_cli(installed(tmp_path, PLUGIN.replace("node-names", "learn")), "--help")
    assert done.returncode == 1 and "listing learn" in done.stderr and "Traceback" not in done.stderr
