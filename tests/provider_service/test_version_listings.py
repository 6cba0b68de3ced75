"""Sub-archetypes in the product: learned from stored cells, listed, drawn, and new versions placed."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from pharoah_benchmarks.campaign.cell import Cell, CellResult
from pharoah_learning.evidence import Trial
from pharoah_learning.known_versions import SubArchetype, VersionBehaviour
from pharoah_learning.release import Release
from pharoah_learning.sub_archetypes import learn_versions
from pharoah_provider import cli
from pharoah_provider.domain import Node
from pharoah_provider.learning import learn
from pharoah_provider.listings import Row
from pharoah_provider.pictures.version_chart import draw_version_chart
from pharoah_provider.pictures.version_tree import draw_version_tree
from pharoah_provider.storage.duckdb import DuckStorage
from pharoah_serving.errors import ProviderError
from tests.harness.database import new_database
from tests.harness.exchange import on_loopback
from tests.harness.listings import listed
from tests.harness.loopback import TOKENS, Loopback
from tests.harness.tokens import write_token
from tests.harness.version_trials import OTHER_GRAMMAR, Planted, archetype_of, version_trials

RELEASES = {"4.9.0": Planted(), "4.10.0": Planted(), "4.11.0": Planted(1.5), "4.12.0": Planted(1.5)}


def drawn_release() -> Release:
    versions = learn_versions(version_trials({**RELEASES, "4.13.0": Planted(1.5, grammar=OTHER_GRAMMAR)}))
    return Release(1, sub_archetypes=versions.sub_archetypes, version_changes=versions.changes)


async def store(storage: DuckStorage, trials: list[Trial]) -> None:
    for trial in trials:
        node = Node(trial.node, bytes(32), "boot", (f"context={trial.context_id}",), ("device=cpu",), (0,))
        await storage.nodes.put_node(node)
        cell = Cell(trial.trial_id, trial.workload, trial.settings)
        seconds = list(trial.step_seconds)
        result = CellResult(cell=cell.id, outcome=trial.outcome, step_seconds=seconds, fingerprint=trial.fingerprint)
        await storage.evidence.append_cell("versions", node, cell, result)


async def listings_after(folder: Path, later: dict[str, Planted]) -> dict[str, list[Row]]:
    """What the listings show after a release was learned, and after cells with later versions have run."""
    new_database(folder / "p.duckdb")
    storage = DuckStorage(folder / "p.duckdb")
    try:
        await store(storage, version_trials(RELEASES, blocks=5))
        async for _ in learn(storage):
            pass
        await store(storage, version_trials({"4.10.0": Planted(), **later}, blocks=3, seed=9))
        names = ("sub-archetypes", "version-changes", "new-versions", "table")
        return {name: await listed(storage, name) for name in names}
    finally:
        storage.close()


def test_stored_cells_give_sub_archetypes_and_a_new_version_is_placed_before_the_next_release(tmp_path: Path) -> None:
    found = asyncio.run(listings_after(tmp_path, {"4.20.0": Planted(1.5), "4.21.0": Planted(3.0)}))
    of_library = [row for row in found["sub-archetypes"] if row["library"] == "transformers"]
    assert [row["versions"] for row in of_library] == ["4.9.0 to 4.10.0 (2)", "4.11.0 to 4.12.0 (2)"]
    assert of_library[0]["behaviour"].startswith("step time -")
    changes = {row["after"]: row["change"] for row in found["version-changes"] if row["library"] == "transformers"}
    assert changes["4.10.0"] == changes["4.12.0"] == "nothing meaningful"
    assert changes["4.11.0"].startswith("step time +")
    placed = {row["version"]: (row["place"], row["nearest"]) for row in found["new-versions"]}
    assert placed["4.20.0"] == ("known", "4.11.0 to 4.12.0 (2)")
    assert placed["4.21.0"][0] == "unlike anything known"
    json.dumps(found)


def test_the_command_draws_both_pictures_of_the_newest_release(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_token(tmp_path / "ops.token", TOKENS["ops"])

    async def work(site: Loopback) -> None:
        access = ["--endpoint", site.endpoint, "--token-file", str(tmp_path / "ops.token")]
        for picture in ("sub-archetypes", "version-changes"):
            for file in (tmp_path / f"{picture}.svg", tmp_path / f"{picture}.png"):
                command = ["draw", picture, "--out", str(file), *access]
                assert await asyncio.to_thread(cli.main, command) == 0, capsys.readouterr().err
            text = (tmp_path / f"{picture}.svg").read_text()
            assert "4.12.0" in text and "ersions of transformers" in text, "matplotlib writes texts into comments"
            assert (tmp_path / f"{picture}.png").read_bytes().startswith(b"\x89PNG")
        nothing = ["draw", "sub-archetypes", "--library", "peft", "--out", str(tmp_path / "x.png"), *access]
        assert await asyncio.to_thread(cli.main, nothing) == 1
        assert "no archetype has several versions" in capsys.readouterr().err

    on_loopback(tmp_path, work, drawn_release())


def test_a_picture_of_one_version_or_to_no_folder_is_an_error(tmp_path: Path) -> None:
    one = SubArchetype(
        archetype="a", library="b", versions=(VersionBehaviour("1", 1, 1, {}),), stability=1.0, title="t"
    )
    for draw in (lambda: draw_version_tree(tmp_path / "x.png", [one]), lambda: draw_version_chart(tmp_path, [one], [])):
        with pytest.raises(ProviderError, match="two versions"):
            draw()
    release = drawn_release()
    subs = [sub for sub in release.sub_archetypes if sub.archetype == archetype_of()]
    with pytest.raises(ProviderError, match="no_folder"):
        draw_version_tree(tmp_path / "no_folder" / "x.png", subs)
    with pytest.raises(ProviderError, match=r"x\.docx"):
        draw_version_chart(tmp_path / "x.docx", subs, release.version_changes)
